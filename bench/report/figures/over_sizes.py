"""Results of several sizes side by side: how long a write takes, and what a save costs, from size to size."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from bench.measure.accounted import Accounted
from bench.measure.saves import CONTROL_ARM
from bench.report.figures.base import Missing, Picture
from bench.report.figures.style import INK, below, canvas, look, plain_seconds
from bench.report.words import INTERVAL_NAMES, with_interval
from bench.report.words import seconds as in_seconds
from bench.schema import Figure

QUANTITIES = (("write_s", "one write"), ("cost_s", "true cost K of a save"), ("blocking_s", "blocking S of a save"))
WIDTH = 0.3  # of a size's place, over which the arms lie side by side


def draw(results: Sequence[Accounted]) -> Picture:
    """One place a size, in the order given; an arm keeps its place beside the others."""
    arms = [name for name in dict.fromkeys(name for result in results for name in result.arms) if name != CONTROL_ARM]
    if not any(figure(result, arm, name) for result in results for arm in arms for name, _ in QUANTITIES):
        raise Missing("no result of this series has a measured save")
    picture, rows = canvas(5.2, rows=len(QUANTITIES), sharex=True)
    for axes, (name, title) in zip(rows, QUANTITIES, strict=True):
        for number, arm in enumerate(arms):
            _arm(axes, results, arm, name, WIDTH * (number / max(len(arms) - 1, 1) - 0.5))
        axes.set_ylabel(title, fontsize=7.5)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        axes.yaxis.set_major_formatter(lambda value, _: plain_seconds(value))
        axes.grid(axis="y")
    rows[-1].set_xticks(range(len(results)), [size_of(result) for result in results])
    rows[-1].set_xlabel("nodes x ranks of a node")
    below(rows[0], picture, 4)
    kinds = {INTERVAL_NAMES[found.interval] for result in results for arm in arms if (found := figure(result, arm))}
    launches = sorted({arm.launches for result in results for arm in result.summary.arms if arm.launches})
    ends = launches[:1] + launches[-1:] if len(launches) > 1 else launches
    caption = (
        f"Seconds, medians with {' / '.join(sorted(kinds))}; n = {' to '.join(map(str, ends))} launches a size. Sizes "
        "are places, not a scale: nothing is drawn between or beyond them."
    )
    return Picture(picture, caption, _says(results, arms))


def figure(result: Accounted, arm: str, name: str = "cost_s") -> Figure | None:
    return getattr(result.arms[arm], name) if arm in result.arms else None


def size_of(result: Accounted) -> str:
    summary = result.summary
    return f"{summary.num_nodes} x {summary.world_size // summary.num_nodes}"


def _arm(axes: Axes, results: Sequence[Accounted], arm: str, name: str, shift: float) -> None:
    known = [(place, found) for place, result in enumerate(results) if (found := figure(result, arm, name))]
    if not known:
        return
    style = look(arm)
    axes.errorbar(
        [place + shift for place, _ in known],
        [found.median for _, found in known],
        yerr=[[f.median - f.low for _, f in known], [f.high - f.median for _, f in known]],
        color=style.colour,
        marker=style.marker,
        markeredgecolor=INK,
        markeredgewidth=0.5,
        capsize=2,
        linestyle="none",
        label=arm,
    )


def _says(results: Sequence[Accounted], arms: Sequence[str]) -> str:
    parts = []
    for arm in arms:
        writes = [
            f"{with_interval(found, in_seconds)} on {size_of(result)}"
            for result in results
            if (found := figure(result, arm, "write_s"))
        ]
        if writes:
            parts.append(f"a write of {arm} takes {', '.join(writes)}")
    return f"{'; '.join(parts)}."
