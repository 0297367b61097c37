"""What results hold for a plan: durations as samples, each with the size it was measured at.

Reads summary.json, and samples.parquet where it lies beside it. Costs and latencies enter as arithmetic means of their
samples, since a job pays every one of its saves; a summary without samples gives its medians, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.errors import BadInput, near
from bench.plan.scaling import Point
from bench.schema import SCHEMA_VERSION

RECOVERY_LAYERS = {  # layer_used of a recovery, by the planner's layer
    "in_process": ("in_process",),
    "in_job": ("in_job", "torchrun"),
    "orchestrator": ("pod_restart", "requeue"),
}
SAVE_FIGURES = ("blocking_s", "cost_s", "durable_s", "slowdown_share")


@dataclass(frozen=True)
class Result:
    """One result: its summary, and the rows of its samples (None: there are no samples)."""

    path: Path
    summary: Mapping[str, Any]
    samples: list[dict[str, Any]] | None

    @property
    def nodes(self) -> int:
        return int(self.summary["num_nodes"])

    @property
    def ranks(self) -> int:
        return int(self.summary["world_size"])

    @property
    def on_gpus(self) -> bool:
        """Measured on a real cluster's GPUs; anything else is extrapolated to them."""
        return self.summary["device"] == "cuda" and not self.summary["rehearsal"]

    @property
    def name(self) -> str:
        kind = "GPUs" if self.summary["device"] == "cuda" else "CPU ranks"
        rehearsal = ", REHEARSAL on emulated nodes" if self.summary["rehearsal"] else ""
        status = "" if self.summary["status"] == "valid" else f", status {self.summary['status']}"
        return f"{self.summary['machine']}/{self.summary['scenario']} ({self.ranks} {kind}{rehearsal}{status})"


