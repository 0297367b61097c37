"""Cases without a machine: a run, GPUs and folders as a test wants them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.config import Checkpoint, Cluster, Model, Recovery, Run
from bench.doctor.base import Case
from bench.doctor.meeting import Meeting

H100 = "NVIDIA H100 80GB HBM3"
SMALL = Model(vocab_size=256, dim=128, layers=2, heads=4, kv_heads=4, ffn_dim=256)
LLAMA = Model(
    name="llama3_8b", vocab_size=128256, dim=4096, layers=32, heads=32, kv_heads=8, ffn_dim=14336, max_seq_len=8192
)
VERSIONS = {"torch": "2.13.0", "nvidia_resiliency_ext": "0.4.1", "driver": "570.86.15"}
TORCH = {"version": "2.13.0+cu130", "cuda": "13.0", "nccl": [2, 27, 7], "devices": 8}


def gpu(name: str = H100, memory_bytes: int | None = 80 << 30) -> dict[str, Any]:
    return {"name": name, "memory_bytes": memory_bytes, "power_limit_w": 700.0, "max_sm_clock_mhz": 1980, "ecc": True}


def run(arms: tuple[str, ...] = ("none", "sync_local"), layer: str = "none", cluster: str = "local", **changes) -> Run:
    parts = {"model": SMALL, "device": "cpu", "checkpoint": Checkpoint(arms=list(arms))}
    parts |= {"recovery": Recovery(layer=layer), "cluster": Cluster(name=cluster)}
    return Run(**(parts | changes))


def case(config: Run | None = None, said: dict[str, list[Any]] | None = None, error: str | None = None, **changes):
    """A Case; `said`: what ranks that met would have said, in place of letting them meet."""
    parts: dict[str, Any] = {
        "config": config or run(),
        "gpus": [],
        "versions": VERSIONS,
        "work_dir": Path("/nowhere/work"),
        "checkpoint_dir": Path("/nowhere/checkpoints"),
        "results_dir": Path("/nowhere/results"),
        "environ": {},
    }
    across = changes.pop("across", False)
    made = replace(Case(**parts), **changes)
    made.__dict__["meeting"] = Meeting(said if said is not None else {"torch": [TORCH]}, error, across)
    return made
