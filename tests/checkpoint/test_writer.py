from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
import torch

from bench.checkpoint import staging, writer
from bench.checkpoint.sharded import read_shard
from bench.checkpoint.storage import Target
from bench.checkpoint.trees import tree_digest


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job as a trainer gives it; the function runs in this process, which must not be tied to its parent's life."""
    monkeypatch.setattr(writer, "die_with", lambda pid: None)
    writer.recorder_of.cache_clear()
    (tmp_path / "events").mkdir()
    (tmp_path / "checkpoints").mkdir()
    meta = {"role": "worker", "launch": 3, "node": 0, "local_rank": 1, "rank": 1, "world_size": 2}
    target = Target("nvrx_async", 5, 12, tmp_path / "checkpoints", 1, 2, "this", fsync=True, keep=2)
    yield writer.Job(target, str(tmp_path / "events"), json.dumps(meta), os.getpid())
    writer.recorder_of.cache_clear()


def events(job):
    (path,) = os.scandir(job.events_dir)
    with open(path) as file:
        return [json.loads(line) for line in file]


def test_the_writer_writes_the_shard_and_stamps_its_durability_into_a_file_of_its_own(job):
    tree = {"p": torch.randn(50), "step": 12}
    staged = staging.Stage("cpu").fill(staging.lay_out(tree))
    writer.write_staged(job, staged)
    assert tree_digest(read_shard(job.target.final)) == tree_digest(tree)
    meta, durable = events(job)
    assert (meta["role"], meta["launch"], meta["rank"], meta["pid"]) == ("writer", 3, 1, os.getpid())
    assert (durable["name"], durable["save"], durable["step"]) == ("durable", 5, 12)
    assert durable["bytes"] == job.target.final.stat().st_size
    assert staging.read_status(staged.block) == (staging.DONE, "")


def test_later_saves_go_on_in_the_same_event_file(job):
    for _ in range(3):
        writer.write_staged(job, staging.Stage("cpu").fill(staging.lay_out({"p": torch.ones(3)})))
    assert [event["seq"] for event in events(job)] == [0, 1, 2, 3]


def test_a_failure_reaches_the_trainer_with_its_reason_and_leaves_no_file(job, monkeypatch):
    def full(tree, file):
        file.write(b"x" * 100)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "dump_tree", full)
    staged = staging.Stage("cpu").fill(staging.lay_out({"p": torch.ones(3)}))
    writer.write_staged(job, staged)
    state, reason = staging.read_status(staged.block)
    assert state == staging.FAILED
    assert "No space left on device" in reason
    assert [event.get("name") for event in events(job)] == [None, "failed"]
    assert list(job.target.final.parent.iterdir()) == []


PARENT = """
import os, signal, sys
from bench.checkpoint.writer import die_with
trainer = os.getpid()
if os.fork() == 0:
    die_with(trainer)
    print(os.getpid(), flush=True)
    signal.pause()
signal.pause()
"""


def test_a_writer_dies_with_a_trainer_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        orphan = psutil.Process(int(trainer.stdout.readline()))
        trainer.kill()
        assert trainer.wait() == -signal.SIGKILL
        _, alive = psutil.wait_procs([orphan], timeout=5)
        assert alive == []
        assert trainer.stdout.read() == ""  # nobody holds the output open


def test_a_writer_whose_trainer_is_already_gone_does_not_start_to_live():
    code = "import os; from bench.checkpoint.writer import die_with; die_with(os.getppid() + 1)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 1
