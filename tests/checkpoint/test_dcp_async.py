from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace
from threading import Event

import psutil
import pytest
import torch

from bench.checkpoint import dcp_async_thread
from bench.checkpoint.base import CheckpointError
from bench.checkpoint.dcp_async_process import Daemon
from bench.checkpoint.dcp_async_thread import DcpAsyncThread, StoppablePlanner


@pytest.fixture
def strategy(alone, context):
    made = DcpAsyncThread(context)
    yield made
    made.close()


def test_a_thread_that_does_not_finish_is_given_up_at_the_deadline(strategy, monkeypatch):
    monkeypatch.setattr(dcp_async_thread, "STOP_S", 0.0)
    strategy._future = Future()  # never done
    strategy._handed_over(strategy.target(3, 1))
    assert strategy.poll() is False
    strategy.context = replace(strategy.context, deadline_s=0.0)
    with pytest.raises(CheckpointError, match=r"save 1 at step 3 failed: the writer did not finish within 0\.0 s"):
        strategy.poll()
    assert strategy.poll() is True


def test_a_planner_that_is_told_to_stop_hands_out_no_further_tensor():
    stop = Event()
    planner = StoppablePlanner(stop)
    planner.set_up_planner({"p": torch.ones(3)}, None, True)
    (item,) = planner.create_local_plan().items
    assert torch.equal(planner.resolve_data(item), torch.ones(3))
    stop.set()
    with pytest.raises(CheckpointError, match="told to stop"):
        planner.resolve_data(item)


def test_closing_while_the_thread_writes_leaves_nothing_behind(strategy):
    strategy.save(3, {f"p{number}": torch.ones(1000) for number in range(200)}, 0)
    strategy.close()
    assert [path.name for path in strategy.context.directory.iterdir() if path.name.startswith(".")] == []


def test_without_a_process_there_is_nothing_to_end():
    Daemon.end(busy=False)
    assert Daemon.process() is None


TRAINER = """
import os, signal, subprocess, sys
code = "from bench.checkpoint.dcp_async_process import follow; follow({}); print('ready', flush=True); input()"
pipe = subprocess.PIPE
child = subprocess.Popen([sys.executable, "-c", code.format(os.getpid())], stdin=os.pipe()[0], stdout=pipe)
child.stdout.readline()
print(child.pid, flush=True)
signal.pause()
"""


def test_the_process_ends_with_a_trainer_that_is_killed():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", TRAINER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as trainer:
        assert trainer.stdout is not None
        orphan = psutil.Process(int(trainer.stdout.readline()))
        trainer.kill()
        assert trainer.wait() == -signal.SIGKILL
        _, alive = psutil.wait_procs([orphan], timeout=5)
        assert alive == []
