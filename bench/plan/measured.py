"""Inputs from results: as measured where a result has the planned size on GPUs, else extrapolated within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.errors import BadInput
from bench.plan import results as read
from bench.plan.label import Input, Kind
from bench.plan.results import Measured, Recovered, Result
from bench.plan.scaling import Band, Point, barrier_quantile, scaled, scaled_recovery

WRITES = "scaling of writes"
BACKGROUND = 1.05  # a write that outlasts the save by so much goes on in the background
MOST_SHARE = 0.99
STORE_FALLS_SHORT = 2.0  # how far a store may stay behind its stated bandwidth: an assumption


@dataclass(frozen=True)
class Target:
    """The planned size. `store_s`: seconds that the store, as stated, needs for a checkpoint; None: nothing stated."""

    nodes: int
    ranks: int
    total_bytes: float
    store_s: float | None


# --- saves
def save_inputs(prefix: str, results: Sequence[Result], arm: str, target: Target) -> list[Input]:
    """The independent inputs of one arm: of a synchronous one its cost alone, since S and L follow it.

    An asynchronous save is scaled in its parts: S with the bytes of a rank, L with those of a node, and the share of
    the background write's time that it costs stays. K itself is taken only where it was measured at the planned size.
    """
    figures = {name: read.save_figure(results, arm, name) for name in ("blocking_s", "cost_s", "durable_s")}
    cost = _scaled(f"{prefix}.cost_s", figures["cost_s"], _band(figures["cost_s"], target, by_ranks=False))
    if not _in_background(figures["blocking_s"], figures["durable_s"]):
        return [_with_the_store(cost)]
    blocking = _scaled(
        f"{prefix}.blocking_s", figures["blocking_s"], _band(figures["blocking_s"], target, by_ranks=True)
    )
    band = _band(figures["durable_s"], target, by_ranks=False)
    durable = _with_the_store(_scaled(f"{prefix}.durable_s", figures["durable_s"], band))
    if cost.kind == "measured":
        return [blocking, durable, cost]
    return [
        blocking,
        durable,
        _slowdown(f"{prefix}.slowdown", figures["blocking_s"], figures["cost_s"], figures["durable_s"]),
    ]


def _in_background(blocking: Sequence[Measured], durable: Sequence[Measured]) -> bool:
    return any(late.mean > BACKGROUND * early.mean for early, late in zip(blocking, durable, strict=True))


def _slowdown(name: str, blocking: Sequence[Measured], cost: Sequence[Measured], durable: Sequence[Measured]) -> Input:
    """(K - S) / (L - S): what the background write costs, as a share of its time; the most and least over results."""
    values, bounds = [], []
    for s, k, late in zip(blocking, cost, durable, strict=True):
        write_s = max(late.mean - s.mean, 1e-9)
        values.append(_share((k.mean - s.mean) / write_s))
        bounds += [_share((bound - s.mean) / write_s) for bound in k.interval()]
    source = f"(K - S) / (L - S), {'; '.join(each.source for each in cost)}"
    return Input(name, sum(values) / len(values), "share", "extrapolated", source, min(bounds), max(bounds))


def _share(value: float) -> float:
    """A hidden cost below 0 is noise; one that exceeds the write's time is counted as all of it."""
    return min(max(value, 0.0), MOST_SHARE)


def _band(found: Sequence[Measured], target: Target, by_ranks: bool) -> Band:
    units = target.ranks if by_ranks else target.nodes
    points = [point for each in found if (point := each.point(by_ranks)) is not None]
    if not points:
        where = found[0].source
        raise BadInput(f"run: the bytes of a save are not on record ({where}); measure again: python -m bench run")
    band = slowest_of_more(scaled(points, units, target.total_bytes), found, units, by_ranks)
    return band if by_ranks or target.store_s is None else within_store(band, target.store_s)


