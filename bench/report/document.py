"""What the notebooks call: a report of a result, whose parts show themselves in Jupyter and in report.html alike."""

from __future__ import annotations

from pathlib import Path

from bench.errors import BadInput, near
from bench.measure.accounted import Accounted
from bench.report import figures
from bench.report.data import dates, read_result
from bench.report.figures.base import Drawing
from bench.report.page import blocks, markup
from bench.report.page.first import first_page
from bench.report.page.look import CSS
from bench.report.page.markup import Block


def open_report(run: str | Path | Accounted) -> Report:
    """The report of a result folder (or of a result at hand). Raises BadInput."""
    return Report(run if isinstance(run, Accounted) else read_result(Path(run), "run"))


class Report:
    """One result. Each method returns a part of the report; figures are drawn once and kept in `drawings`."""

    def __init__(self, result: Accounted) -> None:
        self.result = result
        self.drawings: dict[str, Drawing] = {}

    @property
    def title(self) -> str:
        return f"{self.result.summary.scenario} on {self.result.summary.machine}"

    def head(self) -> Block:
        """Which result this is, and its stamps; brings the style along, which Jupyter needs once."""
        days = ", ".join(dates(self.result))
        about = markup.text("p", f"{self.title}{f', {days}' if days else ''}", class_="small")
        return Block(about + blocks.stamps(self.result).html, markup.tag("style", CSS))

    def first_page(self) -> Block:
        return blocks.first(first_page(self.result))

    def claims(self) -> Block:
        return blocks.claims(self.result.summary.verdicts)

    def claim(self, name: str) -> Block:
        """One verdict. Raises BadInput for a claim that this result says nothing about."""
        found = {verdict.claim: verdict for verdict in self.result.summary.verdicts}
        if name not in found:
            raise BadInput(f"claim: this result has no verdict on {name!r}; {near(name, found)}")
        return blocks.claims([found[name]]) + Block(markup.text("p", found[name].text, class_="says"))

    def status(self) -> Block:
        return blocks.status(self.result.summary)

    def facts(self) -> Block:
        return blocks.facts(self.result)

    def arms(self) -> Block:
        return blocks.arms(self.result.summary.arms)

    def sweep(self) -> Block:
        return blocks.sweep(self.result)

    def episodes(self) -> Block:
        return blocks.episodes(self.result)

    def layers(self) -> Block:
        return blocks.layers(self.result)

    def objections(self) -> Block:
        return blocks.objection_table(self.result)

    def columns(self) -> Block:
        return blocks.columns()

    def figure(self, name: str) -> Block:
        """The figure `name` of bench.report.figures.FIGURES. Raises BadInput."""
        if name not in figures.FIGURES:
            raise BadInput(f"figure: no figure {name!r}; {near(name, figures.FIGURES)}")
        if name not in self.drawings:
            self.drawings[name] = figures.draw(name, self.result)
        return markup.figure(self.drawings[name])
