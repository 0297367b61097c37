"""What is common to all shardings: which there are, and what a configuration may ask of them."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from bench.config import Run, Train, run_from_json
from bench.errors import BadInput
from bench.train.sharding import SHARDINGS, matrices, repeated_blocks, shard


def test_every_sharding_that_the_configuration_knows_exists_and_no_other() -> None:
    assert {Train(sharding=name).sharding for name in SHARDINGS} == set(SHARDINGS)
    with pytest.raises(BadInput, match=r"train\.sharding: unknown sharding 'fsdp3'; did you mean") as caught:
        Train(sharding="fsdp3")
    assert all(name in str(caught.value) for name in ("fsdp2", "fsdp1_local"))


@pytest.mark.parametrize(
    ("sharding", "reason"),
    [("fsdp1_local", "saves LOCAL_STATE_DICT but cannot load it"), ("fsdp2", "is an option of FSDP1")],
)
def test_original_parameters_are_refused_where_they_cannot_be_had(sharding: str, reason: str) -> None:
    with pytest.raises(BadInput, match=rf"^train\.use_orig_params: {reason}.*use train\.sharding=fsdp1_sharded$"):
        Train(sharding=sharding, use_orig_params=True)
    assert Train(sharding="fsdp1_sharded", use_orig_params=True).use_orig_params


@pytest.mark.parametrize("sharding", ["fsdp1_local", "fsdp1_sharded"])
def test_one_rank_is_refused_where_it_would_not_shard(sharding: str) -> None:
    with pytest.raises(BadInput, match=rf"^train\.sharding: {sharding} needs 2 ranks or more.*sharding=fsdp2$"):
        Run(train=Train(sharding=sharding), ranks_per_node=1)
    assert Run(train=Train(sharding=sharding), num_nodes=2, ranks_per_node=1).world_size == 2
    assert Run(train=Train(), ranks_per_node=1).world_size == 1


def first_row(rank: int) -> int:
    """Of what a process that has just been given this rank of two holds of a matrix of 4 rows, as DCP finds it."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    try:
        with torch.device("meta"):
            model = nn.Linear(2, 4)
        held = shard(model, Run(), torch.device("cpu")).module.to_empty(device="cpu").weight
        (chunk,) = held.__create_chunk_list__()
        return int(chunk.offsets[0])
    finally:
        dist.destroy_process_group()


def test_a_process_that_restarts_in_place_with_another_rank_holds_that_ranks_share() -> None:
    assert [first_row(rank) for rank in (1, 0, 1)] == [2, 0, 2]


def test_a_sharding_survives_the_way_to_the_ranks() -> None:
    config = Run(train=Train(sharding="fsdp1_sharded", use_orig_params=True))
    assert run_from_json(asdict(config)) == config


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 2)
        self.body = nn.Sequential(nn.Linear(2, 2), nn.Module())
        self.body[1].layers = nn.ModuleList([nn.Sequential(nn.ModuleList([nn.Linear(2, 2)])), nn.LayerNorm(2)])


def test_the_blocks_are_the_entries_of_the_outermost_lists() -> None:
    model = Nested()
    assert list(repeated_blocks(model)) == list(model.body[1].layers)


def test_matrices_decay_and_norms_and_biases_do_not() -> None:
    with torch.device("meta"):
        model = Nested()
    assert matrices(model) == {"embed.weight", "body.0.weight", "body.1.layers.0.0.0.weight"}
