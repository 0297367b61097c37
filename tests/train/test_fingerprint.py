"""The checksum that says whether two worlds of different size hold the same state."""

from __future__ import annotations

import pytest
import torch

from bench.train import fingerprint
from bench.train.fingerprint import MASK_64, state_sum


@pytest.fixture(scope="module")
def totals(ranks):
    """By model and number of ranks: the job's sum before and after one element was changed."""
    models, found = ["own", "narrow"], {}
    for world_size in (1, 2, 3):
        parts = ranks(world_size, "sums", models=models)
        for model in models:
            both = (sum(part[model][when] for part in parts) & MASK_64 for when in ("before", "changed"))
            found[model, world_size] = list(both)
    return found


@pytest.mark.parametrize("model", ["own", "narrow"])
def test_the_sum_is_the_same_however_many_ranks_share_the_state(totals, model):
    assert len({totals[model, world_size][0] for world_size in (1, 2, 3)}) == 1


def test_one_changed_element_changes_it_by_the_same_amount_everywhere(totals):
    changes = {(totals["own", n][1] - totals["own", n][0]) & MASK_64 for n in (1, 2, 3)}
    assert len(changes) == 1
    assert changes != {0}


def plain(**tensors: torch.Tensor) -> dict[str, object]:
    return {"schedule": tensors, "step": 3}


def test_swapped_elements_and_swapped_names_do_not_cancel_out():
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    sums = {state_sum(plain(x=a, y=b), 0), state_sum(plain(x=b, y=a), 0), state_sum(plain(x=a, y=a), 0)}
    assert len(sums) == 3


def test_what_is_whole_everywhere_counts_once_and_a_ranks_own_part_on_every_rank():
    assert state_sum(plain(x=torch.ones(2)), 1) == 0
    local = {"model": {"flat": torch.ones(2)}}
    assert 0 != state_sum(local, 0) != state_sum(local, 1) != 0


def test_random_states_are_left_out():
    assert state_sum({"step": 3, "rng": {"rank_0": {"torch_cpu": torch.ones(5)}}}, 0) == state_sum({"step": 3}, 0)


def test_tensors_longer_than_a_chunk_have_the_same_sum_as_in_one_piece(monkeypatch):
    tree = plain(x=torch.arange(1000, dtype=torch.float32))
    whole = state_sum(tree, 0)
    monkeypatch.setattr(fingerprint, "CHUNK", 64)
    assert state_sum(tree, 0) == whole


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool])
def test_every_dtype_counts_to_its_last_bit(dtype):
    x = torch.tensor([0, 1, 1, 0]).to(dtype)
    y = x.clone()
    y[3] = 1
    assert state_sum(plain(x=x), 0) != state_sum(plain(x=y), 0)
