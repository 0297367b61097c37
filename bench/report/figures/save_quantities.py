"""What one save costs, by strategy: how long it blocks, what it truly costs, when it is safe; every save a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bench.measure.accounted import Accounted
from bench.report.data import counted, measured
from bench.report.figures.base import Missing, Picture
from bench.report.figures.style import FEW, INK, below, canvas, decades, look, seconds_axis
from bench.report.words import INTERVAL_NAMES, seconds, with_interval
from bench.schema import Arm, Sample

QUANTITIES = (
    ("blocking_s", "S, blocks training", "log"),
    ("cost_s", "K, true cost", "linear"),
    ("durable_s", "L, until durable", "log"),
)
SPREAD = 0.3  # of a row's height, over which the saves of a row are laid out in their order


def draw(result: Accounted) -> Picture:
    arms = [arm for arm in result.summary.arms if arm.blocking_s is not None]
    if not arms:
        raise Missing("no save was measured; the checks say why")
    figure, columns = canvas(1.5 + 0.36 * len(arms), columns=3, sharey=True)
    saves = {arm.name: measured(result, arm.name) for arm in arms}
    for axes, (name, title, scale) in zip(columns, QUANTITIES, strict=True):
        for place, arm in enumerate(arms):
            _saves(axes, place, arm, saves[arm.name], name)
            _first(axes, place, arm, result.samples, name)
            _median(axes, place, arm, name)
        positive = any((found := getattr(arm, name)) is not None and found.median > 0 for arm in arms)
        _dress(axes, title, scale if positive else "linear")
    columns[0].set_yticks(range(len(arms)), [arm.name for arm in arms])
    columns[0].set_ylim(len(arms) - 0.4, -0.6)
    below(columns[0], figure, 3, _legend())
    kinds = sorted({INTERVAL_NAMES[arm.blocking_s.interval] for arm in arms if arm.blocking_s})
    caption = (
        f"Seconds at job level, from the last rank in; {counted(result)}. Points: saves, in their order from top to "
        f"bottom of a row. Bars: median and {' / '.join(kinds)}. First saves of a launch are shown, never measured. "
        "S and L on logarithmic axes; K may be negative by noise."
    )
    return Picture(figure, caption, _says(arms))


def _saves(axes: Axes, place: int, arm: Arm, saves: Sequence[Sample], name: str) -> None:
    values = [value for save in saves if (value := getattr(save, name)) is not None]
    style = look(arm.name)
    rows = [place - SPREAD + 2 * SPREAD * i / max(len(values) - 1, 1) for i in range(len(values))]
    axes.scatter(values, rows, s=11, marker=style.marker, color=style.colour, alpha=0.75, linewidths=0.8, zorder=2)


def _first(axes: Axes, place: int, arm: Arm, samples: Sequence[Sample], name: str) -> None:
    values = [
        value
        for save in samples
        if save.arm == arm.name and save.save == 0 and save.cycle >= 0 and (value := getattr(save, name)) is not None
    ]
    axes.scatter(values, [place + 0.4] * len(values), s=12, marker="o", facecolors="none", edgecolors="#777777")


def _median(axes: Axes, place: int, arm: Arm, name: str) -> None:
    figure = getattr(arm, name)
    if figure is not None:
        axes.plot([figure.low, figure.high], [place, place], color=INK, linewidth=2.4, solid_capstyle="butt", zorder=3)
        axes.plot([figure.median], [place], marker="|", markersize=13, markeredgewidth=2, color=INK, zorder=3)


def _dress(axes: Axes, title: str, scale: str) -> None:
    axes.set_title(title)
    axes.set_xscale(scale)
    if scale == "linear":
        axes.axvline(0, color=INK, linewidth=0.6)
    else:
        axes.set_xticks(decades(*axes.get_xlim(), most=5))
        axes.minorticks_off()
    seconds_axis(axes.xaxis)
    axes.tick_params(axis="x", labelrotation=35, which="both", labelsize=7)
    axes.grid(axis="x")


def _legend() -> list[Line2D]:
    line: dict[str, Any] = {"linestyle": "none", "color": INK}
    return [
        Line2D([], [], marker="D", markersize=4, label="a measured save", linestyle="none", color="#888888"),
        Line2D([], [], marker="o", markersize=4, markerfacecolor="none", label="first save of a launch", **line),
        Line2D(
            [], [], marker="|", markersize=11, markeredgewidth=2, label="median, interval", linewidth=2.4, color=INK
        ),
    ]


def _says(arms: Sequence[Arm]) -> str:
    """Of a few arms each one's S, K and L; of many the ends of the field."""
    if len(arms) <= FEW:
        return f"{'; '.join(map(_one, arms))}."
    costed = sorted((arm for arm in arms if arm.cost_s is not None and arm.durable_s is not None), key=_cost)
    blocking = sorted(costed, key=lambda arm: arm.blocking_s.median if arm.blocking_s else 0.0)
    if not costed:
        return f"{'; '.join(map(_one, arms[:FEW]))}."
    return (
        f"Least and most true cost: {_one(costed[0])}; {_one(costed[-1])}. Blocks training least: {_one(blocking[0])}. "
        "The table below has all."
    )


def _cost(arm: Arm) -> float:
    return arm.cost_s.median if arm.cost_s is not None else 0.0


def _one(arm: Arm) -> str:
    texts = [
        f"{letter} {with_interval(figure, seconds)}"
        for letter, figure in (("S", arm.blocking_s), ("K", arm.cost_s), ("L", arm.durable_s))
        if figure is not None
    ]
    return f"{arm.name}: {', '.join(texts)}"
