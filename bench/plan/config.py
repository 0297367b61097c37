"""What a user can state about a plan: frozen records, validated where they are made; None means "not stated".

The keys, with their meaning and defaults, stand in conf/plan.yaml. Each rule's message names the key, the rule and the
remedy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from bench.errors import BadInput, near

LAYERS = ("orchestrator", "in_job", "in_process")  # from the whole job down to the process
LARGEST_NODES = 1_000_000


def _require(rule: bool, key: str, message: str) -> None:
    if not rule:
        raise BadInput(f"{key}: {message}")


def _above_zero(prefix: str, record: Any, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        good = value is None or (isfinite(value) and value > 0)
        _require(good, f"{prefix}{name}", f"must be greater than 0, got {value}; give a positive number")


def _zero_or_more(prefix: str, record: Any, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        good = value is None or (isfinite(value) and value >= 0)
        _require(good, f"{prefix}{name}", f"must be 0 or more, got {value}")


def _share(prefix: str, record: Any, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        good = value is None or 0 <= value < 1
        _require(good, f"{prefix}{name}", f"is a fraction of 1, from 0 to less than 1, got {value}")


@dataclass(frozen=True)
class Save:
    blocking_s: float | None = None  # S
    cost_s: float | None = None  # K
    durable_s: float | None = None  # L
    slowdown: float | None = None  # sigma

    def __post_init__(self) -> None:
        _zero_or_more("save.", self, "blocking_s", "cost_s", "durable_s")
        _share("save.", self, "slowdown")
        if self.blocking_s is not None and self.durable_s is not None:
            _require(
                self.durable_s >= self.blocking_s,
                "save.durable_s",
                f"counts from the call, so it cannot be below save.blocking_s={self.blocking_s}, got {self.durable_s}",
            )
        _require(
            self.blocking_s is not None or self.durable_s is None or self.cost_s is None,
            "save.blocking_s",
            "is missing beside save.cost_s and save.durable_s; give how long the save blocks training",
        )


@dataclass(frozen=True)
class Recovery:
    layer: str = "orchestrator"
    seconds: float | None = None
    orchestrator_s: float | None = None
    in_job_s: float | None = None
    in_process_s: float | None = None
    in_job_overhead_share: float | None = None
    in_process_overhead_share: float | None = None
    fails_share: float = 0.0

    def __post_init__(self) -> None:
        _require(
            self.layer in LAYERS, "recovery.layer", f"unknown recovery layer {self.layer!r}; {near(self.layer, LAYERS)}"
        )
        _zero_or_more("recovery.", self, "seconds", "orchestrator_s", "in_job_s", "in_process_s")
        _share("recovery.", self, "in_job_overhead_share", "in_process_overhead_share", "fails_share")


@dataclass(frozen=True)
class Failures:
    name: str = "llama3"
    about: str = ""
    source: str = ""
    per_1000_node_days: float | None = None
    rate_range: list[float] = field(default_factory=list)
    weibull_shape: float | None = None
    gaps: list[float] = field(default_factory=list)
    causes_source: str = ""
    causes: list[Any] = field(default_factory=list)
    classes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(
            self.per_1000_node_days is not None,
            "failures.per_1000_node_days",
            "is not stated in this profile; give the failures per 1,000 node-days of your cluster's log",
        )
        _above_zero("failures.", self, "per_1000_node_days", "weibull_shape")
        _require(
            self.weibull_shape is None or 0.2 <= self.weibull_shape <= 5,
            "failures.weibull_shape",
            f"must lie between 0.2 and 5 (clusters: 0.7 to 1), got {self.weibull_shape}",
        )
        good = len(self.rate_range) in (0, 2) and all(rate > 0 for rate in self.rate_range)
        _require(good, "failures.rate_range", f"needs two rates greater than 0, or none, got {self.rate_range}")
        _require(
            all(gap > 0 for gap in self.gaps), "failures.gaps", "are times between failures and must be greater than 0"
        )


@dataclass(frozen=True)
class Cluster:
    nodes: int = 64
    gpus_per_node: int = 8
    price_per_gpu_hour: float | None = None
    spares: int | None = None
    repair_s: float | None = None

    def __post_init__(self) -> None:
        _above_zero("cluster.", self, "nodes", "gpus_per_node", "price_per_gpu_hour", "repair_s")
        _zero_or_more("cluster.", self, "spares")
        _require(self.nodes <= LARGEST_NODES, "cluster.nodes", f"must be at most {LARGEST_NODES}, got {self.nodes}")


@dataclass(frozen=True)
class Job:
    days: float | None = None

    def __post_init__(self) -> None:
        _above_zero("job.", self, "days")


@dataclass(frozen=True)
class Model:
    params: float | None = None
    bytes_per_param: float | None = None

    def __post_init__(self) -> None:
        _above_zero("model.", self, "params", "bytes_per_param")


@dataclass(frozen=True)
class Storage:
    write_bytes_per_s: float | None = None
    concurrent_jobs: int = 1
    shared_every: int = 1

    def __post_init__(self) -> None:
        _above_zero("storage.", self, "write_bytes_per_s", "concurrent_jobs", "shared_every")


@dataclass(frozen=True)
class Simulation:
    replicates: int = 400
    seed: int = 42

    def __post_init__(self) -> None:
        _require(
            2 <= self.replicates <= 100_000,
            "simulation.replicates",
            f"must lie between 2 and 100,000, got {self.replicates}",
        )


@dataclass(frozen=True)
class Plan:
    """Everything that a plan can be told; conf/plan.yaml says what each key means."""

    about: str = ""
    run: Any = None  # a result folder, or a list of them
    strategy: str = "nvrx_async"
    baseline: str = "sync_local"
    period_s: float | None = None
    save: Save = field(default_factory=Save)
    recovery: Recovery = field(default_factory=Recovery)
    failures: Failures = field(default_factory=lambda: Failures(per_1000_node_days=1.0))
    cluster: Cluster = field(default_factory=Cluster)
    job: Job = field(default_factory=Job)
    model: Model = field(default_factory=Model)
    storage: Storage = field(default_factory=Storage)
    simulation: Simulation = field(default_factory=Simulation)
    out: str | None = None
    figures: str | None = None

    def __post_init__(self) -> None:
        _above_zero("", self, "period_s")
        paths = self.runs
        _require(
            all(isinstance(path, str) and path for path in paths),
            "run",
            f"must be a result folder or a list of them, got {self.run!r}",
        )
        _require(len(set(paths)) == len(paths), "run", f"names a result twice: {paths}; list each once")

    @property
    def runs(self) -> list[Any]:
        if self.run is None:
            return []
        return list(self.run) if isinstance(self.run, (list, tuple)) else [self.run]

    @property
    def gpus(self) -> int:
        return self.cluster.nodes * self.cluster.gpus_per_node
