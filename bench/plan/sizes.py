"""The same question over cluster sizes. Only the planned size was asked about; every other one is extrapolated.

The model stays the same, so more nodes write smaller shards. Bounds for each size: everything scales perfectly, with
the extrapolated inputs at their better ends; nothing does, with those at their worse ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bench.plan.inputs import Inputs
from bench.plan.savings import OPTIONS, TODAY, TOGETHER, Option, setup_of
from bench.plan.setup import Background, Values, mtbf_s

SIZES = (16, 64, 256, 512, 1024, 4096, 16384, 32768, 100_000)  # GPUs


@dataclass(frozen=True)
class Range:
    low: float
    high: float


@dataclass(frozen=True)
class SizeRow:
    """One cluster size. Goodputs at each set-up's own best period."""

    gpus: int
    nodes: int
    kind: str  # "extrapolated" for every size but the planned one
    mtbf_s: float
    today: Range
    together: Range
    best_period_s: Range  # of all layers together


def size_rows(inputs: Inputs, label: str) -> list[SizeRow]:
    """A row for each of SIZES and the planned size. `label`: what the planned size's own figures rest on."""
    per_node, planned = inputs.plan.cluster.gpus_per_node, inputs.plan.cluster.nodes
    nodes = sorted({ceil(gpus / per_node) for gpus in SIZES} | {planned})
    return [_row(inputs, count, label if count == planned else "extrapolated") for count in nodes]


def _row(inputs: Inputs, nodes: int, kind: str) -> SizeRow:
    better, worse = (_at_size(inputs, nodes, perfect) for perfect in (True, False))
    (today_high, _), (today_low, _) = (_best(values, inputs.background, TODAY) for values in (better, worse))
    (high, period_a), (low, period_b) = (
        _best(values, inputs.background, OPTIONS[TOGETHER]) for values in (better, worse)
    )
    return SizeRow(
        nodes * inputs.plan.cluster.gpus_per_node,
        nodes,
        kind,
        mtbf_s(better),
        Range(today_low, today_high),
        Range(low, high),
        Range(min(period_a, period_b), max(period_a, period_b)),
    )


def _best(values: Values, background: Background, option: Option) -> tuple[float, float]:
    setup = setup_of(values, background, option)
    period_s = setup.best_period_s()
    return setup.goodput(period_s), period_s


def _at_size(inputs: Inputs, nodes: int, perfect: bool) -> dict[str, float]:
    """The values at another number of nodes: perfect scaling of saves and recoveries, or the worse of none and that."""
    values = inputs.values
    for each in inputs.by_name.values():
        if each.kind == "extrapolated" and not each.derived and each.low is not None and each.high is not None:
            values[each.name] = each.low if perfect else each.high
    growth = nodes / inputs.plan.cluster.nodes
    for name in values:
        values[name] *= _factor(name, growth, perfect)
    values["cluster.nodes"] = nodes
    return values


def _factor(name: str, growth: float, perfect: bool) -> float:
    """Saves: seconds in inverse proportion to the nodes, or the same. Recovery: the same, or in proportion."""
    bounds = (1.0, 1.0)
    if name.startswith(("save.", "baseline.")) and name.endswith("_s"):
        bounds = (1 / growth, 1.0)
    elif name == "storage.write_bytes_per_s":
        bounds = (1 / growth, 1.0)  # of the seconds that follow from it
    elif name.startswith("recovery.") and name.endswith("_s"):
        bounds = (1.0, growth)
    factor = min(bounds) if perfect else max(bounds)
    return 1 / factor if name == "storage.write_bytes_per_s" else factor
