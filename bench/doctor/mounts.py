"""File systems by what they mean for a measurement: who sees them, and how long what is on them lasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

# shared: other nodes see it.  local: of this node alone.  memory: gone with power, and as fast as memory.
# container: the writable layer of a container's image, gone with the container.  pod: a Kubernetes emptyDir.
Nature = Literal["shared", "local", "memory", "container", "pod", "unknown"]

MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
CONTAINER = frozenset({"overlay", "aufs", "fuse.fuse-overlayfs"})
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs"})
SHARED = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "dvs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "panfs"}
    | {"quobyte", "smb3", "virtiofs", "wekafs"}
    | {f"fuse.{name}" for name in ("ceph", "gcsfuse", "glusterfs", "juicefs", "mountpoint-s3", "s3fs", "sshfs")}
)


@dataclass(frozen=True)
class Mount:
    """A line of /proc/self/mountinfo. `root`: the folder of the file system that is seen at `point`."""

    point: str
    root: str
    kind: str

    @property
    def nature(self) -> Nature:
        if "/kubernetes.io~empty-dir/" in self.root:
            return "pod"
        for kinds, nature in NATURES:
            if self.kind in kinds:
                return nature
        return "unknown"


NATURES: tuple[tuple[frozenset[str], Nature], ...] = (
    (MEMORY, "memory"),
    (CONTAINER, "container"),
    (LOCAL, "local"),
    (SHARED, "shared"),
)


def parse(mountinfo: str) -> list[Mount]:
    """The mounts in the text of /proc/self/mountinfo, whose names write a blank as \\040 (see proc(5))."""
    found = []
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        _, _, _, root, point, *_ = fields.split()
        found.append(Mount(_plain(point), _plain(root), rest.split()[0]))
    return found


def _plain(name: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        name = name.replace(code, character)
    return name


def mount_at(path: Path, mounts: Sequence[Mount]) -> Mount:
    """The mount on which `path` lies: the innermost, and of several at one point the newest. ValueError without any."""
    over = [mount for mount in mounts if path.is_relative_to(mount.point)]
    if not over:
        raise ValueError(f"no mount lies above {path}")
    longest = max(len(mount.point) for mount in over)
    return [mount for mount in over if len(mount.point) == longest][-1]


def existing(path: Path) -> Path:
    """The folder itself or its nearest parent that is there, links followed."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path.resolve()


def mount_of(path: Path) -> Mount:
    """The mount on which a folder lies, or would lie once it is made."""
    return mount_at(existing(path), parse(Path("/proc/self/mountinfo").read_text()))
