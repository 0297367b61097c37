"""A state with the shapes of a checkpoint: cut over the ranks without a byte too many, counted, and restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.config import Run, Train
from bench.errors import BadInput
from bench.train.base import StateMismatch
from bench.train.shaped import HeldState, dtype_of
from bench.train.shapes import Shape
from bench.train.state import build_state

Ranks = Callable[..., list[dict[str, Any]]]
CONTENT = {
    "matrix": torch.zeros(7, 3),  # 3, 3 and 1 rows on three ranks
    "short": torch.zeros(1, 5, dtype=torch.bfloat16),  # two ranks hold nothing of it
    "eighth": torch.zeros(9).to(torch.float8_e4m3fn),
    "flags": torch.zeros(6, dtype=torch.bool),
    "waves": torch.zeros(3, 2, dtype=torch.complex64),
    "rng": torch.zeros(5, dtype=torch.uint8),
    "ids": torch.zeros(4, dtype=torch.int64),
    "none": torch.zeros(0, 4),
    "step": torch.zeros(()),
}


def held(path: Path) -> HeldState:
    config = Run(state=f"shapes_of:{path}", train=Train(compute="paced", step_s=0.1), ranks_per_node=1)
    state = build_state(config, torch.device("cpu"))
    assert isinstance(state, HeldState)
    return state


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.save(CONTENT, tmp_path / "checkpoint.pt")
    return tmp_path / "checkpoint.pt"


@pytest.mark.timeout(600)
def test_three_ranks_hold_each_tensor_once_restore_it_and_change_it_with_every_step(
    ranks: Ranks, checkpoint: Path
) -> None:
    found = ranks(3, "held", path=str(checkpoint))
    for name, original in CONTENT.items():
        parts = [rank["local"][name] for rank in found]
        if original.ndim == 0:
            assert all(torch.equal(part, parts[0]) for part in parts)
            continue
        assert [part.shape[0] for part in parts] == sizes(original.shape[0])
        assert {part.dtype for part in parts} == {original.dtype}
        assert {rank["shapes"][name] for rank in found} == {tuple(original.shape)}
        if name == "matrix":
            assert not torch.equal(parts[0], parts[1])
    for rank in found:
        start, after, restored = rank["digests"]
        assert start != after == restored
        assert rank["counted"] == (2, 16)
        assert rank["differing"]


def sizes(rows: int) -> list[int]:
    chunks = [len(chunk) for chunk in torch.arange(rows).chunk(3)] if rows else []
    return chunks + [0] * (3 - len(chunks))


@pytest.mark.usefixtures("group_of_one")
class TestOneRank:
    def test_every_tensor_that_can_change_does_so_in_a_step_and_stays_a_value(self, checkpoint: Path) -> None:
        state = held(checkpoint)
        before = {name: bytes_of(tensor) for name, tensor in state.tree()["state"].items()}
        state.skip_step(2)
        after = {name: bytes_of(tensor) for name, tensor in state.tree()["state"].items()}
        assert {name for name in CONTENT if before[name] == after[name]} == {"flags", "none"}
        assert not state.tree()["state"]["matrix"].to_local().isnan().any()

    def test_values_are_random_and_fixed_by_the_seed(self, checkpoint: Path) -> None:
        one, same = (held(checkpoint).tree()["state"] for _ in range(2))
        assert all(bytes_of(one[name]) == bytes_of(same[name]) for name in CONTENT)
        matrix = one["matrix"].to_local()
        assert len(matrix.unique()) == matrix.numel()

    def test_a_tree_that_does_not_fit_is_refused_and_changes_nothing(self, checkpoint: Path) -> None:
        state = held(checkpoint)
        before = {name: bytes_of(tensor) for name, tensor in state.tree()["state"].items()}
        zeros = {name: torch.zeros_like(tensor) for name, tensor in CONTENT.items()}
        for tree, complaint in (
            ({"state": zeros, "step": 1}, "position"),
            ({"state": zeros | {"step": torch.zeros(1)}, "step": 1, "position": 1}, "step"),
            ({"state": {}, "step": 1, "position": 1}, "names differ"),
        ):
            with pytest.raises(StateMismatch, match=complaint):
                state.restore(tree)
        assert {name: bytes_of(tensor) for name, tensor in state.tree()["state"].items()} == before
        assert state.step == 0

    def test_it_cannot_be_trained(self, checkpoint: Path) -> None:
        tokens = torch.zeros(1, 2, dtype=torch.int64)
        with pytest.raises(RuntimeError, match=r"train\.compute=paced"):
            held(checkpoint).train_step(tokens, tokens)


def bytes_of(tensor: Any) -> bytes:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return bytes(local.reshape(-1).view(torch.uint8).tolist())


def test_a_dtype_that_this_torch_lacks_is_bad_input() -> None:
    with pytest.raises(BadInput, match="has no dtype float99; use a newer one"):
        dtype_of(Shape("float99", (1,)))
