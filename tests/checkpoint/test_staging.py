from __future__ import annotations

import io

import pytest
import torch

from bench.checkpoint import staging
from bench.checkpoint.base import CheckpointError
from bench.checkpoint.staging import Stage, lay_out, rebuild
from bench.checkpoint.trees import compact, flatten, tree_digest


def example():
    weight = torch.randn(33, 7)
    return {
        "model": {"weight": weight, "tied": weight, "column": torch.randn(6, 5)[:, 2]},
        "half": torch.ones(3).bfloat16(),
        "odd": [torch.empty(0), torch.empty(0, 4), torch.tensor(2.5), torch.tensor([True, False])],
        "tuple": (torch.arange(9), "x"),
        "step": 7,
        "names": ["a", None, 0.5],
    }


def saved_bytes(tree) -> int:
    stream = io.BytesIO()
    torch.save(tree, stream)
    return len(stream.getvalue())


def test_a_staged_tree_comes_back_as_it_was_at_the_call():
    tree = example()
    digest = tree_digest(tree)
    staged = Stage("cpu").fill(lay_out(tree))
    for _, leaf in flatten(tree):
        if isinstance(leaf, torch.Tensor):
            leaf.zero_()
    tree["names"].append("later")
    assert tree_digest(rebuild(staged)) == digest


def test_the_writer_s_tensors_are_views_of_the_block_with_a_storage_of_their_own_size():
    staged = Stage("cpu").fill(lay_out(example()))
    start, end = staged.block.data_ptr(), staged.block.data_ptr() + staged.block.numel()
    tensors = [leaf for _, leaf in flatten(rebuild(staged)) if isinstance(leaf, torch.Tensor) and leaf.numel()]
    assert all(start <= tensor.data_ptr() < end for tensor in tensors)
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in tensors)


def test_the_file_is_as_large_as_the_one_that_a_synchronous_save_writes():
    tree = example()
    assert saved_bytes(rebuild(Stage("cpu").fill(lay_out(tree)))) == saved_bytes(compact(tree))


def test_tensors_that_are_the_same_memory_take_one_slot():
    layout = lay_out(example())
    tensors = [leaf for _, leaf in flatten(example()) if isinstance(leaf, torch.Tensor)]
    assert len(layout.slots) == len(tensors) - 1


def test_slots_are_aligned_and_do_not_overlap():
    slots = sorted(lay_out(example()).slots, key=lambda slot: slot.offset)
    assert all(slot.offset % staging.ALIGNMENT_BYTES == 0 for slot in slots)
    ends = [slot.offset + slot.numel * slot.dtype.itemsize for slot in slots]
    assert all(end <= following.offset for end, following in zip(ends, slots[1:], strict=False))
    assert slots[0].offset >= staging.STATUS_BYTES


def test_the_block_is_shared_memory_and_is_reused_by_later_saves():
    stage = Stage("cpu")
    first = stage.fill(lay_out(example())).block
    again = stage.fill(lay_out(example())).block
    assert first.is_shared()
    assert again.data_ptr() == first.data_ptr()


def test_a_tree_of_another_shape_is_staged_anew_and_a_larger_one_gets_a_larger_block():
    stage = Stage("cpu")
    stage.fill(lay_out({"a": torch.ones(10), "b": torch.zeros(10)}))
    for tree in ({"b": torch.arange(20)}, {"a": torch.randn(100_000)}):
        assert tree_digest(rebuild(stage.fill(lay_out(tree)))) == tree_digest(tree)


def test_memory_that_cannot_be_had_is_an_error_with_its_remedy(monkeypatch):
    def refuse(self):
        raise RuntimeError("unable to allocate shared memory")

    monkeypatch.setattr(torch.Tensor, "share_memory_", refuse)
    with pytest.raises(CheckpointError, match="enlarge /dev/shm"):
        Stage("cpu").fill(lay_out(example()))


def test_the_status_page_carries_a_reason_of_any_length_beside_the_data():
    tree = example()
    stage = Stage("cpu")
    staged = stage.fill(lay_out(tree))
    assert staging.read_status(staged.block) == (staging.PENDING, "")
    staging.write_status(staged.block, staging.FAILED, "Ö" * 5000)
    state, text = staging.read_status(staged.block)
    assert state == staging.FAILED
    assert text.startswith("ÖÖÖ")
    assert tree_digest(rebuild(staged)) == tree_digest(tree)
    stage.fill(lay_out(tree))
    assert staging.read_status(staged.block)[0] == staging.PENDING
