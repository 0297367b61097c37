"""Writer processes seen from their trainer: whether they live, how they died, and their end within a bound."""

from __future__ import annotations

from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

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


def stop(process: Any) -> None:
    """Terminate a process, then kill it. It may not be used afterwards."""
    for end, patience_s in ((process.terminate, TERMINATE_S), (process.kill, KILL_S)):
        if not is_running(process):
            break
        end()  # a stopped process (SIGSTOP) does not act on SIGTERM, but on SIGKILL
        process.join(patience_s)
    with suppress(ValueError):  # still there: in uninterruptible sleep; the node runner reports it
        process.close()
