"""FSDP1: the same training as FSDP2, and checkpoints in torch's own two forms. Exact resumes: test_state.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Ranks = Callable[..., list[dict[str, Any]]]
FSDP1 = ["fsdp1_local", "fsdp1_sharded", "by parameter"]


@pytest.fixture(scope="module")
def compared(ranks: Ranks) -> list[dict[str, Any]]:
    return ranks(2, "compared")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("sharding", FSDP1)
def test_losses_agree_with_those_of_fsdp2(compared: list[dict[str, Any]], sharding: str) -> None:
    for rank in compared:
        assert rank[sharding]["losses"] == pytest.approx(rank["fsdp2"]["losses"], rel=1e-5)
        assert rank["fsdp2"]["losses"][-1] < rank["fsdp2"]["losses"][0]


@pytest.mark.parametrize("sharding", ["fsdp1_sharded", "by parameter"])
def test_training_starts_from_the_same_weights_bit_by_bit(compared: list[dict[str, Any]], sharding: str) -> None:
    for rank in compared:
        expected, found = rank["fsdp2"]["whole"], rank[sharding]["whole"]
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_flat_parameters_are_those_of_their_unit_one_after_the_other(compared: list[dict[str, Any]]) -> None:
    for rank in compared:
        named, flat = rank["fsdp2"]["whole"], rank["fsdp1_local"]["whole"]
        blocks = [f"blocks.{number}." for number in range(2)]
        root = [name for name in named if not name.startswith(tuple(blocks))]
        units = {"_flat_param": root} | {f"{b}_flat_param": [n for n in named if n.startswith(b)] for b in blocks}
        assert flat.keys() == units.keys()
        for name, members in units.items():
            assert torch.equal(flat[name], torch.cat([named[member].flatten() for member in members]))


@pytest.mark.timeout(600)
def test_the_local_form_is_torchs_without_a_copy_a_padding_or_a_warning(ranks: Ranks) -> None:
    found = ranks(3, "local_form", model="narrow")  # whose flat parameters do not divide by three
    for rank in found:
        assert len(rank["same"]) == 3
        assert all(rank["same"].values()), rank["same"]
        assert rank["deprecations"] == []
        mine, theirs = rank["clip"]
        for grad, expected in zip(mine, theirs, strict=True):
            torch.testing.assert_close(grad, expected)
    assert sum(rank["held"] for rank in found) == found[0]["predicted"]
