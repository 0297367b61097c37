"""Whom a fault may kill beside its own process: background writers of the own rank, by what is on record of them."""

from __future__ import annotations

import os
from pathlib import Path

from bench.record import process_start_ticks
from bench.supervise import descendants


def writers(events_dir: Path, node: int, local_rank: int) -> list[int]:
    """Pids of the living writer processes of this process, by the event files that they have opened.

    A pid counts only together with the start time in the file's name, and below this process: a number that was given
    to another process since is nobody's.
    """
    own = set(descendants(os.getpid()))
    found = []
    for path in sorted(events_dir.glob(f"writer-n{node}-r{local_rank}-*.jsonl")):
        pid, started = (int(part) for part in path.stem.split("-")[3:5])
        if pid in own and _start_ticks(pid) == started:
            found.append(pid)
    return found


def _start_ticks(pid: int) -> int | None:
    try:
        return process_start_ticks(pid)
    except (OSError, IndexError):
        return None
