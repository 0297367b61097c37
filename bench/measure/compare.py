"""Two results, or two arms of one result, held against each other: ratios with intervals, in both directions honest.

Two results were measured at different times, so nothing pairs their saves: `unpaired`. Two arms of one result took
turns within each cycle (quick design) or block (full design), so they are compared pair by pair: `paired`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from bench.measure.accounted import Accounted
from bench.measure.saves import CONTROL_ARM
from bench.measure.shares import Period, sample_share
from bench.measure.statistics import clustered_figure, ratio_figure, shift_figure, shift_ratio
from bench.schema import Figure, Sample

Outcome = Literal["higher", "lower", "not_resolved", "not_measured"]
Pairing = Literal["paired", "unpaired"]


@dataclass(frozen=True)
class Quantity:
    """What is compared. `signed`: it may be 0 or less by noise, so a ratio may not exist."""

    name: str
    title: str
    unit: Literal["s", "bytes/s", "share"]
    signed: bool = False
    cost: bool = False  # what a user pays: `fail_above` looks at these


QUANTITIES = (
    Quantity("share", "share K/P", "share", signed=True, cost=True),
    Quantity("cost_s", "true cost K", "s", signed=True, cost=True),
    Quantity("blocking_s", "blocking S", "s"),
    Quantity("durable_s", "durable L", "s"),
    Quantity("write_bytes_per_s", "write speed", "bytes/s"),
)
# No write is in flight during it, so it is the same for every arm of a cycle or block, and compared once.
STEP = Quantity("control_step_s", "control step", "s")
TRAINING = "training alone"


@dataclass(frozen=True)
class Compared:
    """One quantity of `new` against `base`.

    `ratio` new / base, or `difference` new - base (unit of the quantity) where a ratio is not defined because one of
    the two is not resolved from 0; both None: one of the two was not measured.
    """

    arm: str
    quantity: Quantity
    base: Figure | None
    new: Figure | None
    ratio: Figure | None = None
    difference: Figure | None = None

    @property
    def outcome(self) -> Outcome:
        """Resolved only where the whole interval lies on one side."""
        figure, even = (self.ratio, 1.0) if self.ratio is not None else (self.difference, 0.0)
        if figure is None:
            return "not_measured"
        return "higher" if figure.low > even else "lower" if figure.high < even else "not_resolved"

    def exceeds(self, limit: float) -> bool:
        """The middle value of `new` is higher by more than `limit` (share of base); resolved or not.

        Without a ratio, against a base that is not above 0 every increase is more than any share of it.
        """
        if self.ratio is not None:
            return self.ratio.median > 1 + limit
        if self.difference is None or self.base is None:
            return False
        return self.difference.median > limit * max(self.base.median, 0.0)


@dataclass(frozen=True)
class Comparison:
    """All quantities of all arms that can be compared. `period`: at which both shares are stated."""

    pairing: Pairing
    period: Period
    rows: list[Compared]
    left_out: list[str]  # arms that only one of the two results has

    def worse(self, limit: float) -> list[Compared]:
        """Costs that rose by more than `limit`, resolved (`outcome` higher) or within noise."""
        return [row for row in self.rows if row.quantity.cost and row.exceeds(limit)]

    @property
    def lost(self) -> list[Compared]:
        """Costs that `base` has and `new`, which was to measure them, has not: nobody knows whether they rose."""
        return [row for row in self.rows if row.quantity.cost and row.base is not None and row.new is None]

    @property
    def judged(self) -> bool:
        """Some cost was measured on both sides."""
        return any(row.quantity.cost and row.outcome != "not_measured" for row in self.rows)


# --- two results ------------------------------------------------------------------------------------------------------
def unpaired(base: Accounted, new: Accounted) -> Comparison:
    """Training alone, and every arm that both results have; both shares at the period of `base`."""
    period = base.period
    shared = [name for name in base.arms if name in new.arms]
    rows = [_unpaired(TRAINING, STEP, base.measured(name), new.measured(name), period) for name in shared[:1]]
    rows += [
        _unpaired(name, quantity, base.measured(name), new.measured(name), period)
        for name in shared
        if name != CONTROL_ARM
        for quantity in QUANTITIES
    ]
    return Comparison("unpaired", period, rows, sorted(base.arms.keys() ^ new.arms.keys()))


def _unpaired(arm: str, quantity: Quantity, base: Sequence[Sample], new: Sequence[Sample], period: Period) -> Compared:
    ours, theirs = _values(base, quantity, period), _values(new, quantity, period)
    samples = (*_columns(ours), *_columns(theirs))
    row = Compared(arm, quantity, _figure(ours, quantity), _figure(theirs, quantity))
    if not ours or not theirs:
        return row
    if _has_ratio(row, [value for _, value in (*ours, *theirs)]):
        return Compared(arm, quantity, row.base, row.new, ratio=shift_ratio(*samples))
    return Compared(arm, quantity, row.base, row.new, difference=shift_figure(*samples))


Valued = list[tuple[Sample, float]]


def _values(samples: Iterable[Sample], quantity: Quantity, period: Period) -> Valued:
    found: Valued = []
    for sample in samples:
        if quantity.name == "share":
            share = sample_share(sample, period)
            value = None if share is None else share.share
        else:
            value = getattr(sample, quantity.name)
        if value is not None:
            found.append((sample, value))
    return found


def _columns(valued: Valued) -> tuple[list[float], list[int]]:
    """Values and the launches they come from."""
    return [value for _, value in valued], [sample.launch for sample, _ in valued]


def _figure(valued: Valued, quantity: Quantity) -> Figure | None:
    return clustered_figure(*_columns(valued), positive=not quantity.signed)


def _has_ratio(row: Compared, values: Iterable[float]) -> bool:
    """A ratio says something where both sides are resolved from 0."""
    resolved = all(figure is not None and figure.low > 0 for figure in (row.base, row.new))
    return resolved and min(values) > 0


# --- two arms of one result -------------------------------------------------------------------------------------------
def paired(result: Accounted, base_arm: str, new_arm: str) -> Comparison:
    """`new_arm` against `base_arm` of one result, pair by pair within each cycle or block; at the result's period."""
    period, title = result.period, f"{new_arm} against {base_arm}"
    rows = [_paired(title, quantity, result, base_arm, new_arm, period) for quantity in QUANTITIES]
    return Comparison("paired", period, rows, [])


