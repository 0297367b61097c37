"""Memory of a launch, sampled from outside: peaks of what its processes hold privately, and of shared memory."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from bench.checkpoint import throttled
from bench.node import memory
from bench.node.memory import MemoryWatch, anonymous_bytes
from tests.telemetry.fake_nvml import PartOfANode

HOLDER = "import sys; held = b'x' * int(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
MB = 1_000_000


@pytest.fixture
def holder():
    """A process with so many bytes of its own; it ends when its input does."""
    started = []

    def hold(size: int) -> int:
        command = [sys.executable, "-c", HOLDER, str(size)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(child)
        assert child.stdout.readline() == b"ready\n"
        return child.pid

    yield hold
    for child in started:
        child.communicate()


@pytest.fixture
def sampled(monkeypatch):
    """A machine whose memory is what the test says, at the time that the test says."""
    now = SimpleNamespace(s=100.0, host=0, shm=50, device=None, searches=0)

    def search(root: int) -> list[int]:
        now.searches += 1
        return [1]

    monkeypatch.setattr(memory.time, "monotonic", lambda: now.s)
    monkeypatch.setattr(memory, "anonymous_bytes", lambda pids: now.host)
    monkeypatch.setattr(memory, "shm_used_bytes", lambda: now.shm)
    monkeypatch.setattr(memory, "device_used_bytes", lambda: now.device)
    monkeypatch.setattr(memory, "descendants", search)
    return now


def look(watch: MemoryWatch, now: SimpleNamespace, **values) -> None:
    now.s += memory.LOOK_S
    vars(now).update(values)
    watch.look()


def test_private_memory_is_that_of_each_process_and_they_add_up(holder):
    small, large = holder(1 * MB), holder(101 * MB)
    difference = anonymous_bytes([large]) - anonymous_bytes([small])
    assert difference == pytest.approx(100 * MB, rel=0.05)
    assert anonymous_bytes([small, large]) == pytest.approx(
        anonymous_bytes([small]) + anonymous_bytes([large]), rel=0.01
    )


def test_a_process_that_has_ended_counts_nothing():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert anonymous_bytes([child.pid]) == 0
    assert anonymous_bytes([os.getpid()]) > 0


def test_a_peak_is_the_highest_of_the_looks_and_starts_anew_when_taken(sampled):
    watch = MemoryWatch(with_gpus=False)
    for host in (10, 30, 20):
        look(watch, sampled, host=host)
    assert watch.take()["host_bytes"] == 30
    look(watch, sampled, host=15)
    assert watch.take()["host_bytes"] == 15


def test_shared_memory_counts_above_what_was_in_use_before(sampled):
    watch = MemoryWatch(with_gpus=False)
    look(watch, sampled, shm=75)
    assert watch.take()["shm_bytes"] == 25


def test_the_image_of_a_store_that_stands_in_shared_memory_is_none_of_the_launch(tmp_path, monkeypatch):
    monkeypatch.setattr(throttled, "BACKING", tmp_path)
    monkeypatch.setattr(memory.shutil, "disk_usage", lambda path: SimpleNamespace(used=5 * MB))
    assert memory.shm_used_bytes() == 5 * MB
    with open(tmp_path / "bench-store-1.img", "wb") as image:
        image.truncate(100 * MB)  # its capacity takes nothing
        image.write(b"x" * (1 << 20))
        image.flush()
        os.fsync(image.fileno())
        assert memory.shm_used_bytes() == 5 * MB - os.fstat(image.fileno()).st_blocks * 512 < 5 * MB


def test_without_shared_memory_nothing_is_claimed_about_it(sampled):
    sampled.shm = None
    watch = MemoryWatch(with_gpus=False)
    look(watch, sampled)
    assert "shm_bytes" not in watch.take()


def test_of_several_gpus_the_fullest_counts_and_none_is_asked_without_gpus(sampled):
    with_gpus, without = MemoryWatch(with_gpus=True), MemoryWatch(with_gpus=False)
    for watch in (with_gpus, without):
        look(watch, sampled, device=[5, 9, 7])
    assert with_gpus.take()["device_bytes"] == 9
    assert "device_bytes" not in without.take()


def test_looking_too_often_costs_nothing_and_processes_are_searched_for_now_and_then(sampled):
    watch = MemoryWatch(with_gpus=False)
    look(watch, sampled, host=10)
    sampled.host = 99
    watch.look()
    assert watch.take()["host_bytes"] == 10
    for _ in range(int(memory.SEARCH_S / memory.LOOK_S)):
        look(watch, sampled)
    assert sampled.searches == 2


def test_used_device_memory_is_that_of_the_gpus_that_cuda_shows_and_that_tell_it(monkeypatch):
    @contextmanager
    def there():
        yield PartOfANode()

    monkeypatch.setattr(memory, "nvml", there)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert memory.device_used_bytes() == [7 << 30] * 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert memory.device_used_bytes() == [7 << 30]
