"""What the notebooks on several results call: a series over sizes, and a comparison of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.measure.accounted import Accounted
from bench.measure.compare import Comparison
from bench.measure.likeness import likeness
from bench.measure.series import Series, checkpoint_bytes
from bench.report.comparison import compared, reading, shown
from bench.report.figures import forest, over_sizes
from bench.report.figures.base import Drawing, drawn
from bench.report.page import blocks, markup
from bench.report.page.look import CSS
from bench.report.page.markup import Block
from bench.report.series import joined
from bench.report.words import MISSING, size


def _head(about: str, stamps: Sequence[str]) -> Block:
    """Stamps of all results, once each."""
    shown = "".join(markup.text("p", stamp, class_="stamp") for stamp in dict.fromkeys(stamps))
    return Block(markup.text("p", about, class_="small") + shown, markup.tag("style", CSS))


# --- series
def open_series(runs: Sequence[str | Path] | Series) -> SeriesReport:
    """Results that differ in size only. Raises BadInput."""
    return SeriesReport(runs if isinstance(runs, Series) else joined([Path(run) for run in runs]))


class SeriesReport:
    """Several results over sizes; the smallest world first."""

    def __init__(self, series: Series) -> None:
        self.series = series
        self.drawings: dict[str, Drawing] = {}

    @property
    def title(self) -> str:
        return f"Series over {', '.join(map(over_sizes.size_of, self.series.results))}"

    def head(self) -> Block:
        scenarios = ", ".join(dict.fromkeys(result.summary.scenario for result in self.series.results))
        stamps = [stamp for result in self.series.results for stamp in result.summary.stamps]
        return _head(f"{self.title} ({scenarios})", stamps)

    def claims(self) -> Block:
        return blocks.claims(self.series.verdicts)

    def figure(self) -> Block:
        if not self.drawings:
            picture = drawn("over_sizes", "From size to size", lambda: over_sizes.draw(self.series.results))
            self.drawings[picture.name] = picture
        return markup.figure(self.drawings["over_sizes"])

    def arms(self) -> Block:
        """A table an arm, a column a size."""
        found = Block("")
        for name in dict.fromkeys(name for result in self.series.results for name in result.arms):
            results = [result for result in self.series.results if name in result.arms]
            heads = [f"{over_sizes.size_of(result)}, {size(checkpoint_bytes(result))}" for result in results]
            table = blocks.arms([result.arms[name] for result in results], heads)
            found = found + Block(markup.text("h3", name)) + table
        return found

    def status(self) -> Block:
        rows = [
            (over_sizes.size_of(result), result.summary.status, ", ".join(_doubts(result)) or MISSING)
            for result in self.series.results
        ]
        return Block(markup.table(["size", "status", "warnings (each result's own report has them)"], rows, "words"))


def _doubts(result: Accounted) -> list[str]:
    return [check.name for check in result.summary.checks if check.level in ("warn", "invalid")]


# --- comparison
def open_comparison(
    base: str | None = None,
    new: str | None = None,
    run: str | None = None,
    base_arm: str | None = None,
    new_arm: str | None = None,
    allow_unlike: bool = False,
) -> ComparisonReport:
    """Two results (base, new), or two arms of one (run, base_arm, new_arm). Raises BadInput."""
    given = {"base": base, "new": new, "run": run, "base_arm": base_arm, "new_arm": new_arm}
    words = {key: value for key, value in given.items() if value}
    if allow_unlike:
        words["allow_unlike"] = "true"
    results, comparison = compared(words)
    return ComparisonReport(words, results, comparison)


class ComparisonReport:
    """One result, or arm, against another."""

    def __init__(self, given: Mapping[str, str], results: Mapping[str, Accounted], comparison: Comparison) -> None:
        self.given, self.results, self.comparison = given, results, comparison
        self.drawings: dict[str, Drawing] = {}

    @property
    def title(self) -> str:
        if "run" in self.results:
            return f"{self.given['new_arm']} against {self.given['base_arm']}"
        return "new against base"

    def head(self) -> Block:
        stamps = [stamp for result in self.results.values() for stamp in result.summary.stamps]
        stamps += [
            f"{key} is INVALID: do not rely on its figures"
            for key, result in self.results.items()
            if result.summary.status == "invalid"
        ]
        if "new" in self.results and (work := likeness(self.results["base"], self.results["new"]).work):
            stamps.append(f"UNLIKE WORK, compared as asked: {'; '.join(map(str, work))}")
        return _head(self.title, stamps)

    def differences(self) -> Block:
        """What else was different, where two results are compared."""
        if "new" not in self.results:
            return Block(markup.text("p", "Two arms of one result: same machine, same launches, in turns."))
        alike = likeness(self.results["base"], self.results["new"])
        rows = [
            (kind, each.field, each.base, each.new)
            for kind, found in (("settings", alike.settings), ("environment", alike.environment))
            for each in found
        ]
        if not rows:
            return Block(markup.text("p", "Nothing on record differs: settings, versions and machine are the same."))
        return Block(markup.table(["", "field", "base", "new"], rows, "words"))

    def figure(self) -> Block:
        if not self.drawings:
            picture = drawn("forest", "What changed", lambda: forest.draw(self.comparison))
            self.drawings[picture.name] = picture
        return markup.figure(self.drawings["forest"])

    def table(self) -> Block:
        rows = [
            (row.arm, row.quantity.title, shown(row.base, row), shown(row.new, row), reading(row))
            for row in self.comparison.rows
        ]
        return Block(markup.table(["arm", "quantity", "base", "new", "reading"], rows, "words reading"))
