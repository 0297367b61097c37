"""The training state of one rank: everything that an exact resume needs, and the step that changes it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bench.checkpoint.trees import local_tensor
from bench.config import Run, Train
from bench.train.base import TrainState, Tree, paired, require_names
from bench.train.data import mix
from bench.train.model import build_model, loss
from bench.train.shaped import HeldState
from bench.train.sharding import Sharding, shard

LEAST_LR_SHARE = 0.1  # the cosine ends at a tenth of the peak and stays there


@dataclass(frozen=True)
class Schedule:
    """Learning rate: linear warm-up to the peak, then half a cosine down to a tenth of it at `total_steps`."""

    peak_lr: float
    warmup_steps: int
    total_steps: int

    def lr(self, step: int) -> float:
        """Of the update that follows `step` finished ones."""
        if step < self.warmup_steps:
            return self.peak_lr * (step + 1) / self.warmup_steps
        decay_steps = max(1, self.total_steps - self.warmup_steps)
        progress = min(1.0, (step - self.warmup_steps) / decay_steps)
        cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
        return self.peak_lr * (LEAST_LR_SHARE + (1.0 - LEAST_LR_SHARE) * cosine)


class ModelState(TrainState):
    """Model, optimizer, schedule and random state of a real training run."""

    def __init__(self, sharding: Sharding, config: Train, device: torch.device) -> None:
        super().__init__(device)
        self.sharding = sharding
        self.model = sharding.module
        self.parameters = sharding.parameters
        self.clip_norm = config.clip_norm
        self.schedule = Schedule(config.lr, config.lr_warmup_steps, config.steps)
        self.optimizer = make_optimizer(sharding, config.weight_decay)
        self._trained = False
        self._stable = False  # whether tensors have found the storage that they keep; see tensors()
        self._tensors: Tree | None = None

    def train_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        inputs, targets = inputs.to(self.device, non_blocking=True), targets.to(self.device, non_blocking=True)
        local_loss = loss(logits_of(self.model(inputs)), targets)
        local_loss.backward()
        clip_gradients(self.parameters.values(), self.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.lr(self.step)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if not self._trained:  # the first forward may have moved what tensors() kept
            self._tensors, self._trained = None, True
        self.skip_step(inputs.shape[0] * dist.get_world_size())
        return local_loss.detach()

    def skip_step(self, samples: int) -> None:
        super().skip_step(samples)
        self._stable = True  # without a forward in it nothing moves either

    # --- what a checkpoint holds
    def tree(self) -> Tree:
        """Everything that an exact resume needs, as a nested dict.

        Tensors of model and optimizer are as the sharding gives them: live ones (DTensors), or gathered copies. Random
        states are copies, under a name of their rank, because formats that keep one copy of equal names would hand
        every rank the state of one.
        """
        return {
            **self.tensors(),
            "schedule": asdict(self.schedule),
            "step": self.step,
            "position": self.position,
            "rng": {f"rank_{dist.get_rank()}": rng_state(self.device)},
        }

    def tensors(self) -> Tree:
        """The sharded part of the tree: {"model": {name: tensor}, "optimizer": {name: {moment: tensor}}}.

        Live tensors are kept between calls, because detaching them costs more than all the rest of tree(). FSDP2 may
        move uneven shards to padded storage until the first forward; before that, nothing is kept.
        """
        if self._tensors is None or not self._stable or not self.sharding.gives_live_tensors:
            self._tensors = self.sharding.tensors(self.optimizer)
        model, optimizer = self._tensors["model"], self._tensors["optimizer"]
        return {"model": dict(model), "optimizer": {name: dict(moments) for name, moments in optimizer.items()}}

    @torch.no_grad()
    def restore(self, tree: Tree) -> None:
        """A rank for which the tree holds no random state keeps its own."""
        require_names(tree, "model", "optimizer", "schedule", "step", "position", "rng")
        mine = self.tensors()
        pairs = list(paired(mine, {name: tree[name] for name in ("model", "optimizer")}))
        schedule = Schedule(**tree["schedule"])
        for here, saved in pairs:
            here.copy_(saved)
        self.sharding.write_back(self.optimizer, mine)
        self.schedule = schedule
        self.step, self.position = int(tree["step"]), int(tree["position"])
        own_rng = tree["rng"].get(f"rank_{dist.get_rank()}")
        if own_rng is not None:
            set_rng_state(own_rng, self.device)


def build_state(config: Run, device: torch.device) -> TrainState:
    """The sharded state at step 0 on `device`; the process group exists already. Seeds this process's random numbers.

    The own decoder comes into being shard by shard (FSDP1: unit by unit), so a rank never holds the whole model. A
    user's module initialises itself as it likes, whole and from the same seed on every rank, and is cut afterwards: it
    must fit into one device. With config.state there is no model: the state has the shapes of that checkpoint.
    """
    if config.state is not None:
        return HeldState(config, device)
    dtype = torch.bfloat16 if config.train.param_dtype == "bfloat16" else torch.float32
    torch.manual_seed(config.seed)
    with torch.device(device if config.model.target else "meta"):
        model = build_model(config.model)
    for parameter in model.parameters():  # not model.to(dtype), which would also round the buffers
        parameter.data = parameter.data.to(dtype)
    sharding = shard(model, config, device)
    seed_rank(mix(config.seed + mix(dist.get_rank())) >> 1)
    return ModelState(sharding, config.train, device)


def seed_rank(seed: int) -> None:
    """Seed what a model may draw from while it trains (dropout): other numbers on every rank."""
    torch.manual_seed(seed)  # CPU and all CUDA devices
    random.seed(seed)


def make_optimizer(sharding: Sharding, weight_decay: float) -> torch.optim.AdamW:
    """AdamW whose state exists already, as zeros: the first step and the first checkpoint are like all others."""
    trained = {name: parameter for name, parameter in sharding.parameters.items() if parameter.requires_grad}
    groups = [
        {"params": [p for name, p in trained.items() if name in sharding.decaying], "weight_decay": weight_decay},
        {"params": [p for name, p in trained.items() if name not in sharding.decaying], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=0.0, betas=(0.9, 0.95), fused=True)
    for parameter in trained.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # with lr 0 and no gradients it changes nothing and creates the state
    optimizer.zero_grad(set_to_none=True)
    for state in optimizer.state.values():
        state["step"].zero_()
    return optimizer


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> None:
    """Scale gradients so that their norm over all ranks is at most `max_norm`; does not synchronise the device.

    One small all-reduce over norms of local shards: torch.nn.utils.clip_grad_norm_ gives the same, but pays for the
    dispatch of a DTensor per gradient.
    """
    grads = [local_tensor(parameter.grad) for parameter in parameters if parameter.grad is not None]
    norms = torch._foreach_norm(grads, dtype=torch.float32)
    squares = torch.stack(norms).square().sum()
    dist.all_reduce(squares)
    scale = (max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(grads, scale)


def logits_of(output: Any) -> Tensor:
    """A user's model may wrap its logits [B, T, V] in a record, as Transformers does."""
    return output if isinstance(output, Tensor) else output.logits


def rng_state(device: torch.device) -> dict[str, Any]:
    """States of the generators that a model may draw from: PyTorch's on CPU and device, Python's `random`."""
    _, words, gauss_next = random.getstate()
    state = {
        "torch_cpu": torch.get_rng_state(),
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss_next": gauss_next,  # the second half of a pair that random.gauss() has drawn, or None
    }
    if device.type == "cuda":
        state["torch_cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_rng_state(state: dict[str, Any], device: torch.device) -> None:
    torch.set_rng_state(state["torch_cpu"].cpu())
    random.setstate((random.getstate()[0], tuple(state["python"].tolist()), state["python_gauss_next"]))
    if device.type == "cuda" and "torch_cuda" in state:
        torch.cuda.set_rng_state(state["torch_cuda"].cpu(), device)
