"""From measured sizes to a planned one. What lies beyond the measured sizes is a band between bounds, never a point.

A save or load of `total_bytes` by `units` (nodes, or ranks where each copies its own memory) takes
  t = fixed + total_bytes / min(B_store, units x B_unit)
Four points or more at different sizes are fitted; with fewer the bounds are perfect scaling (every unit goes on moving
bytes as fast as measured) and no scaling (all units together are no faster than measured). Recovery is measured in
nodes alone: t = fixed + slope x nodes, between "as measured" and "in proportion to the nodes".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log2, sqrt

import numpy as np
from numpy.typing import NDArray

LEAST_POINTS = 4
SAME_SIZE = 0.01  # sizes that differ by less are the same
MARGIN_PER_DOUBLING = 0.05  # least widening of a fit for each factor of 2 beyond the measured sizes: a choice


@dataclass(frozen=True)
class Point:
    """A duration measured at one size: seconds, nodes or ranks, bytes over all of them."""

    seconds: float
    units: float
    total_bytes: float


@dataclass(frozen=True)
class Band:
    """Seconds between `low` and `high`. `typical_s` is for arithmetic only and is never shown without the band."""

    low: float
    high: float
    extrapolated: bool
    basis: str  # where the bounds come from, in words

    @property
    def typical_s(self) -> float:
        """The geometric middle: the bounds are factors away from what was measured."""
        return sqrt(self.low * self.high)


def scaled(points: Sequence[Point], units: float, total_bytes: float) -> Band:
    """Seconds of a save or load at a size. ValueError without points, or for a size that is not above 0."""
    _sizes(points, units, total_bytes)
    same = [p.seconds for p in points if _near(p.units, units) and _near(p.total_bytes, total_bytes)]
    if same:
        return Band(min(same), max(same), False, "measured at this size")
    return _evaluate(points, Point(0.0, units, total_bytes), _bounds, _storage_fit)


def scaled_recovery(points: Sequence[Point], nodes: float) -> Band:
    """Seconds of a recovery on `nodes` nodes; `total_bytes` of the points is not used."""
    _sizes(points, nodes, 1.0)
    same = [p.seconds for p in points if _near(p.units, nodes)]
    if same:
        return Band(min(same), max(same), False, "measured at this size")
    plain = [Point(p.seconds, p.units, 1.0) for p in points]
    return _evaluate(plain, Point(0.0, nodes, 1.0), _recovery_bounds, _linear_fit)


Bounds = Callable[[Sequence[Point], Point], tuple[float, float]]
Fit = Callable[[Sequence[Point], Point], float]


def _evaluate(points: Sequence[Point], target: Point, bounds: Bounds, fit: Fit) -> Band:
    low, high = bounds(points, target)
    if len(_distinct(points)) < LEAST_POINTS:
        text = f"bounds from {len(points)} measured size{'s' * (len(points) != 1)}: perfect scaling and none"
        return Band(low, high, True, text)
    found = [fit(subset, target) for subset in _leave_one_out(points)]
    doublings = _beyond([p.units for p in points], target.units)
    # A fit knows no ceiling that it has not met: beyond the most units the upper bound is that of no further scaling.
    top = max(*found, high) if target.units > max(p.units for p in points) else max(found)
    margin = (1 + MARGIN_PER_DOUBLING) ** (doublings + _beyond([p.total_bytes for p in points], target.total_bytes))
    return Band(max(min(found), 0.0) / margin, top * margin, True, f"fitted on {len(points)} measured sizes")


def _beyond(measured: Sequence[float], size: float) -> float:
    """How many factors of 2 `size` lies outside the measured ones."""
    return max(log2(size / max(measured)), log2(min(measured) / size), 0.0)


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= SAME_SIZE * b


def _distinct(points: Sequence[Point]) -> set[tuple[float, float]]:
    return {(p.units, p.total_bytes) for p in points}


def _leave_one_out(points: Sequence[Point]) -> Iterator[Sequence[Point]]:
    """All points, then all but one in turn: the spread of the fits shows how much each point decides."""
    yield points
    for skipped in range(len(points)):
        yield [point for index, point in enumerate(points) if index != skipped]


def _sizes(points: Sequence[Point], units: float, total_bytes: float) -> None:
    if not points:
        raise ValueError("scaling needs at least one measured point")
    sizes = [units, total_bytes, *(p.units for p in points), *(p.total_bytes for p in points)]
    if min(sizes) <= 0 or min(p.seconds for p in points) < 0:
        raise ValueError("sizes must be greater than 0 and seconds 0 or more")


# --- bounds
def _bounds(points: Sequence[Point], target: Point) -> tuple[float, float]:
    """Perfect and no scaling from the nearest measured size, by the factor of sizes."""
    start = _nearest(points, target)
    total = start.seconds * target.total_bytes / start.total_bytes
    return tuple(sorted((total * start.units / target.units, total)))  # type: ignore[return-value]


def _recovery_bounds(points: Sequence[Point], target: Point) -> tuple[float, float]:
    start = _nearest(points, target)
    return tuple(sorted((start.seconds, start.seconds * target.units / start.units)))  # type: ignore[return-value]


def _nearest(points: Sequence[Point], target: Point) -> Point:
    def distance(point: Point) -> float:
        by_units = abs(np.log(point.units / target.units))
        return float(by_units + abs(np.log(point.total_bytes / target.total_bytes)))

    return min(points, key=distance)


# --- fits
def _storage_fit(points: Sequence[Point], target: Point) -> float:
    """fixed + max(bytes / B_store, bytes / units / B_unit) by least squares of relative errors, no term below 0.

    The store decides from some number of units on; each possible number is tried and the best fit taken.
    """
    best: tuple[float, float] | None = None
    for first_shared in sorted({p.units for p in points} | {max(p.units for p in points) + 1}):
        rows = np.array([_storage_row(p, p.units >= first_shared) for p in points])
        found, error = _non_negative_fit(rows, np.array([p.seconds for p in points]))
        value = float(found[0] + max(found[1] * target.total_bytes, found[2] * target.total_bytes / target.units))
        if best is None or error < best[0]:
            best = error, value
    assert best is not None
    return best[1]


def _storage_row(point: Point, shared: bool) -> list[float]:
    return [1.0, point.total_bytes if shared else 0.0, 0.0 if shared else point.total_bytes / point.units]


def _linear_fit(points: Sequence[Point], target: Point) -> float:
    rows = np.array([[1.0, p.units] for p in points])
    found, _ = _non_negative_fit(rows, np.array([p.seconds for p in points]))
    return float(found[0] + found[1] * target.units)


def _non_negative_fit(rows: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Least squares of relative errors with coefficients of 0 or more: the best over all subsets of columns."""
    weights = 1 / np.maximum(seconds, 1e-9)
    best, least = np.zeros(rows.shape[1]), float(len(seconds))
    for mask in range(1, 1 << rows.shape[1]):
        columns = [c for c in range(rows.shape[1]) if mask >> c & 1 and rows[:, c].any()]
        if not columns:
            continue
        scale = np.abs(rows[:, columns]).max(axis=0)
        solved, *_ = np.linalg.lstsq(rows[:, columns] / scale * weights[:, None], np.ones(len(seconds)), rcond=None)
        found = np.zeros(rows.shape[1])
        found[columns] = solved / scale
        error = float((((rows @ found - seconds) * weights) ** 2).sum())
        if (solved >= 0).all() and error < least:
            best, least = found, error
    return best, least


# --- barriers
def barrier_quantile(samples: Sequence[float], growth: float, quantile: float = 0.5) -> float | None:
    """Quantile of the slowest of `growth` times as many independent ranks as each sample was the slowest of.

    The maximum over n independent ranks has the distribution F(x)^n, so its quantile q is the samples' quantile
    q^(1/growth). None where that lies beyond 1 - 1/m: m samples say nothing there.
    """
    if growth < 1 or not 0 < quantile < 1 or not samples:
        raise ValueError("needs samples, a growth of at least 1 and a quantile between 0 and 1")
    level = quantile ** (1 / growth)
    if level > 1 - 1 / len(samples):
        return None
    return float(np.quantile(samples, level))
