"""Writing events: the instrument inside workers and checkpoint writers.

A line is one write(2) to a file opened for appending, so a process killed at any moment leaves every finished event
behind, and at worst one torn last line, which readers drop and count. Costs a few microseconds an event.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.schema import EVENT_VERSION

clock = time.monotonic  # one clock for all processes of a host


def process_start_ticks(pid: int | str = "self") -> int:
    """Start time of a process in clock ticks since boot (field 22 of /proc/PID/stat); with the pid it names one."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rsplit(")", 1)[1].split()[19])


class Recorder:
    """Appends the events of one process to one file.

    `meta` holds what does not change in the life of the process: role, launch, node, local_rank, rank, world_size,
    incarnation, token. The file's name is unique per process, so no incarnation writes into another's file.
    """

    def __init__(self, directory: Path, **meta: Any) -> None:
        pid, started = os.getpid(), process_start_ticks()
        name = f"{meta['role']}-n{meta['node']}-r{meta['local_rank']}-{pid}-{started}.jsonl"
        self.path = Path(directory) / name
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._seq = 0
        self._write(
            {"kind": "meta", "version": EVENT_VERSION, "pid": pid, "pid_start": started}
            | meta
            | {"mono": clock(), "wall": time.time()}
        )

    def _write(self, event: dict[str, Any]) -> None:
        event["seq"] = self._seq
        self._seq += 1
        os.write(self._file, json.dumps(event, separators=(",", ":")).encode() + b"\n")

    def begin(self, name: str, t: float) -> None:
        self._write({"kind": "begin", "name": name, "t": t})

    def instant(self, name: str, t: float | None = None, **attributes: Any) -> None:
        self._write({"kind": "instant", "name": name, "t": clock() if t is None else t, **attributes})

    @contextmanager
    def span(self, name: str, **attributes: Any) -> Iterator[dict[str, Any]]:
        """Time a block; what it puts into the yielded dict is recorded with it. Recorded also on an exception."""
        t0 = clock()
        self.begin(name, t0)
        try:
            yield attributes
        finally:
            t1 = clock()
            self._write({"kind": "span", "name": name, "t0": t0, "t1": t1, **attributes})

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
