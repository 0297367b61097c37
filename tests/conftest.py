"""What every test relies on: no test leaves a process behind, and ports are asked for, not guessed."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Iterator

import psutil
import pytest

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 5.0  # how long a child that was told to end may take
# Helpers that the standard library starts once per interpreter and keeps on purpose.
KEPT = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def pytest_configure() -> None:
    """Make orphans of a test children of pytest, so that a grandchild cannot slip away by losing its parent."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid}: {' '.join(process.cmdline())}"
    except psutil.Error:
        return ""


def _left_behind(before: set[psutil.Process]) -> list[psutil.Process]:
    """Descendants started since `before` that still live after the grace; ended ones are reaped on the way."""
    started = [child for child in _children() - before if not any(kept in _describe(child) for kept in KEPT)]
    _, alive = psutil.wait_procs(started, timeout=GRACE_S)
    return alive


@pytest.fixture(autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Fail a test whose processes outlive it, and end them, so that they cannot disturb the next one."""
    before = _children()
    yield
    left = _left_behind(before)
    described = [_describe(process) for process in left]
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=GRACE_S)
    assert not left, f"the test left processes behind: {described}"


@pytest.fixture
def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
