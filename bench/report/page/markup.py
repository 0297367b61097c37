"""HTML by hand, in few words: escaped text, tables that scroll by themselves, figures that carry their own file."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from bench.report.figures.base import Drawing


@dataclass(frozen=True)
class Block:
    """A piece of a report: `html` goes into report.html; Jupyter shows it in a box of its own, with `style` once."""

    html: str
    style: str = ""

    def _repr_html_(self) -> str:
        return self.style + tag("div", self.html, class_="bench")

    def __add__(self, other: Block) -> Block:
        return Block(self.html + other.html, self.style + other.style)


def tag(name: str, content: str, **attributes: str) -> str:
    """`content` is HTML already; attribute values are text. `class_` stands for class, data_x for data-x."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return f"<{name}{given}>{content}</{name}>"


def text(name: str, content: str, **attributes: str) -> str:
    return tag(name, escape(content), **attributes)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table that scrolls inside of its own box where the page is narrow. Cells are text."""
    head = tag("tr", "".join(text("th", each, scope="col") for each in heads))
    body = "".join(_row(heads, row) for row in rows)
    return tag(
        "div", tag("table", tag("thead", head) + tag("tbody", body)), class_=f"scroll {kind}".strip(), tabindex="0"
    )


def _row(heads: Sequence[str], row: Sequence[str]) -> str:
    """On a phone a table of words is shown cell under cell, so each cell brings its head along."""
    cells = (text("td", cell, data_label=head) for head, cell in zip(heads[1:], row[1:], strict=True))
    return tag("tr", text("th", row[0], scope="row") + "".join(cells))


def listed(items: Iterable[str]) -> str:
    return tag("ul", "".join(text("li", item) for item in items))


def folded(summary: str, content: str, kind: str = "more") -> str:
    return tag("details", text("summary", summary) + content, class_=kind)


def figure(drawing: Drawing) -> Block:
    """The picture with its caption and what it says; the reason in its place where there is none."""
    if drawing.svg is None:
        return Block(text("p", f"No figure “{drawing.title}”: {drawing.gap}.", class_="gap"))
    image = f'<img src="{data_uri(drawing.svg)}" alt="{escape(f"{drawing.title}. {drawing.says}")}">'
    caption = text("figcaption", drawing.caption)
    return Block(tag("figure", image + caption, id=f"figure-{drawing.name}") + text("p", drawing.says, class_="says"))


def data_uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
