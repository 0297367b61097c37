from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from bench.checkpoint.trees import compact, flatten, localize, tensor_bytes, tree_digest


@pytest.fixture
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def example():
    return {"model": {"a.b": torch.arange(6.0).reshape(2, 3)}, "list": [1, (torch.tensor(2), "x")], "none": {}}


def test_flatten_names_every_leaf_by_its_keys_and_indices():
    paths = [path for path, _ in flatten(example())]
    assert paths == [("model", "a.b"), ("list", 0), ("list", 1, 0), ("list", 1, 1), ("none",)]


def test_localize_gives_plain_tensors_that_share_the_live_memory(mesh):
    sharded = distribute_tensor(torch.zeros(4, 2, requires_grad=True), mesh, [Shard(0)])
    local = localize({"p": [sharded]})["p"][0]
    assert type(local) is torch.Tensor
    assert not local.requires_grad
    assert local.data_ptr() == sharded.to_local().data_ptr()


def test_a_digest_sees_the_local_part_of_a_distributed_tensor(mesh):
    values = torch.randn(4, 2)
    assert tree_digest({"p": distribute_tensor(values, mesh, [Shard(0)])}) == tree_digest({"p": values})


@pytest.mark.parametrize(
    "other",
    [
        {"p": torch.tensor([1.0, 2.0, 3.5])},  # one byte
        {"p": torch.tensor([[1.0, 2.0, 3.0]])},  # shape
        {"p": torch.tensor([1.0, 2.0, 3.0]).view(torch.int32)},  # dtype, same bytes
        {"q": torch.tensor([1.0, 2.0, 3.0])},  # path
        {"p": torch.tensor([1.0, 2.0, 3.0]), "empty": {}},  # an empty container more
        {"p": [1.0, 2.0, 3.0]},  # no tensor
    ],
)
def test_a_digest_changes_with_anything_that_a_resume_would_notice(other):
    assert tree_digest(other) != tree_digest({"p": torch.tensor([1.0, 2.0, 3.0])})


def test_a_digest_depends_on_neither_the_order_of_keys_nor_strides():
    a, b = torch.randn(3, 4), torch.randn(2).bfloat16()
    strided = torch.empty(4, 3).t().copy_(a)
    assert tree_digest({"a": a, "b": b}) == tree_digest({"b": b, "a": strided})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.int64, torch.complex64])
def test_every_dtype_has_bytes(dtype):
    tensor = torch.ones(3, dtype=dtype)
    assert len(tensor_bytes(tensor)) == 3 * dtype.itemsize
    assert tree_digest(tensor) != tree_digest(torch.zeros(3, dtype=dtype))


def test_tensors_without_elements_or_dimensions_have_a_digest():
    assert tree_digest({"a": torch.empty(0)}) != tree_digest({"a": torch.empty(0, 3)})
    assert tree_digest({"a": torch.tensor(1.5)}) != tree_digest({"a": torch.tensor(1.25)})


def test_compact_copies_only_what_is_a_part_of_its_storage():
    whole, padded = torch.zeros(8), torch.zeros(8)[:5]
    made = compact({"whole": whole, "padded": padded})
    assert made["whole"].data_ptr() == whole.data_ptr()
    assert made["padded"].untyped_storage().nbytes() == padded.nbytes
    assert torch.equal(made["padded"], padded)
