from __future__ import annotations

import json
import resource

import pytest
import torch

from bench.checkpoint.base import CheckpointError, Context
from bench.checkpoint.sync_local import SyncLocal
from bench.checkpoint.trees import tree_digest
from bench.record import Recorder


@pytest.fixture
def strategy(tmp_path):
    recorder = Recorder(tmp_path, role="worker", node=0, local_rank=0)
    yield SyncLocal(Context(tmp_path / "checkpoints", 0, 1, 0, 0, "cpu", "this", recorder, tmp_path, {}))
    recorder.close()


@pytest.fixture
def no_file_above_100_kb():
    """The kernel refuses to let any file grow further, in the middle of a write, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_fails_the_save_and_leaves_the_older_checkpoint_usable(strategy, no_file_above_100_kb):
    small = {"p": torch.arange(10)}
    strategy.save(1, small, 0)
    with pytest.raises(CheckpointError, match="sync_local: save 1 at step 2 failed"):
        strategy.save(2, {"p": torch.randn(1_000_000)}, 1)
    assert strategy.newest() == 1
    assert tree_digest(strategy.load(1, small)) == tree_digest(small)
    assert list((strategy.context.directory / "step-00000002").iterdir()) == []
    events = [json.loads(line) for line in strategy.context.recorder.path.read_text().splitlines()]
    assert [event.get("name") for event in events] == [None, "durable", "failed"]


def test_a_padded_shard_is_written_without_its_padding(strategy):
    padded = torch.zeros(1_000_000)[:10]
    strategy.save(1, {"p": padded}, 0)
    (shard,) = strategy.context.directory.rglob("*.pt")
    assert shard.stat().st_size < 10_000


def test_a_restarted_rank_saves_a_step_again_and_the_new_content_counts(strategy):
    for value in (1.0, 2.0):
        strategy.save(5, {"p": torch.full((3,), value)}, 0)
    assert torch.equal(strategy.load(5, {})["p"], torch.full((3,), 2.0))
