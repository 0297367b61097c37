"""Tokens a second and model FLOPs utilisation: how far the trainer is from what its GPUs could do at most.

A share of time says little about a trainer that wastes it anyway; these two figures say what kind of trainer it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Peak of dense matrix products in bfloat16, FLOP/s of one whole GPU, by the vendor's data sheets (which print twice as
# much where they count sparsity). Keys: words that the name which NVML gives must have; the first row that fits counts.
PEAK_BF16_FLOPS: tuple[tuple[frozenset[str], float], ...] = tuple(
    (frozenset(words.split()), flops)
    for words, flops in (
        ("GB300", 2.5e15),
        ("B300", 2.25e15),
        ("GB200", 2.5e15),
        ("B200", 2.25e15),
        ("GH200", 989e12),
        ("H200 NVL", 835e12),
        ("H200", 989e12),
        ("H100 NVL", 835e12),
        ("H100 PCIe", 756e12),
        ("H100", 989e12),
        ("H800 PCIe", 756e12),
        ("H800", 989e12),
        ("H20", 148e12),
        ("A100", 312e12),
        ("A800", 312e12),
        ("A40", 149.7e12),
        ("A30", 165e12),
        ("A10G", 70e12),
        ("A10", 125e12),
        ("L40S", 362e12),
        ("L40", 181e12),
        ("L4", 121e12),
    )
)
SLICE = "MIG"  # in the name of a part of a GPU, whose peak is not that of the whole


def peak_flops(name: str) -> float | None:
    """Peak FLOP/s of a GPU by the name that NVML gives ("NVIDIA H100 80GB HBM3"); None for one not in the table."""
    words = set(re.split(r"[\s-]+", name))
    if SLICE in words:
        return None
    return next((flops for wanted, flops in PEAK_BF16_FLOPS if wanted <= words), None)


def flops_per_token(model: Mapping[str, Any], seq_len: int) -> int | None:
    """FLOPs of forward and backward for one token, of the own decoder as run.json describes it (config.model).

    6 N, N the parameters in matrix products (the head among them, the embedding's look-up not; norms are counted too,
    as they are in the parameters), and 12 x layers x dim x seq_len for attention's scores, as if it were not causal:
    Chowdhery et al. 2022 (PaLM), appendix B. None for a user's model, whose code is not known.
    """
    if model.get("target"):
        return None
    dim, layers, ffn_dim = model["dim"], model["layers"], model["ffn_dim"]
    attention = 2 * dim * dim + 2 * dim * model["kv_heads"] * (dim // model["heads"])
    block = attention + 3 * dim * ffn_dim + 2 * dim
    parameters = layers * block + model["vocab_size"] * dim + dim
    return int(6 * parameters + 12 * layers * dim * seq_len)


@dataclass(frozen=True)
class Throughput:
    """Of the whole job and of one rank. `mfu`: share of the peak of the rank's GPU; None where that is not known."""

    tokens_per_s: float
    tokens_per_s_per_rank: float
    mfu: float | None


def throughput(config: Mapping[str, Any], gpus: Sequence[str], step_s: float | None) -> Throughput | None:
    """From the resolved configuration (run.json `config`), the names of the GPUs used and the control step time.

    None without a step time, and where steps are paced and compute nothing. MFU is by bfloat16 peaks, so it is None for
    steps in float32, and for GPUs of different models.
    """
    train = config["train"]
    if not step_s or train["compute"] != "real" or config.get("state"):
        return None
    tokens = train["batch_size"] * train["seq_len"]
    per_rank = tokens / step_s
    world_size = config["num_nodes"] * config["ranks_per_node"]
    return Throughput(per_rank * world_size, per_rank, _mfu(config, gpus, per_rank))


def _mfu(config: Mapping[str, Any], gpus: Sequence[str], tokens_per_s: float) -> float | None:
    train, names = config["train"], set(gpus)
    needed = flops_per_token(config["model"], train["seq_len"])
    if config["device"] != "cuda" or len(names) != 1 or needed is None:
        return None
    peak = peak_flops(next(iter(names)))
    # auto computes in bfloat16 on CUDA
    if peak is None or train["compute_dtype"] not in ("auto", "bfloat16"):
        return None
    return needed * tokens_per_s / peak
