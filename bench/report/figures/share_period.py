"""The share of time that saving costs over the period between saves, with the claim's line and what was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bench.measure.accounted import Accounted
from bench.measure.shares import share_at_period
from bench.measure.verdicts import SYNC_SHARE
from bench.report.data import counted, in_background, saving_arms, sync_arm
from bench.report.figures.base import Missing, Picture
from bench.report.figures.style import FEW, INK, YELLOW, below, canvas, decades, look, percent_axis, seconds_axis
from bench.report.words import INTERVAL_NAMES, percent, seconds, with_interval
from bench.schema import Arm, Figure

FLOOR = 1e-3  # shares below 0.1 % are drawn there
POINTS = 240
BESIDE = 1.025  # points of several arms at one period lie side by side, by this factor


def draw(result: Accounted) -> Picture:
    arms = [arm for arm in saving_arms(result) if arm.cost_s is not None and arm.cost_s.median > 0]
    if not arms:
        raise Missing("no arm has a cost K that is resolved from 0; measure more cycles or launches")
    figure, axes = canvas(3.9)
    periods = _periods(arms)
    for number, arm in enumerate(arms):
        _curve(axes, arm, periods, band=len(arms) <= FEW)
        _measured(axes, arm, result, BESIDE ** (number - (len(arms) - 1) / 2))
    axes.axhline(SYNC_SHARE, color=INK, linewidth=1)
    axes.text(periods[-1], SYNC_SHARE * 1.06, "40 %, as published", ha="right", fontsize=7.5)
    axes.set(xscale="log", yscale="log", xlim=(periods[0], periods[-1]), ylim=(FLOOR, 1.15))
    axes.set_xlabel("period from one save to the next")
    axes.set_ylabel("share of the time, K / P")
    axes.set_yticks([0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0])
    axes.set_xticks(decades(periods[0], periods[-1]))
    axes.minorticks_off()
    percent_axis(axes.yaxis)
    seconds_axis(axes.xaxis)
    axes.grid()
    below(axes, figure)
    return Picture(figure, _caption(result, arms), _says(result))


def _periods(arms: list[Arm]) -> NDArray[np.float64]:
    costs = [arm.cost_s.median for arm in arms if arm.cost_s]
    far = [arm.period_s for arm in arms if arm.period_s] + [arm.durable_s.median for arm in arms if arm.durable_s]
    periods: NDArray[np.float64] = np.geomspace(
        min(costs), max([100 * max(costs), *(4 * each for each in far)]), POINTS
    )
    return periods


def _curve(axes: Axes, arm: Arm, periods: NDArray[np.float64], band: bool) -> None:
    """K / P with the band of K's interval; dotted where saves wait for each other, because P cannot go below L."""
    cost, durable_s = arm.cost_s, arm.durable_s.median if arm.durable_s and in_background(arm) else None
    if cost is None:
        return
    style = look(arm.name)
    middle, low, high = (_shares(periods, value, durable_s) for value in (cost.median, cost.low, cost.high))
    if band:
        axes.fill_between(periods, low, high, color=style.colour, alpha=0.16, linewidth=0)
    hidden = periods >= max(durable_s or 0.0, cost.median)
    effects = [patheffects.withStroke(linewidth=2.6, foreground=INK)] if style.colour == YELLOW else []
    axes.plot(
        periods[hidden], middle[hidden], color=style.colour, linestyle=style.line, label=arm.name, path_effects=effects
    )
    if durable_s is not None and not hidden.all():
        axes.plot(periods[~hidden], middle[~hidden], color=style.colour, linestyle=":", linewidth=1)


def _shares(periods: NDArray[np.float64], cost_s: float, durable_s: float | None) -> NDArray[np.float64]:
    found = [share_at_period(float(period), cost_s, durable_s) for period in periods]
    shares = [FLOOR if each is None or each.share is None else max(each.share, FLOOR) for each in found]
    return np.array(shares)


def _measured(axes: Axes, arm: Arm, result: Accounted, beside: float) -> None:
    """The share at the stated period, and every interval of a sweep; open where the saves waited for each other."""
    if arm.share is not None and arm.period_s is not None:
        _point(axes, arm.name, beside * arm.period_s, arm.share, bool(arm.saturated))
    for point in result.summary.sweep:
        if point["arm"] == arm.name and point["share"] is not None:
            share = point["share"]
            figure = share if isinstance(share, Figure) else Figure(**share)
            _point(axes, arm.name, beside * point["period_s"], figure, bool(point["saturated"]))


def _point(axes: Axes, arm: str, period_s: float, share: Figure, saturated: bool) -> None:
    style = look(arm)
    middle = max(share.median, FLOOR)
    errors = [[middle - max(share.low, FLOOR)], [max(share.high, FLOOR) - middle]]
    options: dict[str, Any] = {"markerfacecolor": "white"} if saturated else {}
    axes.errorbar(
        [period_s],
        [middle],
        yerr=errors,
        color=style.colour,
        marker=style.marker,
        markeredgecolor=INK,
        markeredgewidth=0.6,
        markersize=6,
        capsize=2,
        linestyle="none",
        zorder=4,
        **options,
    )


def _caption(result: Accounted, arms: list[Arm]) -> str:
    sweep = " and at every interval of the sweep" if result.summary.sweep else ""
    left_out = [arm.name for arm in saving_arms(result) if arm not in arms]
    missing = f" Not drawn, as K is not above 0: {', '.join(left_out)}." if left_out else ""
    dotted = " Dotted: shorter than the write itself, so saves wait." if any(map(in_background, arms)) else ""
    return (
        f"Lines: K / P from the measured K ({_band(arms)}{counted(result)}). Points: "
        f"{_kind(result)} at the stated period{sweep}, with its interval; open: saves waited for each other.{dotted} "
        f"Both axes logarithmic; shares below 0.1 % are drawn there; points at one period lie side by side.{missing}"
    )


def _band(arms: list[Arm]) -> str:
    kinds = sorted({INTERVAL_NAMES[arm.cost_s.interval] for arm in arms if arm.cost_s})
    return f"band: {' / '.join(kinds)} of K; " if len(arms) <= FEW else ""


def _kind(result: Accounted) -> str:
    return "the share derived from each save's K" if result.summary.design == "quick" else "the share as measured"


def _says(result: Accounted) -> str:
    known = [(arm.share.median, arm) for arm in saving_arms(result) if arm.share is not None]
    ordered = [arm for _, arm in sorted(known, key=lambda pair: pair[0])]
    shown = ordered if len(ordered) <= FEW else [ordered[0], ordered[-1]]
    parts = [
        f"{arm.name} costs {with_interval(arm.share, percent)} at a period of {seconds(arm.period_s)}"
        for arm in shown
        if arm.share is not None
    ]
    if len(shown) < len(ordered):
        parts.append(f"the other {len(ordered) - len(shown)} lie in between")
    sync = sync_arm(result)
    limit = ""
    if sync is not None and sync.period_at_40_s is not None:
        limit = f" {sync.name} reaches 40 % only below a period of {seconds(sync.period_at_40_s)} (2.5 K)."
    return f"{'; '.join(parts)}.{limit}"