@dataclass(frozen=True)
class Measured:
    """A quantity at one size: its samples, or a median with its interval where only that is at hand."""

    values: tuple[float, ...]
    median_only: tuple[float, float, float] | None  # median, low, high
    nodes: int
    ranks: int
    total_bytes: float | None
    source: str
    on_gpus: bool

    @property
    def mean(self) -> float:
        """Arithmetic mean of the samples; the median where only that is at hand."""
        if self.median_only is not None:
            return self.median_only[0]
        return sum(self.values) / len(self.values)

    def point(self, by_ranks: bool) -> Point | None:
        """For scaling; None without a size in bytes."""
        if self.total_bytes is None:
            return None
        return Point(max(self.mean, 0.0), self.ranks if by_ranks else self.nodes, self.total_bytes)

    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean by bootstrap over the samples (percentiles, seeded); of the median as on record.

        B. Efron and R. Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. Of one sample: the sample.
        """
        if self.median_only is not None:
            return self.median_only[1], self.median_only[2]
        values = np.asarray(self.values)
        drawn = np.random.default_rng(0).choice(values, size=(2000, len(values))).mean(axis=1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        return float(low), float(high)


def read(path: Path) -> Result:
    """A result folder. BadInput: none, unreadable, of another version, or invalid."""
    summary = path / "summary.json"
    if not summary.is_file():
        raise BadInput(f"run: {path} holds no summary.json; give the folder of a finished `bench run`")
    try:
        content = json.loads(summary.read_text())
    except ValueError:
        raise BadInput(f"run: {summary} is not readable JSON; the result is damaged, measure again") from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise BadInput(f"run: {summary} has schema version {version!r}, this suite reads {SCHEMA_VERSION}")
    if content["status"] == "invalid":
        raise BadInput(f"run: {path} is marked invalid, no plan can stand on it; see its checks and measure again")
    return Result(path, content, _samples(path / "samples.parquet"))


def _samples(path: Path) -> list[dict[str, Any]] | None:
    if not path.is_file():
        return None
    from pyarrow import parquet  # a third of a second: only where there are samples

    columns = ["arm", "measured", *SAVE_FIGURES]
    rows: list[dict[str, Any]] = parquet.read_table(path, columns=columns).to_pylist()
    return rows


# --- saves
def arm_of(result: Result, name: str) -> Mapping[str, Any]:
    """The arm of a result. BadInput names what there is, and what to run to get it."""
    arms = {arm["name"]: arm for arm in result.summary["arms"]}
    if name not in arms:
        remedy = (
            f"measure it with: python -m bench run scenario={result.summary['scenario']} checkpoint.arms=[none,{name}]"
        )
        raise BadInput(f"run: {result.path} has no arm {name!r}; {near(name, arms)} or {remedy}")
    for figure in ("blocking_s", "cost_s", "durable_s"):
        if arms[name][figure] is None:
            raise BadInput(
                f"run: {result.path} did not measure {figure} of {name}; measure it with: python -m bench run "
                f"scenario={result.summary['scenario']} checkpoint.arms=[none,{name}]"
            )
    found: Mapping[str, Any] = arms[name]
    return found


def save_figure(results: Sequence[Result], arm: str, figure: str) -> list[Measured]:
    """`figure` (blocking_s, cost_s, durable_s, slowdown_share) of an arm in each result; [] where it has none."""
    found = []
    for result in results:
        row = arm_of(result, arm)
        values = [
            float(sample[figure])
            for sample in result.samples or []
            if sample["arm"] == arm and sample["measured"] and sample[figure] is not None
        ]
        kept, what = None, f"mean of {len(values)} saves"
        if not values:
            median = row.get(figure)
            if median is None:
                continue
            kept = (median["median"], median["low"], median["high"])
            what = f"median of {median['n']} saves (no samples at hand)"
        source = f"{what} of {arm} in {result.name}"
        size = row["written_bytes"]
        found.append(Measured(tuple(values), kept, result.nodes, result.ranks, size, source, result.on_gpus))
    return found


# --- recoveries
@dataclass(frozen=True)
class Recovered:
    """Recoveries by one layer in one result. `load_s`: their mean part that grows with bytes, 0 where not on record."""

    whole: Measured
    load_s: float


def recoveries(results: Sequence[Result], layer: str) -> list[Recovered]:
    """Seconds from a fault to the first new step by this layer, one entry a result that has such recoveries."""
    found = []
    for result in results:
        rows = [row for row in result.summary["recoveries"] if _recovered_by(row, layer)]
        if not rows:
            continue
        values = tuple(float(row["time_to_recover_s"]) for row in rows)
        loads = [float(row["load_s"]) for row in rows if row.get("load_s") is not None]
        source = f"mean of {len(rows)} recoveries by {layer} in {result.name}"
        whole = Measured(values, None, result.nodes, result.ranks, _checkpoint_bytes(result), source, result.on_gpus)
        found.append(Recovered(whole, min(sum(loads) / len(loads), whole.mean) if loads else 0.0))
    return found


def _recovered_by(row: Mapping[str, Any], layer: str) -> bool:
    """From one fault: in a cascade others struck while the job recovered."""
    return (
        row.get("outcome") == "recovered"
        and not row.get("further_faults")
        and len(row.get("faults", [])) <= 1
        and row.get("layer_used") in RECOVERY_LAYERS[layer]
        and row.get("time_to_recover_s") is not None
    )


def _checkpoint_bytes(result: Result) -> float | None:
    written = [arm["written_bytes"] for arm in result.summary["arms"] if arm.get("written_bytes")]
    return float(max(written)) if written else None


def layer_overhead(results: Sequence[Result], layer: str) -> tuple[float, str] | None:
    """Fault-free price of a layer (share of time) where a result measured it, with its source."""
    for result in results:
        for row in result.summary["layers"]:
            price = row.get("overhead_share")
            if row.get("layer") == layer and price is not None:
                source = f"median of {price['n']} pairs of launches, layer {layer} in {result.name}"
                return float(price["median"]), source
    return None
