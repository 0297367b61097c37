"""Which file system a folder lies on, and whether it belongs to this run alone, so that a fault may fill or slow it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from bench.checkpoint.throttled import BACKING

SMALL_BYTES = 4 << 30
# Where everybody's temporary files and shared memory lie, small or not.
EVERYBODYS = re.compile(r"/tmp|/var/tmp|/(dev|run|sys|proc)(/.*)?")


@dataclass(frozen=True)
class Mount:
    point: str
    kind: str  # tmpfs, ext4 ...
    source: str
    device: str  # "major:minor"


def mount_of(folder: Path) -> Mount:
    """The mount that a folder lies on, or will lie on once it is made. Raises OSError."""
    folder = existing(folder)
    number = os.stat(folder).st_dev
    device, real = f"{os.major(number)}:{os.minor(number)}", f"{folder.resolve()}/"
    found = [mount for mount in mounts() if mount.device == device and real.startswith(mount.point.rstrip("/") + "/")]
    if not found:
        raise OSError(f"no mount of device {device} holds {folder}")
    return max(found, key=lambda mount: len(mount.point))


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in [folder, *folder.parents] if path.exists())


def mounts() -> list[Mount]:
    """All that this process sees, from /proc/self/mountinfo (proc(5))."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        _, _, device, _, point = before.split()[:5]
        kind, source = after.split()[:2]
        found.append(Mount(_unescaped(point), kind, source, device))
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def throttled_image(mount: Mount) -> str | None:
    """The image behind the store that bench.checkpoint.throttled made for a run; None for any other file system."""
    backing = Path(f"/sys/dev/block/{mount.device}/loop/backing_file")
    if not backing.exists():
        return None
    image = Path(backing.read_text().strip())
    return str(image) if image.parent == BACKING and image.match("bench-store-*.img") else None


def shared_with_others(folder: Path, *results: Path) -> str | None:
    """Why the file system of `folder` is not this run's alone, or None. `results` must not lie on it either."""
    folder, mount = existing(folder), mount_of(folder)
    if any(mount_of(path).device == mount.device for path in results):
        return f"the file system of checkpoints ({mount.point}) also holds events or results"
    if throttled_image(mount) is not None:
        return None
    status = os.statvfs(folder)
    if mount.kind != "tmpfs" or status.f_blocks * status.f_frsize >= SMALL_BYTES:
        return (
            f"the file system of checkpoints ({mount.point}, {mount.kind}) may be used by others; give "
            "storage.throttle_bytes_per_s, or storage.dir on a tmpfs of less than 4 GiB made for it"
        )
    if EVERYBODYS.fullmatch(mount.point):
        return f"{mount.point} is everybody's; give storage.dir on a file system of its own"
    return None
