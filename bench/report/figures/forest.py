"""A comparison at a glance: each quantity's ratio with its interval, and the line where nothing differs."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.ticker import FuncFormatter

from bench.measure.compare import Compared, Comparison
from bench.report.figures.base import Missing, Picture
from bench.report.figures.style import BLUE, GREY, INK, VERMILLION, canvas
from bench.report.words import INTERVAL_NAMES

FACES = {"higher": VERMILLION, "lower": BLUE, "not_resolved": "white"}
MARKERS = {"higher": ">", "lower": "<", "not_resolved": "o"}


def draw(comparison: Comparison) -> Picture:
    """One line a quantity. Differences without a ratio have no place here, and are named in the caption."""
    rows = [row for row in comparison.rows if row.ratio is not None]
    if not rows:
        raise Missing("no ratio is defined: no quantity is resolved from 0 on both sides (the table has differences)")
    figure, axes = canvas(0.9 + 0.27 * len(rows))
    for place, row in enumerate(rows):
        ratio = row.ratio
        if ratio is not None:
            axes.plot([ratio.low, ratio.high], [place, place], color=INK, linewidth=1.4)
            axes.plot(
                [ratio.median],
                [place],
                marker=MARKERS[row.outcome],
                markersize=7,
                markerfacecolor=FACES[row.outcome],
                markeredgecolor=INK,
            )
    axes.axvline(1, color=GREY, linestyle="--")
    axes.set_xscale("log")
    axes.minorticks_off()
    low = min(row.ratio.low for row in rows if row.ratio)
    high = max(row.ratio.high for row in rows if row.ratio)
    axes.set_xticks([tick for tick in TICKS if low / 1.5 <= tick <= high * 1.5])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_yticks(range(len(rows)), [f"{row.arm}: {row.quantity.title}" for row in rows], fontsize=7.5)
    axes.invert_yaxis()
    axes.set_xlabel("new / base (1: no change; logarithmic)")
    axes.grid(axis="x")
    return Picture(figure, _caption(rows, comparison), _says(rows))


TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 1, 1.25, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def _caption(rows: Sequence[Compared], comparison: Comparison) -> str:
    kinds = sorted({INTERVAL_NAMES[row.ratio.interval] for row in rows if row.ratio})
    counts = sorted({row.ratio.n for row in rows if row.ratio})
    n = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
    left = [f"{row.arm}: {row.quantity.title}" for row in comparison.rows if row.ratio is None]
    out = f" Without a ratio: {'; '.join(left)}." if left else ""
    pairs = "pairs" if comparison.pairing == "paired" else "values"
    return f"Ratios of medians with {' / '.join(kinds)}, {n} {pairs}; open circles: not resolved from no change.{out}"


def _says(rows: Sequence[Compared]) -> str:
    resolved = [f"{row.arm}: {row.quantity.title} {row.outcome}" for row in rows if row.outcome in ("higher", "lower")]
    others = sum(row.outcome == "not_resolved" for row in rows)
    texts = [f"Resolved: {', '.join(resolved)}" if resolved else "No difference is resolved"]
    texts += [f"{others} more remain open" if resolved else f"all {others} remain open"] if others else []
    return f"{'; '.join(texts)}."
