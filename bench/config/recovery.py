"""What a run breaks, and what brings it back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bench.config.checks import positive, require, zero_or_more
from bench.errors import near

MOMENTS = ("step", "staging", "write", "commit", "load", "recovery")


@dataclass(frozen=True)
class Fault:
    """One fault of a schedule. What is left open is drawn by the run's seed."""

    kind: str
    at: str = "step"  # one of MOMENTS
    rank: int | None = None  # the victim by its place at the start (node x ranks_per_node + local rank); -1: the last
    step: int | None = None  # steps finished before it; None: within the interval that is its turn
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require(self.at in MOMENTS, "faults.at", f"unknown moment {self.at!r} of {self.kind}; {near(self.at, MOMENTS)}")
        positive("faults.step", self.step)


@dataclass(frozen=True)
class Faults:
    """The schedule of faults: `given`, then `count` drawn ones with probabilities in proportion to `weights`."""

    given: list[Fault] = field(default_factory=list)
    count: int = 0
    weights: dict[str, float] = field(default_factory=dict)
    per_launch: int = 1  # faults that one launch takes, one after the other

    def __post_init__(self) -> None:
        zero_or_more("faults.count", self.count)
        positive("faults.per_launch", self.per_launch)
        right = (
            bool(self.weights) and all(weight >= 0 for weight in self.weights.values()) and any(self.weights.values())
        )
        wrong = "faults.count asks for drawn faults; give weights, e.g. faults.weights={exception: 0.6, sigkill: 0.4}"
        require(self.count == 0 or right, "faults.weights", wrong)


@dataclass(frozen=True)
class Recovery:
    layer: str = "none"  # checkpoint runs: what starts the ranks
    layers: list[str] = field(default_factory=list)  # design=recovery: the layers that are compared
    only: list[str] = field(default_factory=list)  # of faults x layers these, as "fault/layer"; empty: all
    save_once: bool = False  # one checkpoint, after the first interval, that all recoveries of a launch load
    reserve: int = 0  # in_process, nested: spare ranks beside the active ones, on the last node
    max_restarts: int = 10  # of one launch, by whichever layer
    node_return_s: float | None = 3.0  # node_loss: the node is away for so long; null: for good
    backoff_s: float = 10.0  # pod_restart: first wait before a node's ranks start again; doubles each time
    backoff_cap_s: float = 300.0
    relaunch: str = "coordinator"  # requeue: who starts the job again; or "engine" (scontrol requeue, JobSet)
    check_state: bool = True  # fingerprint the state at saves and loads; its time is taken out
    ft_monitoring: str = "heartbeats"  # in_job, nested: or "sections"
    timeouts: dict[str, float] = field(default_factory=dict)  # in place of derived ones; see bench.recovery.timeouts

    def __post_init__(self) -> None:
        for name in ("reserve", "backoff_s"):
            zero_or_more(f"recovery.{name}", getattr(self, name))
        positive("recovery.max_restarts", self.max_restarts)
        positive("recovery.backoff_cap_s", self.backoff_cap_s)
        positive("recovery.node_return_s", self.node_return_s)
        whole = ("coordinator", "engine")
        require(self.relaunch in whole, "recovery.relaunch", f"must be coordinator or engine, got {self.relaunch!r}")
        known = ("heartbeats", "sections")
        wrong = f"must be heartbeats or sections, got {self.ft_monitoring!r}"
        require(self.ft_monitoring in known, "recovery.ft_monitoring", wrong)
        for name, value in self.timeouts.items():
            positive(f"recovery.timeouts.{name}", value)
