"""What a figure of a report is: a picture with its caption and what it says, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.measure.accounted import Accounted
from bench.report.figures import style


class Missing(Exception):
    """What a picture needs is not in the result. The text says what, and how to get it."""


@dataclass(frozen=True)
class Picture:
    """`caption`: what is drawn, units, n and interval. `says`: its message, in numbers of this result."""

    figure: Figure
    caption: str
    says: str


@dataclass(frozen=True)
class Kind:
    """One kind of figure: its title, and how it is drawn from a result (raises Missing)."""

    title: str
    draw: Callable[[Accounted], Picture]


@dataclass(frozen=True)
class Drawing:
    """A figure of a report; `svg` is None where `gap` says why there is nothing to draw."""

    name: str
    title: str
    svg: str | None = None
    caption: str = ""
    says: str = ""
    gap: str = ""


def drawn(name: str, title: str, draw: Callable[[], Picture]) -> Drawing:
    """Draw in the common style. What is missing becomes a named gap, never an empty picture."""
    try:
        with style.applied():
            picture = draw()
            return Drawing(name, title, _svg(picture.figure, name), picture.caption, picture.says)
    except Missing as missing:
        return Drawing(name, title, gap=str(missing))


def _svg(figure: Figure, name: str) -> str:
    """The same bytes for the same figure: no date, and identifiers that follow from the name."""
    buffer = StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return buffer.getvalue()
