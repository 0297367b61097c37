"""File systems by what they mean, read from the kernel's own list."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.doctor.mounts import Mount, existing, mount_at, mount_of, parse

TABLE = """\
21 1 0:20 / / rw,relatime - overlay overlay rw,lowerdir=/l
22 21 0:21 / /proc rw - proc proc rw
23 21 259:1 /data /mnt/local\\040disk rw,relatime shared:1 - xfs /dev/nvme1n1 rw
24 21 0:44 / /fsx rw - lustre 10.0.0.1@tcp:/fs rw
25 21 0:45 / /dev/shm rw - tmpfs tmpfs rw
26 21 259:1 /pods/1/volumes/kubernetes.io~empty-dir/scratch /scratch rw - ext4 /dev/nvme0n1 rw
27 21 259:2 / /fsx/fast rw - ext4 /dev/nvme2n1 rw
28 21 0:46 / /fsx/fast rw - nfs4 server:/x rw
29 21 0:50 / /odd rw - strangefs x rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "nature"),
    [
        ("/opt/x", "overlay", "container"),
        ("/mnt/local disk/a", "xfs", "local"),
        ("/mnt/local", "overlay", "container"),
        ("/fsx/run", "lustre", "shared"),
        ("/dev/shm", "tmpfs", "memory"),
        ("/scratch/events", "ext4", "pod"),
        ("/odd/x", "strangefs", "unknown"),
    ],
)
def test_the_innermost_mount_says_who_sees_a_folder_and_how_long_it_lasts(path, kind, nature):
    mount = mount_at(Path(path), parse(TABLE))
    assert (mount.kind, mount.nature) == (kind, nature)


def test_of_two_mounts_at_one_point_the_later_one_is_seen():
    assert mount_at(Path("/fsx/fast/x"), parse(TABLE)).kind == "nfs4"


def test_a_path_below_no_mount_is_an_error_and_no_guess():
    with pytest.raises(ValueError, match="no mount"):
        mount_at(Path("/x"), [Mount("/y", "/", "ext4")])


def test_a_folder_that_is_not_there_yet_is_judged_by_its_nearest_parent(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert existing(tmp_path / "link" / "a" / "b") == tmp_path.resolve()


def test_this_machines_own_list_is_understood():
    assert mount_of(Path("/proc/self")).kind == "proc"
    assert mount_of(Path("/dev/shm")).nature == "memory"
