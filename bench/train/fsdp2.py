"""FSDP2 (`fully_shard`): each parameter is a DTensor, cut along its first dimension."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from bench.config import Run
from bench.train.base import Tree
from bench.train.model import Decoder
from bench.train.sharding import Sharding, compute_dtype, keeps_gathered, matrices, mesh_of_all, repeated_blocks


class Fsdp2(Sharding):
    """Each repeated block and the root are one unit. Gradients are reduced in float32."""

    def __init__(self, model: nn.Module, config: Run, device: torch.device) -> None:
        mesh = mesh_of_all(device)
        policy = MixedPrecisionPolicy(param_dtype=compute_dtype(config.train, device), reduce_dtype=torch.float32)
        for block in repeated_blocks(model):
            fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=not keeps_gathered(device))
        fully_shard(model, mesh=mesh, mp_policy=policy)
        if isinstance(model, Decoder):
            model.to_empty(device=device)
            model.init_weights(config.seed)
        self.module = model
        self.parameters = dict(model.named_parameters())
        self.decaying = matrices(model)

    def tensors(self, optimizer: torch.optim.Optimizer) -> Tree:
        moments = {name: dict(optimizer.state[p]) for name, p in self.parameters.items() if p in optimizer.state}
        return {"model": self._model_tensors(), "optimizer": moments}

    def _model_tensors(self) -> dict[str, Tensor]:
        parameters = {name: parameter.detach() for name, parameter in self.parameters.items()}
        persistent = self.module.state_dict().keys()
        buffers = {name: buffer for name, buffer in self.module.named_buffers() if name in persistent}
        return parameters | buffers
