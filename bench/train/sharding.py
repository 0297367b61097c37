"""Sharding: parameters, gradients and optimizer state cut over all ranks with FSDP2 (`fully_shard`)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from bench.config import Train


def compute_dtype(train: Train, device: torch.device) -> torch.dtype:
    """The dtype of matrix products: as configured; auto is bfloat16 where parameters are or on CUDA, else float32."""
    if train.compute_dtype != "auto":
        return torch.bfloat16 if train.compute_dtype == "bfloat16" else torch.float32
    wants_bfloat16 = device.type == "cuda" or train.param_dtype == "bfloat16"
    return torch.bfloat16 if wants_bfloat16 else torch.float32


def shard(model: nn.Module, train: Train, device: torch.device) -> None:
    """Shard each repeated block and the root over all ranks, in place. Gradients are reduced in float32.

    On CUDA a block's whole parameters are freed after its forward and gathered again for its backward, because device
    memory is scarce. CPU ranks keep them in between: memory is not scarce there, and a gather is a tenth of a step.
    """
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=compute_dtype(train, device), reduce_dtype=torch.float32)
    for block in repeated_blocks(model):
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=device.type == "cuda")
    fully_shard(model, mesh=mesh, mp_policy=policy)


def repeated_blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The entries of the outermost nn.ModuleLists: what transformers keep their layers in."""
    for child in model.children():
        yield from child if isinstance(child, nn.ModuleList) else repeated_blocks(child)