def within_store(band: Band, store_s: float) -> Band:
    """Bounds from a stated store: no write is faster than it allows, and none more than twice as slow as need be."""
    if not band.extrapolated:
        return band
    low = max(band.low, store_s)
    high = max(low, min(band.high, STORE_FALLS_SHORT * low))
    text = (
        f"{band.basis}; not faster than storage.write_bytes_per_s, at most {STORE_FALLS_SHORT:g} times slower (assumed)"
    )
    return Band(low, high, True, text)


def slowest_of_more(band: Band, found: Sequence[Measured], units: float, by_ranks: bool) -> Band:
    """Raise the lower bound to the slowest of more ranks, as far as the samples say anything about it."""
    largest = max(found, key=lambda each: each.nodes)
    growth = units / (largest.ranks if by_ranks else largest.nodes)
    if not band.extrapolated or growth <= 1 or largest.median_only is not None or largest.mean <= 0:
        return band
    slowest = barrier_quantile(largest.values, growth)
    if slowest is None:
        text = f"{len(largest.values)} samples do not show the slowest of {growth:.0f} times as many"
        return Band(band.low, band.high, True, f"{band.basis}; {text}")
    low = band.low * max(slowest / largest.mean, 1.0)
    return Band(low, max(low, band.high), True, f"{band.basis}; the slowest of {growth:.0f} times as many counted in")


def _scaled(name: str, found: Sequence[Measured], band: Band) -> Input:
    sources = "; ".join(each.source for each in found)
    if band.extrapolated:
        return Input(name, band.typical_s, "s", "extrapolated", f"{sources}; {band.basis}", band.low, band.high)
    here = [each for each in found if band.low <= max(each.mean, 0.0) <= band.high]
    low, high = min(each.interval()[0] for each in here), max(each.interval()[1] for each in here)
    kind: Kind = "measured" if all(each.on_gpus for each in here) else "extrapolated"
    value = sum(each.mean for each in here) / len(here)
    return Input(name, max(value, 0.0), "s", kind, sources, max(low, 0.0), max(high, 0.0))


def _with_the_store(each: Input) -> Input:
    """How far the store scales is one unknown for every kind of save that is extrapolated with it."""
    return replace(each, group=WRITES) if each.kind == "extrapolated" else each


# --- recovery
def recovery_input(layer: str, results: Sequence[Result], target: Target) -> Input | None:
    """Seconds of a recovery by this layer: loads scale with bytes, the rest with nodes. None: no result has one."""
    found = read.recoveries(results, layer)
    if not found:
        return None
    whole = [each.whole for each in found]
    name = f"recovery.{layer}_s"
    here = [each.whole for each in found if _same_size(each, target)]
    if here:
        return _scaled(name, here, Band(min(e.mean for e in here), max(e.mean for e in here), False, ""))
    rest = [Point(max(each.whole.mean - each.load_s, 0.0), each.whole.nodes, 1.0) for each in found]
    band = slowest_of_more(scaled_recovery(rest, target.nodes), whole, target.nodes, by_ranks=False)
    loads = _loads(found)
    if loads:
        load = scaled(loads, target.nodes, target.total_bytes)
        band = Band(band.low + load.low, band.high + load.high, True, f"{band.basis}; loads: {load.basis}")
    return _scaled(name, whole, Band(band.low, band.high, True, band.basis))


def _same_size(each: Recovered, target: Target) -> bool:
    size = each.whole.total_bytes
    return each.whole.nodes == target.nodes and size is not None and abs(size - target.total_bytes) <= 0.01 * size


def _loads(found: Sequence[Recovered]) -> list[Point]:
    return [
        Point(each.load_s, each.whole.nodes, each.whole.total_bytes)
        for each in found
        if each.load_s > 0 and each.whole.total_bytes is not None
    ]


def overhead_input(layer: str, results: Sequence[Result]) -> Input | None:
    """The layer's fault-free price where a result measured it."""
    found = read.layer_overhead(results, layer)
    if found is None:
        return None
    share, source = found
    return Input(f"recovery.{layer}_overhead_share", _share(share), "share", "measured", source)