def _paired(title: str, quantity: Quantity, result: Accounted, base_arm: str, new_arm: str, period: Period) -> Compared:
    base = _values(result.measured(base_arm), quantity, period)
    new = _values(result.measured(new_arm), quantity, period)
    row = Compared(title, quantity, _figure(base, quantity), _figure(new, quantity))
    ours, theirs = _by_turn(base, result), _by_turn(new, result)
    turns = [turn for turn in ours if turn in theirs]
    pairs = [(theirs[turn], ours[turn]) for turn in turns]
    groups: list[Hashable] = [turn[:2] for turn in turns]
    if not pairs:
        return row
    if _has_ratio(row, [value for pair in pairs for value in pair]):
        return Compared(title, quantity, row.base, row.new, ratio=ratio_figure(pairs, groups))
    difference = clustered_figure([a - b for a, b in pairs], groups)
    return Compared(title, quantity, row.base, row.new, difference=difference)


Turn = tuple[int, int, int]  # occasion, block, cycle


def _by_turn(valued: Valued, result: Accounted) -> dict[Turn, float]:
    """Median of an arm's values in each turn; the quick design has one a turn, the full design a launch's."""
    blocks = result.blocks()
    found: dict[Turn, list[float]] = {}
    for sample, value in valued:
        found.setdefault((*blocks[sample.launch], sample.cycle), []).append(value)
    return {turn: median(values) for turn, values in found.items()}
