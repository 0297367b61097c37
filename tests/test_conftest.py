"""The guard itself: a test that leaves a process behind fails, and the process is gone afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from tests.conftest import no_process_left_behind

SLEEPER = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)"]
ORPHAN_MAKER = """
import subprocess, sys
orphan = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(orphan.pid, flush=True)
"""


@pytest.fixture
def guard():
    """The body of the autouse fixture, driven by hand: the first next() is before the test, the second after it."""
    return no_process_left_behind.__wrapped__()


def test_a_child_left_running_is_reported_and_ended(guard, monkeypatch):
    monkeypatch.setattr("tests.conftest.GRACE_S", 0.2)
    next(guard)
    child = subprocess.Popen(SLEEPER, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    with pytest.raises(AssertionError, match=f"left processes behind.*{child.pid}"):
        next(guard)
    assert not psutil.pid_exists(child.pid)
    child.stdout.close()


def test_a_grandchild_whose_parent_has_ended_is_found_too(guard, monkeypatch):
    monkeypatch.setattr("tests.conftest.GRACE_S", 0.2)
    next(guard)
    made = subprocess.run([sys.executable, "-c", ORPHAN_MAKER, *SLEEPER], capture_output=True, check=True, text=True)
    orphan = int(made.stdout)
    with pytest.raises(AssertionError, match=f"left processes behind.*{orphan}"):
        next(guard)
    assert not psutil.pid_exists(orphan)


def test_a_child_that_ends_within_the_grace_is_no_offence(guard):
    next(guard)
    child = subprocess.Popen(SLEEPER, stdout=subprocess.DEVNULL)
    os.kill(child.pid, signal.SIGTERM)
    with pytest.raises(StopIteration):
        next(guard)


def test_a_free_port_can_be_listened_on(free_port):
    with socket.create_server(("127.0.0.1", free_port)) as server:
        assert server.getsockname()[1] == free_port
