"""Figures of a plan: goodput over cluster sizes, and the tornado. Each names what it rests on."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from bench.plan.answer import Answer
from bench.plan.sizes import SizeRow
from bench.report.planning import TORNADO_ROWS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TODAY_COLOUR, TOGETHER_COLOUR = "#b35806", "#2166ac"


def write_figures(found: Answer, folder: Path) -> list[Path]:
    """plan_sizes.png and plan_sensitivity.png in `folder`, which exists."""
    paths = []
    for name, draw in (("plan_sizes", sizes_figure), ("plan_sensitivity", sensitivity_figure)):
        path = folder / f"{name}.png"
        draw(found).savefig(path, dpi=150)
        paths.append(path)
    return paths


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG, for a notebook."""
    buffer = BytesIO()
    figure.savefig(buffer, dpi=100)
    return buffer.getvalue()


def _empty(height: float) -> tuple[Figure, Axes]:
    """A figure of its own, without pyplot: nothing global, nothing left open."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, height), layout="constrained")
    return figure, figure.subplots()


def sizes_figure(found: Answer) -> Figure:
    """Goodput over the number of GPUs, a band for each set-up; the planned size is marked."""
    figure, axes = _empty(4.5)
    rows = found.sizes
    _band(axes, rows, "today", TODAY_COLOUR, "synchronous saves, restart of the whole job")
    _band(axes, rows, "together", TOGETHER_COLOUR, "all layers together")
    axes.axvline(found.inputs.plan.gpus, color="0.4", linestyle=":", label=f"planned size ({found.label})")
    axes.set_xscale("log")
    axes.set_ylim(0, 1)
    axes.set_xlabel("GPUs")
    axes.set_ylabel("goodput at the best period")
    figure.suptitle("Every size but the planned one is extrapolated: perfect scaling to none")
    axes.legend(loc="lower left")
    axes.grid(alpha=0.3)
    return figure


def _band(axes: Axes, rows: list[SizeRow], name: str, colour: str, label: str) -> None:
    ranges = [getattr(row, name) for row in rows]
    low, high = [each.low for each in ranges], [each.high for each in ranges]
    axes.fill_between([row.gpus for row in rows], low, high, color=colour, alpha=0.3, label=label)
    for edge in (low, high):
        axes.plot([row.gpus for row in rows], edge, color=colour, linewidth=1)


def sensitivity_figure(found: Answer) -> Figure:
    """How far each input moves the saving of the decision, widest on top."""
    figure, axes = _empty(4.0)
    bars = found.bars[:TORNADO_ROWS][::-1]
    left = [min(bar.at_low, bar.at_high) * 100 for bar in bars]
    axes.barh(
        [f"{bar.name} ({bar.kind})" for bar in bars],
        [bar.swing * 100 for bar in bars],
        left=left,
        color=TOGETHER_COLOUR,
    )
    axes.axvline(found.saving(found.decision).share * 100, color="0.2", linewidth=1)
    axes.set_xlabel("saving, % of GPU time")
    figure.suptitle(f"What decides the saving of {found.decision} ({found.label})")
    axes.grid(axis="x", alpha=0.3)
    return figure
