"""report.html from a notebook: its text, what its cells show, their code folded away; one file, no network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from bench.errors import BadInput
from bench.measure.accounted import Accounted
from bench.measure.series import Series
from bench.report import notebook
from bench.report.figures.base import Drawing
from bench.report.page.look import CSS, PAGE
from bench.report.page.markup import Block, folded, tag, text
from bench.report.tables import write_tables

JUPYTER_ONLY = "jupyter"  # tag of a cell that speaks to somebody with the notebook open, and is left out of the page


def fitting(result: Accounted) -> str:
    """The notebook that fits a result."""
    return "recovery" if result.summary.recoveries else "report"


def write_report(result: Accounted, folder: Path, name: str | None = None) -> Path:
    """report.html, figures/*.svg and tables/*.csv in `folder`; the path of the page. Raises BadInput."""
    done = notebook.execute(notebook.path_of(name or fitting(result)), {"run": result})
    report = done.variables["report"]
    try:
        for part in ("figures", "tables"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        write_figures(report.drawings, folder / "figures")
        write_tables(result, folder / "tables")
        return write_page(done, report.title, folder / "report.html")
    except OSError as error:
        raise BadInput(f"out: {folder} cannot be written ({error.strerror}); give out=FOLDER") from None


def write_series(series: Series, target: Path) -> Path:
    """NAME.html and NAME_figures/*.svg beside the series' file NAME.json; the path of the page. Raises BadInput."""
    done = notebook.execute(notebook.path_of("series"), {"runs": series})
    report = done.variables["report"]
    figures = target.with_name(f"{target.stem}_figures")
    try:
        figures.mkdir(exist_ok=True)
        write_figures(report.drawings, figures)
        return write_page(done, report.title, target.with_suffix(".html"))
    except OSError as error:
        raise BadInput(f"out: {target.parent} cannot be written ({error.strerror}); give out=FILE") from None


def write_figures(drawings: Mapping[str, Drawing], folder: Path) -> list[Path]:
    """NAME.svg of every figure that there is, in `folder`, which exists."""
    paths = []
    for drawing in drawings.values():
        if drawing.svg is not None:
            path = folder / f"{drawing.name}.svg"
            path.write_text(drawing.svg)
            paths.append(path)
    return paths


def write_page(done: notebook.Executed, title: str, path: Path) -> Path:
    """Replaced in one step, so that a browser never sees half a page."""
    content = PAGE.format(title=escape(title), css=CSS, body=body(done.cells))
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(content)
    os.replace(temporary, path)
    return path


def body(cells: Iterable[notebook.Cell]) -> str:
    """All cells in their order; before the first section a table of contents."""
    shown = [cell for cell in cells if JUPYTER_ONLY not in cell.tags]
    parts = [part for cell in shown for part in _cell(cell)]
    entries = [tag("li", text("a", title, href=f"#{_slug(title)}")) for title in _headings(shown)]
    first = next((place for place, part in enumerate(parts) if "<h2" in part), None)
    if first is not None:
        parts.insert(first, tag("nav", folded("Contents", tag("ol", "".join(entries)))))
    return "\n".join(parts)


def _headings(cells: Iterable[notebook.Cell]) -> Iterator[str]:
    for cell in cells:
        if cell.kind == "markdown":
            yield from re.findall(r"^## (.+)$", cell.source, re.MULTILINE)


def _slug(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def _cell(cell: notebook.Cell) -> Iterator[str]:
    if cell.kind == "markdown":
        yield _markdown(cell.source)
        return
    if cell.shown is not None:
        yield _shown(cell.shown)
    if notebook.PARAMETERS not in cell.tags:
        yield folded("code", tag("pre", text("code", cell.source)), "code")


def _shown(value: Any) -> str:
    return value.html if isinstance(value, Block) else tag("pre", escape(str(value)))


def _markdown(source: str) -> str:
    html = str(MarkdownIt("commonmark").enable("table").render(source))
    return re.sub(r"<h2>(.+?)</h2>", lambda match: f'<h2 id="{_slug(match[1])}">{match[1]}</h2>', html)
