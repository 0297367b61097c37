from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from bench.checkpoint import nvrx
from bench.checkpoint.base import CheckpointError


# --- versions
class Old:
    def __init__(self, persistent=True):
        self.given = {"persistent": persistent}


class HidesItsSignature(type):
    def __call__(cls, *args, **kwargs):
        return super().__call__(*args, **kwargs)


class New(metaclass=HidesItsSignature):
    def __init__(self, persistent=True, is_daemon=True, cpu_shm_mode=False):
        self.given = {"persistent": persistent, "cpu_shm_mode": cpu_shm_mode}


@pytest.mark.parametrize(
    ("version", "given"), [(Old, {"persistent": True}), (New, {"persistent": True, "cpu_shm_mode": True})]
)
def test_each_version_of_the_queue_is_given_the_arguments_that_it_knows(monkeypatch, version, given):
    monkeypatch.setattr(nvrx, "import_module", lambda name: SimpleNamespace(AsyncCallsQueue=version))
    assert nvrx.make_queue().given == given


def test_the_installed_version_is_named_and_the_shim_is_told():
    plain, shim = nvrx.version("cpu"), nvrx.version("cpu", shim=True)
    assert plain
    assert plain[0].isdigit()
    assert shim == f"{plain} (cpu-shim)"
    assert nvrx.version("cuda", shim=True) == plain


@pytest.mark.skipif(torch.cuda.is_available(), reason="where there is CUDA nothing is replaced")
def test_the_shim_stands_in_for_cuda_only_while_it_is_needed():
    original = torch.cuda.synchronize
    with nvrx.cuda_shim("cpu"):
        torch.cuda.synchronize()
    assert torch.cuda.synchronize is original
    with nvrx.cuda_shim("cuda"):
        assert torch.cuda.synchronize is original


# --- the watch
class Process:
    """A writer process that reacts to the signals named in `obeys`. Its sentinel is a pipe, as in multiprocessing."""

    pid = 4711

    def __init__(self, obeys=("ask", "terminate", "kill")):
        self.sentinel, self._alive_end = os.pipe()
        self.exitcode = None
        self.obeys, self.heard = obeys, []

    def end(self, code):
        if self.exitcode is None:
            self.exitcode = code
            os.close(self._alive_end)

    def hear(self, what, code):
        self.heard.append(what)
        if what in self.obeys:
            self.end(code)

    def terminate(self):
        self.hear("terminate", -signal.SIGTERM)

    def kill(self):
        self.hear("kill", -signal.SIGKILL)

    def join(self, timeout):
        self.heard.append(f"join {timeout}")

    def close(self):
        if self.exitcode is None:
            raise ValueError("still running")


class Queue:
    """The library's queue, as far as the watch touches it."""

    def __init__(self, process):
        self.async_calls = []
        pipe = SimpleNamespace(put=lambda item: process.hear("ask", 0), cancel_join_thread=list, close=list)
        self.persistent_caller = SimpleNamespace(process=process, queue=pipe, preload_q=pipe, comp_q=pipe)
        self.answers = queue.SimpleQueue()

    def maybe_finalize_async_calls(self, blocking, no_dist):
        assert (blocking, no_dist) == (False, True), "the other forms may wait for ever"
        if not self.answers.empty():
            self.answers.get()
            self.async_calls.clear()


@pytest.fixture
def now(monkeypatch):
    clock = SimpleNamespace(t=100.0)
    monkeypatch.setattr(nvrx, "clock", lambda: clock.t)
    return clock


def handed_over(process, deadline_s=10.0):
    library = Queue(process)
    watch = nvrx.WriterWatch(library, deadline_s)
    with watch.handing_over():
        library.async_calls.append("request")
    return library, watch


def test_a_write_is_finished_when_the_writer_says_so(now):
    library, watch = handed_over(Process())
    assert watch.finished() is False
    library.answers.put(0)
    assert watch.finished() is True
    assert watch.finished() is True
    watch.end()


def test_a_dead_writer_is_noticed_at_once(now):
    process = Process()
    _, watch = handed_over(process)
    process.end(-signal.SIGKILL)
    with pytest.raises(CheckpointError, match=r"4711 is dead \(signal 9\)"):
        watch.finished()
    watch.end()


