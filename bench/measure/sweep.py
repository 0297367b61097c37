"""Several intervals in one result: which of them the arms' figures rest on, and whether they predict the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from bench.measure.events import LaunchRecord
from bench.measure.saves import CONTROL_ARM
from bench.measure.shares import is_background, share_at_compute
from bench.measure.statistics import clustered_figure
from bench.schema import Figure, Sample


@dataclass(frozen=True)
class Point:
    """One arm at one interval of the full design. Seconds; shares of the period."""

    arm: str
    interval_steps: int
    compute_s: float  # what the control needs for so many steps: C
    period_s: float  # measured, median
    share: Figure | None  # measured directly, 1 - T_control / T
    predicted_share: Figure | None  # from K and L at the longest interval; None: this is the longest
    saturated: bool  # at least half of the writes outlasted the period
    agree: bool | None  # the two intervals overlap

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def resting_interval(design: str, samples: Sequence[Sample]) -> int | None:
    """The interval, in steps, on which the arms' figures rest: a sweep's longest. None: they rest on all saves."""
    if design != "sweep":
        return None
    return max((s.interval_steps for s in samples if s.measured and s.interval_steps is not None), default=None)


def at_interval(launches: Sequence[LaunchRecord], interval: int | None) -> list[LaunchRecord]:
    """The launches whose saves make the arms' figures: of a sweep's only those at `interval`; the others all."""
    return [launch for launch in launches if launch.kind != "full" or interval is None or interval in _steps(launch)]


def _steps(launch: LaunchRecord) -> set[int]:
    return {segment["interval"] for segment in launch.launch["segments"]}


def points(samples: Sequence[Sample], arms: Sequence[str], least: int = 2) -> list[Point]:
    """Every arm at every interval, by arm and interval; empty unless there are `least` intervals or more."""
    measured = [sample for sample in samples if sample.measured and sample.period_s and sample.cost_s is not None]
    intervals = sorted({s.interval_steps for s in measured if s.interval_steps is not None})
    if len(intervals) < max(least, 1):
        return []
    found = []
    for arm in arms:
        mine = [sample for sample in measured if sample.arm == arm and arm != CONTROL_ARM]
        longest = [sample for sample in mine if sample.interval_steps == intervals[-1]]
        for interval in intervals:
            here = [sample for sample in mine if sample.interval_steps == interval]
            if here:
                found.append(_point(arm, interval, here, [] if interval == intervals[-1] else longest))
    return found


def _point(arm: str, interval: int, here: Sequence[Sample], longest: Sequence[Sample]) -> Point:
    costed = [(s, s.period_s, s.cost_s) for s in here if s.period_s is not None and s.cost_s is not None]
    compute_s = median(period_s - cost_s for _, period_s, cost_s in costed)
    share = clustered_figure([cost_s / period_s for _, period_s, cost_s in costed], [s.launch for s, _, _ in costed])
    waits = sum(s.durable_s is not None and is_background(s) and s.durable_s > period_s for s, period_s, _ in costed)
    predicted = _predicted(longest, compute_s)
    return Point(
        arm=arm,
        interval_steps=interval,
        compute_s=compute_s,
        period_s=median(period_s for _, period_s, _ in costed),
        share=share,
        predicted_share=predicted,
        saturated=2 * waits >= len(costed),
        agree=None if share is None or predicted is None else _overlap(share, predicted),
    )


def _predicted(longest: Sequence[Sample], compute_s: float) -> Figure | None:
    """The share at another compute time, from K and L of each save at the longest interval."""
    shares = []
    for sample in longest:
        durable_s = sample.durable_s if is_background(sample) else None
        found = None if sample.cost_s is None else share_at_compute(compute_s, sample.cost_s, durable_s)
        if found is not None and found.share is not None:
            shares.append((found.share, sample.launch))
    return clustered_figure([share for share, _ in shares], [launch for _, launch in shares])


def _overlap(a: Figure, b: Figure) -> bool:
    return a.low <= b.high and b.low <= a.high
