"""When each worker and writer of a launch ended, whoever its parent is: by pidfd, from outside, or by looking again.

A process that has an event file is known by the file's name (its pid and start time), so that a reused pid is never
taken for it.
"""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.record import Recorder, process_start_ticks

TAIL_BYTES = 4096  # of an event file: what a worker writes after its last step


class Known(NamedTuple):
    """From the name of an event file: ROLE-nNODE-rLOCAL_RANK-PID-START.jsonl."""

    role: str
    local_rank: int
    pid: int
    pid_start: int

    @classmethod
    def of(cls, path: Path) -> Known:
        role, _, local_rank, pid, started = path.stem.split("-")
        return cls(role, int(local_rank[1:]), int(pid), int(started))


class GoneWatch:
    """Records `gone` for each process whose event file appears in `events_dir`. Look at it every few milliseconds."""

    def __init__(self, events_dir: Path, recorder: Recorder) -> None:
        self.events_dir = events_dir
        self.recorder = recorder
        self._seen: set[str] = set()
        self._open: dict[int, Known] = {}  # pidfd -> process
        self._looked_after: list[Known] = []  # those without a pidfd, at every look
        self._poll = select.poll()
        self.job_complete = False  # the last worker that ended here had come to the job's end

    def look(self) -> None:
        for name in os.listdir(self.events_dir):
            if name not in self._seen and name.endswith(".jsonl") and not name.startswith("runner"):
                self._seen.add(name)
                self._follow(Known.of(Path(name)))
        for fd, _ in self._poll.poll(0):
            self._ended(fd)
        for known in [each for each in self._looked_after if _has_ended(each)]:
            self._looked_after.remove(known)
            self._record(known)

    def _follow(self, known: Known) -> None:
        """A process that ended before it could be followed is gone now: the file showed up only a moment ago.

        Where there is no pidfd for another reason (an old kernel, a filter of system calls, no descriptor left), that
        says nothing of the process.
        """
        try:
            fd = os.pidfd_open(known.pid)
        except ProcessLookupError:
            return self._record(known)
        except OSError:
            return self._looked_after.append(known)
        if _has_ended(known):
            os.close(fd)
            return self._record(known)
        self._open[fd] = known
        self._poll.register(fd, select.POLLIN)
        return None

    def _ended(self, fd: int) -> None:
        self._poll.unregister(fd)
        os.close(fd)
        self._record(self._open.pop(fd))

    @property
    def nobody_works(self) -> bool:
        return not any(known.role == "worker" for known in (*self._open.values(), *self._looked_after))

    def _record(self, known: Known) -> None:
        self.recorder.instant("gone", **known._asdict())
        if known.role == "worker":
            self.job_complete = self._came_to_the_end(known)

    def _came_to_the_end(self, known: Known) -> bool:
        files = self.events_dir.glob(f"worker-*-r{known.local_rank}-{known.pid}-{known.pid_start}.jsonl")
        return any(b'"measured_end"' in path.read_bytes()[-TAIL_BYTES:] for path in files)

    def close(self) -> None:
        """Record what ended last, and let go of the rest."""
        self.look()
        for fd in list(self._open):
            self._poll.unregister(fd)
            os.close(fd)
        self._open.clear()
        self._looked_after.clear()


def _has_ended(known: Known) -> bool:
    """By pid and start time; a process that waits to be reaped has. One that nobody can look at is taken to live."""
    try:
        other = process_start_ticks(known.pid) != known.pid_start
        return other or psutil.Process(known.pid).status() == psutil.STATUS_ZOMBIE
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess, IndexError):
        return True
    except (OSError, psutil.Error):
        return False