def test_a_writer_that_answered_before_it_died_has_finished(now):
    process = Process()
    library, watch = handed_over(process)
    library.answers.put(0)
    process.end(1)
    assert watch.finished() is True
    with pytest.raises(CheckpointError, match="exit code 1"):
        watch.check_alive()
    watch.end()


def test_a_writer_is_given_its_deadline_and_no_more(now):
    _, watch = handed_over(Process(), deadline_s=10.0)
    now.t += 10.0
    assert watch.finished() is False
    now.t += 0.1
    with pytest.raises(CheckpointError, match=r"did not finish within 10\.0 s"):
        watch.finished()
    watch.end()


@pytest.mark.parametrize(
    ("in_flight", "obeys", "heard"),
    [
        (False, ("ask", "terminate", "kill"), ["ask"]),
        (False, ("terminate", "kill"), ["ask", "terminate"]),
        (True, ("ask", "terminate", "kill"), ["terminate"]),  # its work is not waited for
        (True, ("kill",), ["terminate", "kill"]),
        (True, (), ["terminate", "kill"]),  # unkillable: given up, not waited for
    ],
)
def test_a_writer_is_asked_if_it_is_idle_then_terminated_then_killed(now, in_flight, obeys, heard):
    process = Process(obeys)
    library, watch = handed_over(process)
    if not in_flight:
        library.answers.put(0)
        assert watch.finished()
    watch.end()
    watch.end()
    assert [what for what in process.heard if not what.startswith("join")] == heard
    assert all(float(what.split()[1]) <= 5 for what in process.heard if what.startswith("join"))


def test_the_library_is_left_with_nothing_that_its_own_close_would_wait_for(now):
    process = Process()
    library, watch = handed_over(process)
    caller = library.persistent_caller
    watch.end()
    assert library.async_calls == []
    assert library.persistent_caller is None
    assert caller.process is None


# --- the wait for a preload
def handed_to_preload(monkeypatch, process, deadline_s):
    """A library's queue whose writer has been given something to preload and has not taken it."""
    library = Queue(process)
    library.persistent_caller.preload_q = pending = multiprocessing.get_context("spawn").JoinableQueue()
    library._get_async_caller = lambda: library.persistent_caller
    pending.put(0)
    watch = nvrx.WriterWatch(library, deadline_s)
    watch.bound_preload()
    return watch, pending


def test_a_writer_that_dies_before_it_has_taken_the_data_does_not_hold_the_trainer(monkeypatch):
    process = Process()
    watch, pending = handed_to_preload(monkeypatch, process, 60.0)
    process.end(-signal.SIGKILL)
    with pytest.raises(CheckpointError, match=r"4711 is dead \(signal 9\)"):
        pending.join()
    watch.end()


def test_a_writer_that_does_not_take_the_data_is_given_the_deadline(monkeypatch):
    watch, pending = handed_to_preload(monkeypatch, Process(), 0.0)
    with pytest.raises(CheckpointError, match=r"did not take the data over within 0\.0 s"):
        pending.join()
    watch.end()


def test_data_that_were_taken_are_not_waited_for(monkeypatch):
    watch, pending = handed_to_preload(monkeypatch, Process(), 60.0)
    pending.get()
    pending.task_done()
    assert pending.join() is None
    watch.end()


FORGETFUL = """
import os, sys, torch, tempfile
from pathlib import Path
import torch.distributed as dist
from bench.checkpoint import create
from bench.checkpoint.base import Context
from bench.record import Recorder

if __name__ == "__main__":
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    root = Path(sys.argv[1])
    meta = {"role": "worker", "node": 0, "local_rank": 0}
    recorder = Recorder(root, **meta)
    context = Context(root / "checkpoints", 0, 1, 0, 0, "cpu", "this", recorder, root, meta)
    strategy = create("nvrx_async", context)
    strategy.save(1, {"p": torch.ones(10)}, 0)
    strategy.drain()
    raise SystemExit(f"writer {strategy.writer_pid}")
"""


def test_a_trainer_that_fails_without_closing_still_ends_and_takes_its_writer_along(tmp_path):
    script = tmp_path / "forgetful.py"
    script.write_text(FORGETFUL)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    start = time.monotonic()
    command = [sys.executable, str(script), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert result.returncode == 1
    assert "writer " in result.stderr, result.stderr
    pid = int(result.stderr.rsplit("writer ", 1)[1].split()[0])
    assert not os.path.exists(f"/proc/{pid}")
    assert time.monotonic() - start < 50
