"""Starting, watching, ending and reaping the processes of a launch.

A supervisor adopts every orphan below it (a Linux child subreaper), so it can end a launch completely whatever sessions
and process groups the launch's processes moved themselves into. It only ever signals its own descendants, or processes
whose pid, start time and trial token all match a record.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.record import process_start_ticks

TOKEN = "BENCH_TRIAL_TOKEN"  # environment variable that marks every process of a run
TRACKER_PATIENCE_S = 2.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants. Raises OSError where the kernel refuses."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to signal this process when its parent ends, so that nothing outlives a killed supervisor."""
    _libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)


def parents() -> dict[int, int]:
    """pid -> parent pid of every process that can be seen."""
    tree = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                tree[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue  # it ended while we looked
    return tree


def descendants(root: int, foreign: Collection[int] = ()) -> list[int]:
    """Pids of all processes below `root`, nearest first, without the children in `foreign` and what is below them."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [pid for pid in children.get(root, []) if pid not in foreign]
    while queue:
        pid = queue.pop(0)
        found.append(pid)
        queue.extend(children.get(pid, []))
    return found


def with_token(token: str) -> list[int]:
    """Pids of processes that carry the trial token (their environment must be readable to us)."""
    needle = f"{TOKEN}={token}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def end_recorded(pid: int, start_ticks: int, token: str, signum: int = signal.SIGKILL) -> bool:
    """Signal a process only if pid, start time and token match what was recorded. False: it is not that process."""
    try:
        if process_start_ticks(pid) != start_ticks or pid not in with_token(token):
            return False
        os.kill(pid, signum)
    except (OSError, ProcessLookupError):
        return False
    return True


@dataclass(frozen=True)
class Exit:
    """How a process ended: `code` is the exit status, or minus the signal that killed it."""

    pid: int
    code: int


class Supervisor:
    """Owns the processes that it starts, and adopts what they leave behind.

    Children that the process had before (of a notebook, a test, a shell that ran `exec`) are not its own.
    """

    def __init__(self) -> None:
        adopt_orphans()
        self._foreign = frozenset(descendants(os.getpid()))
        self._started: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, command: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path | None = None) -> int:
        """Start a process in its own session with its output in `log`; returns its pid."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as output:
            process = subprocess.Popen(
                list(command),
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started[process.pid] = process
        return process.pid

    def reap(self) -> list[Exit]:
        """Collect the processes that have ended since the last call, adopted orphans included. Never blocks."""
        ended = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            code = os.waitstatus_to_exitcode(status)
            process = self._started.pop(pid, None)
            if process is not None:
                process.returncode = code  # Popen must not wait for a pid that is gone and may be reused
            ended.append(Exit(pid, code))
        return ended

    def wait(self, pids: Sequence[int], deadline_s: float) -> dict[int, int]:
        """Exit codes of `pids`; those still running after `deadline_s` are missing from the answer."""
        waiting, codes, end = set(pids), {}, time.monotonic() + deadline_s
        while waiting and time.monotonic() < end:
            for ended in self.reap():
                if ended.pid in waiting:
                    codes[ended.pid] = ended.code
                    waiting.discard(ended.pid)
            if waiting:
                time.sleep(0.01)
        return codes

    def end_all(self, deadline_s: float = 20.0, signum: int = signal.SIGKILL) -> list[int]:
        """Kill every own descendant until none is left. Returns the unkillable pids (uninterruptible sleep).

        Python's resource trackers come last: they end by themselves once those they serve are gone, and remove the
        names that these left in /dev/shm. What is left there all the same, mapped by own descendants only, is removed.
        """
        end, trackers_end = time.monotonic() + deadline_s, time.monotonic() + TRACKER_PATIENCE_S
        names: set[str] = set()
        while True:
            left = descendants(os.getpid(), self._foreign)
            names |= shm_names(left)
            for pid in left:
                if time.monotonic() > trackers_end or not _is_tracker(pid):
                    _signal(pid, signum)
            self.reap()
            left = descendants(os.getpid(), self._foreign)
            if not left or time.monotonic() > end:
                break
            time.sleep(0.01)
        if not left:
            _remove_shm(names)
        return left


def _signal(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        pass


def _is_tracker(pid: int) -> bool:
    try:
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def shm_names(pids: Collection[int]) -> set[str]:
    """Names below /dev/shm that these processes have mapped (semaphores, shared memory that still has a name)."""
    found = set()
    for pid in pids:
        try:
            maps = Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            continue
        found |= {line.split(None, 5)[5] for line in maps.splitlines() if " /dev/shm/" in line}
    return {name for name in found if not name.endswith("(deleted)")}


def _remove_shm(names: Collection[str]) -> None:
    """Remove those of `names` that no living process has mapped."""
    if not names:
        return
    still_used = shm_names(list(parents()))
    for name in set(names) - still_used:
        Path(name).unlink(missing_ok=True)
