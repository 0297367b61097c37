"""Results over sizes, joined: what stays the same when world size or bytes grow, and the claims that need several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from bench.measure.accounted import Accounted
from bench.measure.crossover import crossover
from bench.measure.likeness import BYTES_TOLERANCE, SIZE, SOFTWARE, WORLD, likeness, listed_below
from bench.measure.saves import CONTROL_ARM
from bench.measure.statistics import shift_ratio
from bench.measure.sweep import Point, points
from bench.measure.verdicts import ASYNC_ARM, Outcome
from bench.schema import SCHEMA_VERSION, Figure, Verdict

FLAT = 1.25
_FLAT_PUBLISHED = "one write takes as long on 8 nodes as on 2"


@dataclass(frozen=True)
class Series:
    """Results by world size, then by bytes."""

    results: list[Accounted]
    verdicts: list[Verdict]

    def to_json(self) -> dict[str, Any]:
        """The content of series.json."""
        return {
            "schema_version": SCHEMA_VERSION,
            "results": [_entry(result) for result in self.results],
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
        }


def unlike_in_series(results: Sequence[Accounted]) -> str | None:
    """The first field, if any, in which two results differ although a series allows world size and bytes only.

    Intervals and designs may differ as well: they are how the same work is measured. Of the environment the software
    that saves must be the same.
    """
    for base, new in combinations(results, 2):
        alike = likeness(base, new)
        for difference in alike.work:
            if not listed_below(difference.field, (*WORLD, *SIZE)) and "written bytes" not in difference.field:
                return str(difference)
        for difference in alike.environment:
            if difference.field in SOFTWARE:
                return str(difference)
    return None


def series(results: Sequence[Accounted]) -> Series:
    """Join results that `unlike_in_series` lets pass."""
    ordered = sorted(results, key=lambda result: (result.summary.world_size, checkpoint_bytes(result) or 0))
    return Series(ordered, [write_time_flat(ordered), _crossover(ordered)])


def checkpoint_bytes(result: Accounted) -> int | None:
    """Bytes of one checkpoint: of the arm that writes most."""
    return max((arm.written_bytes for arm in result.summary.arms if arm.written_bytes), default=None)


def _entry(result: Accounted) -> dict[str, Any]:
    summary = result.summary
    about = {name: getattr(summary, name) for name in ("scenario", "machine", "device", "rehearsal", "design")}
    size = {"world_size": summary.world_size, "num_nodes": summary.num_nodes, "bytes": checkpoint_bytes(result)}
    more = {"status": summary.status, "stamps": summary.stamps, "versions": summary.versions, "sweep": summary.sweep}
    return about | size | more | {"arms": [asdict(arm) for arm in summary.arms]}


# --- write_time_flat --------------------------------------------------------------------------------------------------
def write_time_flat(results: Sequence[Accounted]) -> Verdict:
    """Is the write time of the largest world within a factor 1.25 of that of the smallest, at the same bytes?"""
    pair = _ends(results)
    if pair is None:
        return _flat("not_measured", None, "Not measured: needs results of the same bytes at two world sizes or more.")
    small, large = pair
    arm = _judged_arm([small, large])
    ratio = _write_ratio(small, large, arm) if arm is not None else None
    if ratio is None:
        return _flat("not_measured", None, "Not measured: no arm has a known write time at both ends of the series.")
    outcome = _flat_outcome(ratio)
    words: Mapping[Outcome, str] = {
        "holds": f"it stays within a factor {FLAT}",
        "does_not_hold": f"it does not stay within a factor {FLAT}",
        "not_decided": f"whether it stays within a factor {FLAT} is not decided: more saves are needed",
    }
    measured = f"{ratio.median:.2f} times ({ratio.low:.2f} to {ratio.high:.2f}, {ratio.interval})"
    text = (
        f"A write of {arm} on {large.summary.world_size} ranks ({_nodes(large)}) takes {measured} as long as on "
        f"{small.summary.world_size} ranks ({_nodes(small)}): {words[outcome]}."
    )
    return _flat(outcome, measured, text)


def _flat(outcome: Outcome, measured: str | None, text: str) -> Verdict:
    return Verdict("write_time_flat", _FLAT_PUBLISHED, measured, outcome, text)


def _nodes(result: Accounted) -> str:
    count = result.summary.num_nodes
    return f"{count} node{'s' * (count > 1)}"


def _ends(results: Sequence[Accounted]) -> tuple[Accounted, Accounted] | None:
    """Smallest and largest world of the same bytes, as far apart as the series has them."""
    pairs = [
        (large.summary.world_size / small.summary.world_size, small, large)
        for small, large in combinations(results, 2)
        if small.summary.world_size < large.summary.world_size and _same_bytes(small, large)
    ]
    return max(pairs, key=lambda pair: pair[0])[1:] if pairs else None


def _same_bytes(a: Accounted, b: Accounted) -> bool:
    ours, theirs = checkpoint_bytes(a), checkpoint_bytes(b)
    return ours is not None and theirs is not None and abs(theirs / ours - 1) <= BYTES_TOLERANCE


def _judged_arm(results: Sequence[Accounted]) -> str | None:
    """The published arm, else the first that wrote in every one of `results`."""
    shared = [
        name
        for name in results[0].arms
        if name != CONTROL_ARM and all(name in r.arms and r.arms[name].write_s is not None for r in results)
    ]
    return ASYNC_ARM if ASYNC_ARM in shared else shared[0] if shared else None


def _write_ratio(small: Accounted, large: Accounted, arm: str) -> Figure | None:
    columns: list[Any] = []
    for result in (small, large):
        known = [(s.write_s, s.launch) for s in result.measured(arm) if s.write_s is not None and s.write_s > 0]
        columns += [[seconds for seconds, _ in known], [launch for _, launch in known]]
    return shift_ratio(*columns)


def _flat_outcome(ratio: Figure) -> Outcome:
    if ratio.low >= 1 / FLAT and ratio.high <= FLAT:
        return "holds"
    return "does_not_hold" if ratio.low > FLAT or ratio.high < 1 / FLAT else "not_decided"


# --- crossover --------------------------------------------------------------------------------------------------------
def _crossover(results: Sequence[Accounted]) -> Verdict:
    """From the size at which the published arm was measured at most intervals; of equals the largest."""
    best: list[tuple[Point, Accounted]] = []
    for last in reversed(results):
        alike = [r for r in results if r.summary.world_size == last.summary.world_size and _same_bytes(r, last)]
        found = _points(alike)
        best = found if len(found) > len(best) else best
    if not best:
        return crossover(ASYNC_ARM, [], None, None)
    arm = best[-1][1].arms[ASYNC_ARM]
    return crossover(ASYNC_ARM, [point for point, _ in best], arm.cost_s, arm.durable_s)


def _points(alike: Sequence[Accounted]) -> list[tuple[Point, Accounted]]:
    """The published arm's points over results of one size, by interval, each with its result."""
    found = [(point, result) for result in alike for point in points(result.samples, [ASYNC_ARM], least=1)]
    return sorted(found, key=lambda pair: pair[0].interval_steps)
