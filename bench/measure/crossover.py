"""At which period does a background write stop hiding? Held against L, the time that one write takes."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measure.sweep import Point
from bench.measure.verdicts import Outcome
from bench.schema import Figure, Verdict

FACTOR = 1.5
_PUBLISHED = "an asynchronous write is hidden as long as the period is longer than the write"
_SEVERAL = "needs the same work at several intervals, short ones among them: design=sweep, or several full results"


def crossover(arm: str, points: Sequence[Point], cost_s: Figure | None, durable_s: Figure | None) -> Verdict:
    """Does the period at which saves begin to wait for each other lie within a factor 1.5 of L?

    `points`: of `arm`, at several intervals. `cost_s`, `durable_s`: its K and L at the longest interval, where nothing
    waits. The period of a point is the one asked for, C + K; what was measured is whether at least half of its writes
    outlasted it. The crossover lies between the longest period that saturated and the shortest longer one that did not.
    """
    bracket = None if cost_s is None else _bracket(points, cost_s.median)
    if bracket is None or durable_s is None:
        return Verdict("crossover", _PUBLISHED, None, "not_measured", f"Not measured: {_missing(points, durable_s)}.")
    low, high = (period_s / durable_s.median for period_s in bracket)
    outcome = _outcome(low, high)
    measured = f"between {bracket[0]:.3g} and {bracket[1]:.3g} s"
    words = {
        "holds": f"within a factor {FACTOR} of it",
        "does_not_hold": f"further than a factor {FACTOR} from it",
        "not_decided": f"too far apart to tell whether it lies within a factor {FACTOR}: measure intervals in between",
    }
    text = (
        f"Saves of {arm} begin to wait for each other at a period {measured}, {low:.2f} to {high:.2f} times its "
        f"L of {durable_s.median:.3g} s: {words[outcome]}."
    )
    return Verdict("crossover", _PUBLISHED, measured, outcome, text)


def _bracket(points: Sequence[Point], cost_s: float) -> tuple[float, float] | None:
    """Longest saturated period and shortest unsaturated one above it, s."""
    waiting = [point.compute_s + cost_s for point in points if point.saturated]
    if not waiting:
        return None
    hidden = [point.compute_s + cost_s for point in points if not point.saturated]
    above = [period_s for period_s in hidden if period_s > max(waiting)]
    return (max(waiting), min(above)) if above else None


def _outcome(low: float, high: float) -> Outcome:
    """`low`, `high`: bounds of the crossover as multiples of L."""
    if low >= 1 / FACTOR and high <= FACTOR:
        return "holds"
    return "does_not_hold" if high < 1 / FACTOR or low > FACTOR else "not_decided"


def _missing(points: Sequence[Point], durable_s: Figure | None) -> str:
    if len(points) < 2 or durable_s is None:
        return _SEVERAL
    if not any(point.saturated for point in points):
        return "no measured period was so short that saves had to wait for each other; add shorter intervals"
    return "saves waited for each other at the longest measured period; add longer intervals"
