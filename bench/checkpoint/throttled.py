"""A store of known speed on this machine: ext4 on a loop device that the kernel limits to so many bytes per second.

It lets one machine rehearse a cluster's store in proportion, checks the storage probe against a known truth, and makes
cold reads cold. Needs root, loop devices and the blkio controller of cgroup v1; without them BadInput names what is
missing. The limit holds for synced writes; unsynced ones end in the page cache and never meet it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.errors import BadInput

FIELD = "storage.throttle_bytes_per_s"
BLKIO = Path("/sys/fs/cgroup/blkio")
WRITE, READ = "blkio.throttle.write_bps_device", "blkio.throttle.read_bps_device"
SPARE_BYTES = 128 << 20  # the file system's own needs
BACKING = Path("/dev/shm")  # memory: far faster than any limit that makes sense here


def refusal() -> str | None:
    """Why this machine cannot limit a store, or None."""
    if os.geteuid() != 0:
        return "needs root"
    if not (BLKIO / WRITE).exists():
        return f"needs the blkio controller of cgroup v1 at {BLKIO}"
    missing = [tool for tool in ("losetup", "mkfs.ext4", "mount", "umount") if shutil.which(tool) is None]
    return f"needs {', '.join(missing)}" if missing else None


@contextmanager
def throttled(mount_point: Path, capacity_bytes: int, bytes_per_s: int) -> Iterator[Path]:
    """An empty store at `mount_point` that writes and reads at most `bytes_per_s`, taken down afterwards.

    Raises BadInput where the machine cannot, or where memory does not hold `capacity_bytes`.
    """
    reason = refusal()
    if reason is not None:
        raise BadInput(f"{FIELD}: a limited store {reason}; leave it out, or give storage.dir=PATH of a slow store")
    clear_leftovers()
    size = capacity_bytes + SPARE_BYTES
    if shutil.disk_usage(BACKING).free < size:
        raise BadInput(f"{FIELD}: {size / 1e9:.1f} GB do not fit into {BACKING}; take a smaller model")
    with ExitStack() as stack:
        image = BACKING / f"bench-store-{os.getpid()}.img"
        stack.callback(image.unlink, missing_ok=True)
        with open(image, "wb") as file:
            file.truncate(size)
        device = _run("losetup", "--find", "--show", str(image))
        stack.callback(_run, "losetup", "--detach", device)
        # All tables now: the kernel would write them lazily, at the expense of what is measured.
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        mount_point.mkdir(parents=True, exist_ok=True)
        _run("mount", device, str(mount_point))
        stack.callback(_run, "umount", str(mount_point))
        number = (Path("/sys/block") / Path(device).name / "dev").read_text().strip()
        # Lifted before the rest is taken down: who waits in fsync on a limited device cannot be killed until it ends.
        stack.callback(_limit, number, 0)
        _limit(number, bytes_per_s)
        yield mount_point


def images_bytes() -> int:
    """What the images of such stores take of memory: the blocks that were written, not their capacity."""
    return sum(image.stat().st_blocks * 512 for image in BACKING.glob("bench-store-*.img"))


def clear_leftovers() -> None:
    """Take down stores whose driver was killed before it could do so itself."""
    for image in BACKING.glob("bench-store-*.img"):
        owner = image.stem.rsplit("-", 1)[1]
        if Path(f"/proc/{owner}").exists():
            continue
        for line in _run("losetup", "--noheadings", "--output", "NAME", "--associated", str(image)).splitlines():
            device = line.strip()
            _limit((Path("/sys/block") / Path(device).name / "dev").read_text().strip(), 0)
            subprocess.run(["umount", device], capture_output=True, check=False)  # it may not be mounted
            _run("losetup", "--detach", device)
        image.unlink(missing_ok=True)


def _limit(device_number: str, bytes_per_s: int) -> None:
    """0 lifts the limit."""
    for name in (WRITE, READ):
        (BLKIO / name).write_text(f"{device_number} {bytes_per_s}\n")


def _run(*words: str) -> str:
    """Output of a command. Raises BadInput with its own words."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BadInput(f"{FIELD}: {' '.join(words)} failed ({done.stderr.strip()}); leave the limit out")
    return done.stdout.strip()
