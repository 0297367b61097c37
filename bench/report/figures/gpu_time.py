"""Where the GPU time went: a bar an arm, every second of it in one category, what nothing explains included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from bench.measure.accounted import Accounted
from bench.measure.events import LaunchRecord
from bench.measure.recoveries import is_recovery
from bench.report.data import measured_launches
from bench.report.figures.base import Missing, Picture
from bench.report.figures.style import FEW, FILLS, INK, below, box, canvas, percent_axis
from bench.report.words import digits, percent
from bench.schema import CATEGORIES, TWIN, LedgerRow

TOGETHER = "all launches"
LEAST_SHARE = 5e-4  # of a bar; less is not seen, and takes no line of the legend
ORDER = (*(name for name in CATEGORIES if name not in ("useful", "unattributed")), "unattributed", "useful")


@dataclass(frozen=True)
class Bar:
    """Slot-seconds (GPU-seconds on CUDA) of one arm, layer or of all launches, by category."""

    name: str
    seconds: Mapping[str, float]

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())

    def share(self, category: str) -> float:
        return self.seconds.get(category, 0.0) / self.total_s


def draw(result: Accounted) -> Picture:
    found = [bar for bar in bars(result) if bar.total_s > 0]
    if not found:
        raise Missing("no ledger: the node runners' begin and end of a launch are not on record")
    figure, (whole, close) = canvas(1.5 + 0.46 * len(found), rows=2)
    shown = [category for category in ORDER if any(abs(bar.share(category)) >= LEAST_SHARE for bar in found)]
    _stack(whole, found, [c for c in ORDER if c in shown], limit=1.0)
    _stack(close, found, [c for c in shown if c != "useful"], limit=None)
    whole.set_title("all of the time", loc="left")
    close.set_title("the same without the steps that counted, enlarged", loc="left")
    named = dict.fromkeys([*shown, "unattributed"])
    below(whole, figure, 4, [_patch(category) for category in named])
    unit = result.summary.time_unit
    caption = (
        f"Share of the {unit} of each bar, summed over {len(measured_launches(result)) or 'the'} launches and "
        f"{result.summary.world_size} slots, from the node runners' clocks; right: total {unit}. Sums, so no interval. "
        f"{_about(result)}"
    )
    return Picture(figure, caption, says(found))


def bars(result: Accounted) -> list[Bar]:
    """One bar an arm where arms have launches of their own (else of what belongs to an arm alone), and one for all."""
    kinds = {launch.index: launch for launch in measured_launches(result)}
    rows = [row for row in result.ledger if not result.launches or row.launch in kinds]
    if any(map(is_recovery, kinds.values())):
        by_layer = {index: _layer(launch) for index, launch in kinds.items()}
        groups = {name: [row for row in rows if by_layer.get(row.launch) == name] for name in by_layer.values()}
    elif kinds and all(len(launch.launch["arms"]) == 1 for launch in kinds.values()):
        only = {index: launch.launch["arms"][0] for index, launch in kinds.items()}
        groups = {arm: [row for row in rows if only[row.launch] == arm] for arm in result.arms}
    else:
        groups = {arm: [row for row in rows if row.arm == arm] for arm in result.arms}
    return [*(_bar(name, group) for name, group in groups.items() if group), _bar(TOGETHER, rows)]


def _layer(launch: LaunchRecord) -> str:
    return "no faults" if launch.kind == TWIN else str(launch.launch["layer"])


def _bar(name: str, rows: Iterable[LedgerRow]) -> Bar:
    seconds: dict[str, float] = {}
    for row in rows:
        seconds[row.category] = seconds.get(row.category, 0.0) + row.seconds
    return Bar(name, seconds)


def _stack(axes: Axes, found: list[Bar], categories: list[str], limit: float | None) -> None:
    """Positive shares to the right of zero, negative ones (interference, unattributed) to the left."""
    for place, bar in enumerate(found):
        right = left = 0.0
        for category in categories:
            share = bar.share(category)
            if abs(share) < LEAST_SHARE / 10:
                continue
            axes.barh(place, share, left=right if share > 0 else left, height=0.66, **box(*FILLS[category]))
            right, left = (right + share, left) if share > 0 else (right, left + share)
        text = f"{digits(bar.total_s)} s" if limit else percent(right + left)
        axes.text(max(right, 0.0), place, f"  {text}", va="center", fontsize=7.5)
    axes.set_yticks(range(len(found)), [bar.name for bar in found])
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.margins(x=0.16)
    percent_axis(axes.xaxis)
    axes.grid(axis="x")


def _patch(category: str) -> Patch:
    return Patch(label=category.replace("_", " "), **box(*FILLS[category]))


def _about(result: Accounted) -> str:
    if result.summary.recoveries:
        return "Launches of one recovery layer make a bar; those without faults make one of their own."
    if result.summary.design == "quick":
        return (
            "In the quick design arms take turns within a launch and save far more often than a job: these bars say "
            "what the method did with its time, not what share a job would lose."
        )
    return "Each launch belongs to one arm and saves at the stated interval."


def says(found: list[Bar]) -> str:
    """Of the bars (of many: the ends) the useful share and the largest loss."""
    parts = []
    shown = found if len(found) <= FEW + 1 else [*_ends(found[:-1]), found[-1]]
    for bar in shown:
        losses = {name: bar.share(name) for name in bar.seconds if name != "useful"}
        worst = max(losses, key=lambda name: losses[name], default=None)
        loss = f", most of the rest {worst.replace('_', ' ')} ({percent(losses[worst])})" if worst else ""
        parts.append(f"{bar.name}: {percent(bar.share('useful'))} useful{loss}")
    return f"{'; '.join(parts)}. Unattributed over all: {percent(found[-1].share('unattributed'))}."


def _ends(found: list[Bar]) -> list[Bar]:
    ordered = sorted(found, key=lambda bar: bar.share("useful"))
    return [ordered[0], ordered[-1]]
