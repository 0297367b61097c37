"""In-process restart: NVRx's inprocess.Wrapper calls the training function again in the surviving processes.

No agent: torch's would end the survivors of a killed rank before any of them has begun to recover.
"""

from __future__ import annotations

from bench.config import Run
from bench.recovery import ft_launcher
from bench.recovery.base import MAX_RESTARTS, Layer, Place, Process, plain_ranks


class InProcess(Layer):
    name = "in_process"
    when_one_dies = "go_on"
    stores = frozenset({"base", "wrapper"})
    finds_hangs = True
    inside = "bench.recovery.inside.in_process:InProcessInside"

    def processes(self, place: Place) -> list[Process]:
        return plain_ranks(place, wrapper_env(place))

    def refusal(self, config: Run) -> str | None:
        return ft_launcher.missing(self.name, config)


def wrapper_env(place: Place) -> dict[str, str]:
    """What the Wrapper's users are told to set. Errors of an aborted NCCL group must not be raised again later, an
    abort does not free NVLink SHARP's memory, and c10d logs every wait of the Wrapper's monitors without news."""
    env = {MAX_RESTARTS: str(place.max_restarts), "TORCH_CPP_LOG_LEVEL": "error"}
    if place.device == "cuda":
        env |= {"TORCH_NCCL_RETHROW_CUDA_ERRORS": "0", "NCCL_NVLS_ENABLE": "0"}
    return env
