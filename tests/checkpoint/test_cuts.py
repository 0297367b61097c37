from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from bench.checkpoint import cuts
from bench.checkpoint.base import CheckpointError
from bench.checkpoint.trees import tree_digest

LAYOUT = cuts.Layout(3, {"model.w": 0}, [])


def test_the_layout_of_a_live_tree_names_cut_tensors_and_empty_dicts(alone):
    mesh = init_device_mesh("cpu", (1,))
    tree = {
        "model": {"a.b": DTensor.from_local(torch.ones(4), mesh, [Shard(0)]), "buffer": torch.ones(2)},
        "same": DTensor.from_local(torch.ones(4), mesh, [Replicate()]),
        "nothing": {"here": {}},
    }
    layout = cuts.layout_of(tree, 1)
    assert layout == cuts.Layout(1, {"model.a.b": 0}, [["nothing", "here"]])
    assert cuts.Layout.from_json(layout.to_json()) == layout


def test_a_tensor_that_is_no_plain_cut_is_refused_by_name(alone):
    tree = {"model": {"w": DTensor.from_local(torch.ones(4), init_device_mesh("cpu", (1,)), [Partial()])}}
    with pytest.raises(CheckpointError, match=r"model\.w is spread as"):
        cuts.layout_of(tree, 1)


@given(rows=st.integers(0, 20), world_size=st.integers(1, 8))
def test_the_parts_of_all_ranks_make_up_the_whole(rows, world_size):
    whole = torch.arange(rows * 2).reshape(rows, 2)
    parts = [cuts.part(whole, "model.w", LAYOUT, rank, world_size) for rank in range(world_size)]
    assert torch.equal(torch.cat(parts), whole)
    chunks = torch.chunk(whole, world_size)
    assert [len(part) for part in parts] == [len(chunk) for chunk in chunks] + [0] * (world_size - len(chunks))
    assert all(part.shape[1:] == whole.shape[1:] for part in parts), "also those that are empty"


def test_what_is_not_cut_every_rank_has_whole():
    whole = torch.arange(7)
    assert cuts.part(whole, "model.buffer", LAYOUT, 2, 3) is whole
    assert cuts.part("text", "model.w", LAYOUT, 2, 3) == "text"


@pytest.mark.parametrize(
    ("path", "owner"),
    [(("rng", "rank_3", "torch"), 3), (("rng", "x"), None), (("rank_x",), None), ((0, "rank_12"), 12)],
)
def test_entries_under_a_rank_s_name_are_its_own(path, owner):
    assert cuts.owner(path) == owner


def test_a_rank_s_part_of_a_whole_tree_has_its_own_entries_and_memory():
    whole = {
        "model": {"w": torch.arange(7)},
        "rng": {"rank_0": {"s": 1}, "rank_1": {"s": 2}},
        cuts.KEY: LAYOUT.to_json(),
    }
    mine = cuts.own_part(whole, 1, 3)
    assert tree_digest(mine) == tree_digest({"model": {"w": torch.arange(3, 6)}, "rng": {"rank_1": {"s": 2}}})
    assert mine["model"]["w"].untyped_storage().nbytes() == 24
    assert cuts.own_part(whole, 2, 3)["rng"] == {}, "a rank that did not exist then has none"
