from __future__ import annotations

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from bench.checkpoint import cuts
from bench.checkpoint.base import CheckpointError
from bench.checkpoint.sync_full import SyncFull
from bench.checkpoint.trees import localize, tree_digest
from bench.checkpoint.verify import verify


@pytest.fixture
def tree(alone):
    mesh = init_device_mesh("cpu", (1,))
    return {
        "model": {"w": DTensor.from_local(torch.arange(6.0), mesh, [Shard(0)])},
        "rng": {"rank_0": {"torch": torch.arange(3)}},
        "step": 4,
    }


def test_one_file_holds_the_whole_state_and_says_how_it_was_spread(context, tree):
    strategy = SyncFull(context)
    strategy.save(4, tree, 0)
    (file,) = strategy.files(4)
    saved = torch.load(file, weights_only=True)
    assert cuts.Layout.from_json(saved[cuts.KEY]).cuts == {"model.w": 0}
    assert torch.equal(saved["model"]["w"], torch.arange(6.0))


def test_it_is_loaded_as_the_rank_s_part(context, tree):
    strategy = SyncFull(context)
    strategy.save(4, tree, 0)
    assert tree_digest(strategy.load(4, {})) == tree_digest(localize(tree))
    assert verify(context.directory, 4)["digests"] == {"0": tree_digest(tree)}


def test_a_rolled_back_step_is_written_anew(context, tree):
    strategy = SyncFull(context)
    for step in (4, 5):
        strategy.save(4, tree | {"step": step}, 0)
    assert strategy.load(4, {})["step"] == 5


def test_what_is_not_there_is_an_error(context):
    with pytest.raises(CheckpointError, match="holds no complete checkpoint"):
        SyncFull(context).load(4, {})
