"""Real exhaustion of the GPU's memory: allocate until CUDA says no. The error leaves the training function."""

from __future__ import annotations

from typing import Any

from bench.faults.base import Planned, RankFault, Scene, Site

BLOCK_BYTES = 1 << 30


class OomDevice(RankFault):
    name = "oom_device"
    moments = ("step", "staging", "write", "commit", "load")
    expects = "torch.cuda.OutOfMemoryError leaves the training function; the process and its CUDA context stay usable."
    needs = "CUDA"

    def unavailable(self, planned: Planned, site: Site) -> str | None:
        return None if site.device == "cuda" else "needs a CUDA device, and this run computes on CPUs"

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> None:
        import torch

        taken = []
        while True:
            taken.append(torch.empty(BLOCK_BYTES, dtype=torch.uint8, device="cuda"))
