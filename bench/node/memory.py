"""How much memory a launch takes on this node, sampled from outside: host, /dev/shm and GPU memory.

Host memory is the private (anonymous) memory of all its processes, writers included; what they share through /dev/shm
is counted once, by what the file system says, without the images of stores that stand there
(storage.throttle_bytes_per_s). Only comparisons within one result make sense of these.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.checkpoint import throttled
from bench.environment import nvml
from bench.supervise import descendants
from bench.telemetry import devices

LOOK_S, SEARCH_S = 0.5, 5.0
_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


def anonymous_bytes(pids: Iterable[int]) -> int:
    """Private memory of the processes that still run. Unit: bytes."""
    total = 0
    for pid in pids:
        try:
            match = _ANONYMOUS.search(Path(f"/proc/{pid}/status").read_text())
        except OSError:
            continue  # it ended while we looked
        total += int(match.group(1)) * 1024 if match else 0
    return total


def shm_used_bytes() -> int | None:
    try:
        return shutil.disk_usage("/dev/shm").used - throttled.images_bytes()
    except OSError:
        return None


def device_used_bytes() -> list[int] | None:
    """Used memory of every GPU that CUDA shows to this node's ranks; None without NVML."""
    with nvml() as library:
        if library is None:
            return None
        found = [devices.used_bytes(library, each) for each in devices.shown(library, os.environ.get(devices.VARIABLE))]
        return [used for used in found if used is not None]


class MemoryWatch:
    """Peaks over the descendants of this process since the last `take`; /dev/shm relative to what was in use before.

    Cheap enough to stand in a loop beside training: it reads a few small files twice a second, and looks for new
    processes only now and then.
    """

    def __init__(self, with_gpus: bool) -> None:
        self.with_gpus = with_gpus
        self._shm_before = shm_used_bytes()
        self._pids: list[int] = []
        self._next_look = self._next_search = 0.0
        self._peaks: dict[str, int] = {}

    def look(self) -> None:
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        if now >= self._next_search:
            self._pids, self._next_search = descendants(os.getpid()), now + SEARCH_S
        self._raise("host_bytes", anonymous_bytes(self._pids))
        shm = shm_used_bytes()
        if shm is not None and self._shm_before is not None:
            self._raise("shm_bytes", shm - self._shm_before)
        if self.with_gpus and (used := device_used_bytes()):
            self._raise("device_bytes", max(used))

    def _raise(self, name: str, value: int) -> None:
        self._peaks[name] = max(self._peaks.get(name, value), value)

    def take(self) -> dict[str, Any]:
        peaks, self._peaks = self._peaks, {}
        return peaks
