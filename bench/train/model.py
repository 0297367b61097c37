"""The model under training: a plain-torch decoder of the Llama family, or a user's own module.

RMSNorm before each sublayer, rotary positions, grouped-query attention, SwiGLU. It is a real model whose only purpose
is that its parameters, gradients and optimizer state have the shapes and sizes of those that people train.
"""

from __future__ import annotations

import importlib
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from bench.config import Model
from bench.errors import BadInput

INIT_STD = 0.02  # GPT-2; projections that write into the residual stream are scaled by 1/sqrt(2 x layers) on top
INIT_BLOCK_ELEMENTS = 1 << 20  # one random stream each; a rank draws only the blocks that overlap its shard


def rotation(head_dim: int, max_seq_len: int, theta: float) -> Tensor:
    """Rotary position factors [max_seq_len, head_dim / 2], complex64 (Su et al. 2021, RoFormer).

    Complex, as in Llama's own code, also because FSDP casts real inputs of a block to bfloat16, too coarse for angles.
    """
    frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angle = torch.outer(torch.arange(max_seq_len, dtype=torch.float32), frequency)
    return torch.polar(torch.ones_like(angle), angle)


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Rotate neighbouring pairs of each head: x [B, heads, T, head_dim], turns [T, head_dim / 2]."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)


class Attention(nn.Module):
    """Causal self-attention in which heads / kv_heads query heads share one key and value head."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.head_dim = config.dim // config.heads
        self.shares_kv = config.kv_heads != config.heads
        self.q = nn.Linear(config.dim, config.dim, bias=False)
        self.k = nn.Linear(config.dim, config.kv_heads * self.head_dim, bias=False)
        self.v = nn.Linear(config.dim, config.kv_heads * self.head_dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        q, k, v = (self.split(project(x)) for project in (self.q, self.k, self.v))
        q, k = rotate(q, turns), rotate(k, turns)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.shares_kv)
        return self.out(y.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]

    def split(self, x: Tensor) -> Tensor:
        """[B, T, heads x head_dim] -> [B, heads, T, head_dim]"""
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.gate = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.up = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.down = nn.Linear(config.ffn_dim, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, config: Model) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.ffn = FeedForward(config)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), turns)
        return x + self.ffn(self.ffn_norm(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """tokens [B, T] int64 -> logits [B, T, vocab_size], T at most max_seq_len."""

    turns: Tensor

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim, eps=1e-5)
        # A tied head reads the embedding in forward rather than owning a second name for it: to_empty() and checkpoints
        # then see one parameter.
        self.head = None if config.tie_embeddings else nn.Linear(config.dim, config.vocab_size, bias=False)
        turns = rotation(config.dim // config.heads, config.max_seq_len, config.rope_theta)
        self.register_buffer("turns", turns, persistent=False)
        # Kept from before any sharding, which may rename, reorder or merge parameters.
        self.init_order = {name: index for index, (name, _) in enumerate(self.named_parameters())}

    def forward(self, tokens: Tensor) -> Tensor:
        turns = self.turns[: tokens.shape[1]]
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, turns)
        x = self.norm(x)
        return F.linear(x, self.embed.weight) if self.head is None else self.head(x)

    def init_weights(self, seed: int) -> None:
        """Fill parameters and buffers; the values depend on `seed` and shapes only, not on device or world size."""
        for name, module in self.named_modules():
            self.init_module(name, module, seed)

    @torch.no_grad()
    def init_module(self, name: str, module: nn.Module, seed: int) -> None:
        """Fill what `module`, called `name` in this decoder, holds itself, with the same values as init_weights."""
        config = self.config
        if module is self:
            self.turns.copy_(rotation(config.dim // config.heads, config.max_seq_len, config.rope_theta))
        for own_name, parameter in module.named_parameters(recurse=False):
            full_name = f"{name}.{own_name}"
            if parameter.ndim == 1:
                nn.init.ones_(parameter)  # the norms' gains are the only vectors
            else:
                into_residual = full_name.endswith(("attention.out.weight", "ffn.down.weight"))
                std = INIT_STD / math.sqrt(2 * config.layers) if into_residual else INIT_STD
                fill_normal(parameter, std, (seed, self.init_order[full_name]))


def fill_normal(parameter: Tensor, std: float, key: tuple[int, ...]) -> None:
    """Fill [rows, columns], or this rank's shard of the rows, from N(0, std^2).

    The matrix is cut into blocks of rows, each with a CPU generator seeded by (*key, block): any shard can be drawn
    without the rest, so the cost and memory of a rank fall with the world size and the values do not depend on it.
    """
    local, first = local_rows(parameter)
    block_rows = max(1, INIT_BLOCK_ELEMENTS // parameter.shape[1])
    last = first + local.shape[0]
    for block in range(first // block_rows, -(-last // block_rows)):
        start, end = block * block_rows, min((block + 1) * block_rows, parameter.shape[0])
        (state,) = np.random.SeedSequence((*key, block)).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(state) >> 1)  # manual_seed takes an int64
        values = torch.empty(end - start, parameter.shape[1]).normal_(0.0, std, generator=generator)
        low, high = max(first, start), min(last, end)
        local[low - first : high - first].copy_(values[low - start : high - start])


def local_rows(parameter: Tensor) -> tuple[Tensor, int]:
    """The rows of a parameter that this rank holds, and the index of the first (FSDP2 cuts like torch.chunk)."""
    if not isinstance(parameter, DTensor):
        return parameter, 0
    mesh, (placement,) = parameter.device_mesh, parameter.placements
    if not placement.is_shard(0):
        raise ValueError(f"a parameter sharded over dimension 0 was expected, got {placement}")
    rows_per_rank = -(-parameter.shape[0] // mesh.size())
    return parameter.to_local(), min(mesh.get_local_rank() * rows_per_rank, parameter.shape[0])


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats, float32: logits [B, T, V], targets [B, T] int64."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def build_model(config: Model) -> nn.Module:
    """The configured module on the current default device; BadInput when a user's `model.target` cannot be built.

    A user's module takes tokens [B, T] int64 and returns logits [B, T, vocab_size], bare or as the attribute `logits`.
    """
    if config.target is None:
        return Decoder(config)
    make = import_target(config.target)
    try:
        return make(**config.kwargs)
    except TypeError as error:  # wrong or missing arguments; whatever else it raises is the user's to see in full
        wrong = f"{config.target} refused {config.kwargs}: {error}"
        raise BadInput(f"model.kwargs: {wrong}; give the arguments that it takes") from error


def import_target(target: str) -> type[nn.Module]:
    """The nn.Module class that "package.module.Class" names; BadInput otherwise."""
    module_name, _, class_name = target.rpartition(".")
    if not module_name:
        raise BadInput(f"model.target: must be package.module.Class, got {target!r}; name the module too")
    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except ImportError as error:
        wrong = f"cannot import {module_name}: {error}"
        raise BadInput(f"model.target: {wrong}; install it or put it on PYTHONPATH") from error
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        what = "has no such name" if found is None else "is not a class derived from torch.nn.Module"
        raise BadInput(f"model.target: {class_name} of {module_name} {what}; name an nn.Module class")
    return found
