"""The store of checkpoints becomes slower for a while: the limit of the throttled store is lowered."""

from __future__ import annotations

from typing import Any, ClassVar

from bench.checkpoint.throttled import BLKIO, READ, WRITE
from bench.faults.base import NodeFault, Option, Planned, Site
from bench.faults.filesystem import Mount, mount_of, throttled_image


class StorageSlow(NodeFault):
    name = "storage_slow"
    moments = ("step", "staging", "write", "commit", "load")
    expects = "Writes and loads take longer for a while; nothing restarts unless a timeout is too tight: a false alarm."
    needs = "storage.throttle_bytes_per_s"
    options: ClassVar[dict[str, Option]] = {"times": 10.0, "seconds": 10.0}  # so many times slower, for so long
    tolerated = True
    restores = ("limits",)
    by_hand = "the store may still be slow: unmount it before the next run"

    def unavailable(self, planned: Planned, site: Site) -> str | None:
        mount = mount_of(site.checkpoint_dir)
        if throttled_image(mount) is None:
            return "needs a store of known speed made for the run; give storage.throttle_bytes_per_s"
        try:
            for name, speed in limits(mount.device).items():
                limit(name, mount.device, speed)
        except OSError as error:
            return f"the store's limit cannot be set ({error})"
        return None

    def prepare(self, planned: Planned, site: Site) -> dict[str, Any]:
        mount = mount_of(site.checkpoint_dir)
        return {"device": mount.device, "image": throttled_image(mount), "limits": limits(mount.device)}

    def strike(self, planned: Planned, site: Site, details: dict[str, Any]) -> None:
        if details["image"] is None:
            raise OSError(f"{site.checkpoint_dir} is not on a store made for this run")
        for name, speed in details["limits"].items():
            limit(name, details["device"], max(1, int(speed / self.option(planned, "times"))))

    def lifted_after_s(self, planned: Planned) -> float:
        return float(self.option(planned, "seconds"))

    def touches(self, details: dict[str, Any]) -> tuple[str, ...]:
        return str(details["device"]), str(details["image"])

    def undo(self, record: dict[str, Any]) -> dict[str, Any]:
        """Nothing if the store has been taken down since: its device may by now be somebody else's."""
        details = record["details"]
        mount = Mount("", "", "", details["device"])
        if details["image"] is not None and throttled_image(mount) == details["image"]:
            for name, speed in details["limits"].items():
                limit(name, mount.device, speed)
        return {}


def limits(device: str) -> dict[str, int]:
    """Bytes per second that the kernel allows a device now, by the name of the limit; none where there is no limit."""
    found = {}
    for name in (WRITE, READ):
        for line in (BLKIO / name).read_text().splitlines():
            number, speed = line.split()
            if number == device:
                found[name] = int(speed)
    return found


def limit(name: str, device: str, bytes_per_s: int) -> None:
    (BLKIO / name).write_text(f"{device} {bytes_per_s}\n")
