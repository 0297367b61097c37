"""The command line of NVRx's agent, which in_job and nested share."""

from __future__ import annotations

from importlib.util import find_spec

from bench.config import Run
from bench.recovery import nvrx_versions
from bench.recovery.base import Place, Process
from bench.recovery.timeouts import unmeasured
from bench.recovery.torchrun import AGENT_ENV, rendezvous

MODULE = "nvidia_resiliency_ext.fault_tolerance.launcher"


def agent(place: Place, heartbeat_s: float, extra: list[str]) -> Process:
    """ft_launcher for this node's ranks, which a silence of `heartbeat_s` ends."""
    number = nvrx_versions.installed()
    command = [place.python, "-m", MODULE, *rendezvous(place), *_watching(place, heartbeat_s, number), *extra]
    env = AGENT_ENV | nvrx_versions.agent_env(number)
    # The module comes last and without arguments: ft_launcher would take a worker's that resemble its own.
    return Process("agent", [*command, "-m", place.worker_module], env, None)


def _watching(place: Place, heartbeat_s: float, number: str | None) -> list[str]:
    times = place.timeouts or unmeasured()
    common = [
        f"--workers-stop-timeout={times.workers_stop_s:g}",
        f"--ft-workload-check-interval={times.check_interval_s:g}",
    ]
    if place.monitoring == "heartbeats":
        initial = f"--ft-initial-rank-heartbeat-timeout={times.initial_heartbeat_s:g}"
        return [*common, initial, f"--ft-rank-heartbeat-timeout={heartbeat_s:g}"]
    sections = {
        "setup": times.section_setup_s,
        "step": times.section_step_s,
        "checkpointing": times.section_checkpointing_s,
    }
    return [
        *common,
        *nvrx_versions.no_heartbeats(number),
        "--ft-rank-section-timeouts=" + ",".join(f"{name}:{seconds:g}" for name, seconds in sections.items()),
        f"--ft-rank-out-of-section-timeout={times.out_of_section_s:g}",
    ]


def missing(layer: str, config: Run) -> str | None:
    """A refusal where the ranks run on this machine and it has no NVRx; elsewhere the doctor looks."""
    if config.cluster.name not in ("local", "emulated") or find_spec("nvidia_resiliency_ext") is not None:
        return None
    return f"recovery.layer: {layer} needs {nvrx_versions.PACKAGE}; install it (make setup, or the extra [train])"
