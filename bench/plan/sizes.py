"""The same question over cluster sizes. Only the planned size was asked about; every other one is extrapolated.

The model stays the same, so more nodes write smaller shards. Bounds for each size: everything scales perfectly, with
the extrapolated inputs at their better ends; nothing does, with those at their worse ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bench.plan.inputs import Inputs
from bench.plan.savings import OPTIONS, TODAY, TOGETHER, Option, setup_of
from bench.plan.setup import Background, Values, mtbf_s, write_s

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
    """The values at another number of nodes, at the better or at the worse end of what scaling may do to them."""
    values = inputs.values
    for each in inputs.by_name.values():
        if each.kind == "extrapolated" and not each.derived and each.low is not None and each.high is not None:
            values[each.name] = each.low if perfect else each.high
    growth = nodes / inputs.plan.cluster.nodes
    stated_store = inputs.plan.storage.write_bytes_per_s is not None
    for name in values:
        ends = _factors(name, growth, stated_store)
        values[name] *= min(ends) if perfect != name.startswith("storage.") else max(ends)  # more bandwidth is better
    values["cluster.nodes"] = nodes
    if stated_store and inputs.results:
        _not_faster_than_the_store(values)
    return values


def _factors(name: str, growth: float, stated_store: bool) -> tuple[float, float]:
    """What perfect scaling and no scaling multiply a value by, for `growth` times as many nodes.

    Seconds of a save: in inverse proportion to the nodes, or the same. Of a recovery: the same, or in proportion.
    Bandwidths are those from which seconds are derived, with the same bounds: the store's in proportion or the same (a
    stated one grows no further, and fewer nodes may not fill it), a GPU's the same or in inverse proportion.
    """
    if name.startswith(("save.", "baseline.")) and name.endswith("_s"):
        return 1 / growth, 1.0
    if name.startswith("recovery.") and name.endswith("_s"):
        return 1.0, growth
    if name == "storage.write_bytes_per_s":
        return (min(growth, 1.0), 1.0) if stated_store else (growth, 1.0)
    if name == "storage.staging_bytes_per_s_per_gpu":
        return 1.0, 1 / growth
    return 1.0, 1.0


def _not_faster_than_the_store(values: dict[str, float]) -> None:
    least_s = write_s(values)
    for name in ("save.durable_s", "baseline.cost_s", "baseline.durable_s"):
        if name in values:
            values[name] = max(values[name], least_s)
