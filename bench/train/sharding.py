"""Sharding: parameters, gradients and optimizer state cut over all ranks, each way in a file of its own."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from bench.config import Run, Train
from bench.train.base import Tree

SHARDINGS: dict[str, str] = {
    "fsdp2": "bench.train.fsdp2:Fsdp2",
    "fsdp1_local": "bench.train.fsdp1:Fsdp1Local",
    "fsdp1_sharded": "bench.train.fsdp1:Fsdp1Sharded",
}


class Sharding(ABC):
    """A model cut over all ranks, and how its tensors and those of its optimizer look in a checkpoint.

    The model comes on the meta device if it is the own decoder, which is then made shard by shard from the run's seed;
    a user's comes initialised, whole, on `device`. Constructing one and every method are collective.
    """

    gives_live_tensors = True  # False: tensors() gathers copies, and restoring writes them back

    module: nn.Module  # what is called with tokens
    parameters: dict[str, nn.Parameter]  # what the optimizer updates; all of it is this rank's own part
    decaying: set[str]  # names of those parameters that weight decay applies to

    @abstractmethod
    def __init__(self, model: nn.Module, config: Run, device: torch.device) -> None: ...

    @abstractmethod
    def tensors(self, optimizer: torch.optim.Optimizer) -> Tree:
        """{"model": {name: tensor}, "optimizer": {name: {moment: tensor}}}: DTensors, and plain ones that are equal
        on all ranks (counters, buffers)."""

    def write_back(self, optimizer: torch.optim.Optimizer, tensors: Tree) -> None:
        """Take over the values of what tensors() has given out last; live tensors have them already."""


def shard(model: nn.Module, config: Run, device: torch.device) -> Sharding:
    """The model sharded as train.sharding says (its names are checked by bench.config.Train)."""
    module, _, name = SHARDINGS[config.train.sharding].partition(":")
    return cast(Sharding, getattr(import_module(module), name)(model, config, device))


def mesh_of_all(device: torch.device) -> DeviceMesh:
    """All ranks in one dimension: a mesh that is equal to none that this process has had before.

    torch takes equal meshes for the same one and hands out what it remembers of the first: a process that restarts in
    place with another rank (a spare one has come in) would go on with its old rank's share of every parameter.
    """
    return init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=(f"made_{time.monotonic_ns()}",))


def compute_dtype(train: Train, device: torch.device) -> torch.dtype:
    """The dtype of matrix products: as configured; auto is bfloat16 where parameters are or on CUDA, else float32."""
    if train.compute_dtype != "auto":
        return torch.bfloat16 if train.compute_dtype == "bfloat16" else torch.float32
    wants_bfloat16 = device.type == "cuda" or train.param_dtype == "bfloat16"
    return torch.bfloat16 if wants_bfloat16 else torch.float32


def keeps_gathered(device: torch.device) -> bool:
    """Whether a block's whole parameters stay in memory between its forward and its backward.

    On CUDA they are freed and gathered again, because device memory is scarce. On CPU memory is not scarce, and a
    gather is a tenth of a step.
    """
    return device.type != "cuda"


def repeated_blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The entries of the outermost nn.ModuleLists: what transformers keep their layers in."""
    for child in model.children():
        yield from child if isinstance(child, nn.ModuleList) else repeated_blocks(child)


def matrices(model: nn.Module) -> set[str]:
    """Names of the parameters with two or more dimensions: what weight decay applies to, and not to norms and biases.

    To be asked before sharding, which may make vectors of them.
    """
    return {name for name, parameter in model.named_parameters() if parameter.ndim >= 2}
