"""`python -m bench report`: one result as it was shown after its run, or several joined over sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.errors import BadInput
from bench.measure.accounted import Accounted
from bench.measure.series import Series, checkpoint_bytes, series, unlike_in_series
from bench.report.accounts import read_account
from bench.report.arguments import help_text, key_values, paths
from bench.report.terminal import Terminal, figure_tables
from bench.report.words import size
from bench.results import write_json

USAGE = ("python -m bench report [run=RESULT]", "python -m bench report run=[RESULT,RESULT,...] [out=FILE]")
KEYS = {
    "run": "result folder (default: results/latest); several as [A,B,C] make a series over sizes",
    "out": "of a series: where series.json goes, a file or a folder (default: the current folder)",
}
CODES = "0 reported, 1 a result is invalid, 2 bad input"


def usage() -> str:
    return help_text(USAGE, KEYS, CODES)


def report(words: Sequence[str], terminal: Terminal | None = None) -> int:
    """Carry out the command. Returns the exit code. Raises BadInput."""
    given = key_values(words, KEYS)
    terminal = terminal or Terminal()
    folders = paths("run", given.get("run", "results/latest"))
    if len(folders) == 1:
        if "out" in given:
            raise BadInput("out: goes with a series; give run=[A,B], or leave out=... out")
        return _one(folders[0], terminal)
    return _several(folders, _target(given.get("out")), terminal)


def _one(folder: Path, terminal: Terminal) -> int:
    """The same summary as after the run, derived again from the events."""
    summary = read_account(folder, "run").summary
    terminal.result(summary, folder.resolve())
    return 1 if summary.status == "invalid" else 0


def _target(out: str | None) -> Path:
    path = Path(out or "series.json")
    path = path / "series.json" if path.is_dir() else path
    if not path.parent.is_dir():
        raise BadInput(f"out: {path.parent} does not exist; create it or give another file")
    return path


def _several(folders: Sequence[Path], target: Path, terminal: Terminal) -> int:
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise BadInput("run: names a result twice; list each once")
    results = [read_account(folder, "run") for folder in folders]
    unlike = unlike_in_series(results)
    if unlike is not None:
        raise BadInput(f"run: a series may differ in world size and bytes only, these differ in {unlike}")
    joined = series(results)
    try:
        write_json(target, joined.to_json())
    except OSError as error:
        raise BadInput(f"out: {target} cannot be written ({error.strerror}); give out=FILE") from None
    _print(joined, terminal)
    terminal.say(f"\nseries: {target}")
    return 1 if any(result.summary.status == "invalid" for result in results) else 0


def _print(joined: Series, terminal: Terminal) -> None:
    """A table an arm, one column a size."""
    for stamp in dict.fromkeys(stamp for result in joined.results for stamp in result.summary.stamps):
        terminal.say(stamp, "bold yellow")
    names = dict.fromkeys(name for result in joined.results for name in result.arms)
    for name in names:
        terminal.say(f"\n{name}", "bold")
        columns = [(_size(result), result.arms[name]) for result in joined.results if name in result.arms]
        for table in figure_tables(columns, terminal.console.width):
            terminal.console.print(table)
    terminal.verdicts(joined.verdicts)
    for result in joined.results:
        if result.summary.status != "valid":
            terminal.say(f"  {_size(result)}: {result.summary.status}, see its own report", "yellow")


def _size(result: Accounted) -> str:
    summary = result.summary
    return f"{summary.num_nodes} x {summary.world_size // summary.num_nodes}, {size(checkpoint_bytes(result))}"
