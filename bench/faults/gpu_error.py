"""A device-side assertion: the CUDA context is lost, and every further CUDA call of the process fails."""

from __future__ import annotations

from typing import Any

from bench.faults.base import Planned, RankFault, Scene, Site


class GpuError(RankFault):
    name = "gpu_error"
    moments = ("step", "staging", "write", "commit", "load")
    expects = "A CUDA error leaves the training function; the process cannot use its GPU again until it is replaced."
    needs = "CUDA"

    def unavailable(self, planned: Planned, site: Site) -> str | None:
        return None if site.device == "cuda" else "needs a CUDA device, and this run computes on CPUs"

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> None:
        import torch

        beyond = torch.tensor([1 << 20], device="cuda")
        torch.zeros(1, device="cuda")[beyond]  # the kernel asserts that the index is in range
        torch.cuda.synchronize()  # until here the error is nobody's
