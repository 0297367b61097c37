"""FSDP1 (`FullyShardedDataParallel`): each unit's parameters are one flat vector, of which every rank keeps a chunk.

Two forms of checkpoint. LOCAL_STATE_DICT keeps the chunks as they lie in memory: it costs nothing and fits this cut
only. SHARDED_STATE_DICT keeps each parameter under its own name, cut along its first dimension; as the chunks are cut
elsewhere, each unit is gathered and cut anew, and so is the optimizer's state: that is part of the cost of its saves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import CustomPolicy
from torch.distributed.tensor import DTensor, Shard

from bench.config import Run
from bench.train.base import Tree
from bench.train.model import Decoder
from bench.train.sharding import Sharding, compute_dtype, keeps_gathered, matrices, mesh_of_all, repeated_blocks

WRAPPER = "_fsdp_wrapped_module."  # FSDP1 puts it into names, once for each unit on the way


def wrapped(model: nn.Module, config: Run, device: torch.device, mesh: DeviceMesh | None) -> FullyShardedDataParallel:
    """Each repeated block and the root as one unit. Gradients are reduced in float32.

    With a mesh, sharded state dicts hold DTensors; LOCAL_STATE_DICT refuses to work with one.
    """
    blocks = set(repeated_blocks(model))
    strategy = ShardingStrategy.SHARD_GRAD_OP if keeps_gathered(device) else ShardingStrategy.FULL_SHARD
    return FullyShardedDataParallel(
        model,
        sharding_strategy=strategy,
        auto_wrap_policy=CustomPolicy(lambda module: module in blocks),
        mixed_precision=MixedPrecision(param_dtype=compute_dtype(config.train, device), reduce_dtype=torch.float32),
        param_init_fn=module_maker(model, config.seed, device) if isinstance(model, Decoder) else None,
        device_id=device,
        use_orig_params=config.train.use_orig_params,
        device_mesh=mesh,
    )


def module_maker(model: Decoder, seed: int, device: torch.device) -> Callable[[nn.Module], None]:
    """What FSDP1 calls for each module of a unit before it cuts the unit: at no time is more than one unit whole."""
    names = {module: name for name, module in model.named_modules()}

    def make(module: nn.Module) -> None:
        module.to_empty(device=device, recurse=False)
        model.init_module(names[module], module, seed)

    return make


class Fsdp1Local(Sharding):
    """LOCAL_STATE_DICT: flat parameters and flat moments, without padding, aliasing the live ones.

    They are given as DTensors, which say what part of the whole a rank holds, as torch's own ShardedTensors do.
    """

    def __init__(self, model: nn.Module, config: Run, device: torch.device) -> None:
        self.module = wrapped(model, config, device, mesh=None)
        self.parameters = {name.replace(WRAPPER, ""): p for name, p in self.module.named_parameters()}
        self.decaying = set(self.parameters)  # a flat vector holds matrices and norms alike
        self._mesh = mesh_of_all(device)
        # Asked once: torch makes the ShardedTensors by a collective each, and their memory stays where it is.
        local_form = FullyShardedDataParallel.state_dict_type(self.module, StateDictType.LOCAL_STATE_DICT)
        with quiet(), local_form:
            self._state_dict = self.module.state_dict()
            self._whole_sizes = {name: whole_size(leaf) for name, leaf in self._state_dict.items()}

    def tensors(self, optimizer: torch.optim.Optimizer) -> Tree:
        model = {name: self._part(name, self._own(name)) for name in self._state_dict}
        moments = {
            name: {moment: self._part(name, tensor) for moment, tensor in optimizer.state[parameter].items()}
            for name, parameter in self.parameters.items()
            if parameter in optimizer.state
        }
        return {"model": model, "optimizer": moments}

    def _own(self, name: str) -> Tensor:
        return self.parameters[name].detach() if name in self.parameters else self._state_dict[name]

    def _part(self, name: str, tensor: Tensor) -> Tensor:
        """This rank's chunk without the padding, as a part of the whole vector; what is not cut (counters) as it is."""
        whole = self._whole_sizes[name]
        if whole is None or tensor.ndim == 0:
            return tensor
        chunk = -(-whole // dist.get_world_size())
        valid = min(chunk, max(0, whole - dist.get_rank() * chunk))
        return DTensor.from_local(
            tensor[:valid], self._mesh, [Shard(0)], run_check=False, shape=torch.Size([whole]), stride=(1,)
        )


def whole_size(leaf: Tensor | ShardedTensor) -> int | None:
    """Elements of a flat parameter over all ranks; None for a buffer, which every rank has whole."""
    return leaf.size().numel() if isinstance(leaf, ShardedTensor) else None


class Fsdp1Sharded(Sharding):
    """SHARDED_STATE_DICT: parameters and moments by name, as DTensors that are copies of the live values."""

    gives_live_tensors = False

    def __init__(self, model: nn.Module, config: Run, device: torch.device) -> None:
        named_matrices = matrices(model)
        self.module = wrapped(model, config, device, mesh_of_all(device))
        self.parameters = {name.replace(WRAPPER, ""): p for name, p in self.module.named_parameters()}
        self.decaying = named_matrices if config.train.use_orig_params else set(self.parameters)
        self._groups: Any = []  # the optimizer's parameter groups by name, as tensors() has found them

    def tensors(self, optimizer: torch.optim.Optimizer) -> Tree:
        with quiet():
            model = get_model_state_dict(self.module)
            found = get_optimizer_state_dict(self.module, optimizer)
        self._groups = found["param_groups"]
        return {"model": model, "optimizer": found["state"]}

    def write_back(self, optimizer: torch.optim.Optimizer, tensors: Tree) -> None:
        state = {"state": tensors["optimizer"], "param_groups": self._groups}
        with quiet():
            set_model_state_dict(self.module, tensors["model"])
            set_optimizer_state_dict(self.module, optimizer, state)


@contextmanager
def quiet() -> Iterator[None]:
    """Without FSDP1's warnings that it and ShardedTensor are on their way out: the user has asked for them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Please use DTensor instead", category=FutureWarning)
        warnings.filterwarnings("ignore", message="FSDP.state_dict_type", category=FutureWarning)
        warnings.filterwarnings("ignore", message="`_get_pg_default_device`", category=UserWarning)
        warnings.filterwarnings("ignore", message="Multiple backends are registered", category=UserWarning)
        yield
