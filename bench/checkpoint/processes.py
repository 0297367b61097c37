"""Writer processes seen from their trainer: whether they live, how they died, and their end within a bound."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from functools import cache
from multiprocessing.connection import wait
from typing import Any

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h

# An idle writer asked to end needs about 0.5 s; the bounds are for busy machines. Their sum bounds a close.
ASK_S, TERMINATE_S, KILL_S = 3.0, 2.0, 5.0


def is_running(process: Any) -> bool:
    """Whether a multiprocessing.Process lives, by its sentinel: is_alive() stays true if another party reaped it."""
    return not wait([process.sentinel], timeout=0)


def death(process: Any) -> str | None:
    """How a process died, or None if it lives."""
    if is_running(process):
        return None
    process.join(KILL_S)  # its files are closed, so it is about to be gone: wait for the exit code
    code = process.exitcode  # None if another party has reaped it
    cause = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}; see its output"
    return f"the writer process {process.pid} is dead ({cause})"


def stop(process: Any, close: bool = True) -> None:
    """Terminate a process, then kill it. `close`: give back what the object holds; it may not be used afterwards."""
    for end, patience_s in ((process.terminate, TERMINATE_S), (process.kill, KILL_S)):
        if not is_running(process):
            break
        end()  # a stopped process (SIGSTOP) does not act on SIGTERM, but on SIGKILL
        process.join(patience_s)
    if not close:
        return
    with suppress(ValueError):  # still there: in uninterruptible sleep; the node runner reports it
        process.close()


# --- in the writer ----------------------------------------------------------------------------------------------------


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies, also by SIGKILL."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@cache
def die_with(trainer_pid: int) -> None:
    """Let the kernel kill this process when its trainer dies, also by SIGKILL; else it would live on, output and all.

    The signal is tied to the thread that started this process: the trainer must save from a thread that lives as long
    as it does. Until its first save a writer is not covered; the node runner reaps such ones.
    """
    die_with_parent()
    if os.getppid() != trainer_pid:  # it died before the line above
        os._exit(1)
