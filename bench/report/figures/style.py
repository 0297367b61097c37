"""One look for all figures: colours for the colour-blind, markers and hatches that survive grey print, a narrow page.

Colours: M. Okabe and K. Ito, Color Universal Design (2008). Nothing is told by colour alone: arms differ in marker and
line as well, categories in hatch. Figures are as wide as a phone shows them without shrinking the letters much.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil, floor, log10
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

WIDTH_IN = 4.9
FEW = 4  # arms that a sentence, or bands one over the other, can take

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, PALE, INK = "#8C8C8C", "#DADADA", "#222222"

RC: dict[Any, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "white",
    "svg.fonttype": "path",  # the letters travel with the file
}


class Look(NamedTuple):
    colour: str
    marker: str
    line: str = "-"


class Fill(NamedTuple):
    colour: str
    hatch: str = ""


# Dashed: the training thread waits for the whole write. Solid: the write goes on in the background.
LOOKS = {
    "none": Look(GREY, "x", ":"),
    "sync_full": Look(PURPLE, "s", "--"),
    "sync_local": Look(VERMILLION, "D", "--"),
    "sync_dcp": Look(ORANGE, "p", "--"),
    "dcp_async_thread": Look(SKY, "v"),
    "dcp_async_process": Look(BLUE, "^"),
    "nvrx_async": Look(GREEN, "o"),
    "nvrx_dcp": Look(BLACK, "h"),
    "nvrx_local": Look(YELLOW, "*"),
}
SPARE = (Look(BLUE, "<"), Look(PURPLE, ">"), Look(ORANGE, "P"), Look(BLACK, "X"))

FILLS = {
    "useful": Fill("#E9EFEA"),
    "ckpt_stall": Fill(VERMILLION),
    "ckpt_peers": Fill(ORANGE, "////"),
    "interference": Fill(PURPLE, "xxxx"),
    "arrive": Fill(SKY, "\\\\\\"),
    "ckpt_drain": Fill(YELLOW, "----"),
    "replay": Fill(BLUE, "\\\\\\\\"),
    "aborted_step": Fill("#8FB8DE", "xxx"),
    "detect": Fill(BLACK),
    "stop": Fill(GREY, "////"),
    "queue": Fill(YELLOW, "..."),
    "restart": Fill(ORANGE, "---"),
    "load": Fill(GREEN, "----"),
    "first_step": Fill(SKY, "++"),
    "catch_up": Fill("#B9D9EE", "\\\\\\\\"),
    "idle": Fill("#F7E7C6", "||||"),
    "startup": Fill("#BDBDBD"),
    "shutdown": Fill("#969696", "\\\\"),
    "unattributed": Fill("white", "+++"),
}


def look(arm: str) -> Look:
    """How an arm is drawn; an arm that syncs beside one that does not is drawn like it, with another line."""
    known = LOOKS.get(arm.removesuffix("+fsync"))
    if known is None:
        return SPARE[sum(arm.encode()) % len(SPARE)]
    return known._replace(line="-.") if arm.endswith("+fsync") else known


def box(colour: Any, hatch: str = "", line: float = 0.4) -> dict[str, Any]:
    """A filled area with a thin dark edge, for patches and bars alike."""
    return {"facecolor": colour, "hatch": hatch, "edgecolor": INK, "linewidth": line}


@contextmanager
def applied() -> Iterator[None]:
    with mpl.rc_context(RC):
        yield


def canvas(height_in: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure of its own, without pyplot: nothing global, nothing left open. Returns it with its axes."""
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def below(axes: Axes, figure: Figure, columns: int = 3, handles: Sequence[Any] | None = None) -> None:
    """The legend under the figure, where no data can be."""
    found, labels = axes.get_legend_handles_labels()
    if handles is not None:
        found, labels = list(handles), [str(handle.get_label()) for handle in handles]
    if found:
        figure.legend(found, labels, loc="outside lower center", ncols=columns)


def percent_axis(axis: Any) -> None:
    """Shares of 1 as per cent."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.6g} %"))


def seconds_axis(axis: Any) -> None:
    """Seconds in the unit that a person would say, for axes over many powers of ten."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_seconds(value)))


def decades(low: float, high: float, most: int = 10) -> list[float]:
    """Round ticks of a logarithmic axis: 1, 2, 5, 10 ... where that makes `most` or fewer, else 1, 10, 100 ..."""
    exponents = range(floor(log10(low)), ceil(log10(high)) + 1)
    fine, coarse = (
        [tick for exponent in exponents for factor in factors if low <= (tick := factor * 10.0**exponent) <= high]
        for factors in ((1, 2, 5), (1,))
    )
    return fine if len(fine) <= most else coarse


def plain_seconds(value: float) -> str:
    """0.002 as "2 ms", 90 as "90 s", 7200 as "2 h"; three digits at most."""
    for unit, factor in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(value) >= 2 * factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g} s" if abs(value) >= 1 or value == 0 else f"{value * 1000:.3g} ms"
