"""`python -m bench report`: one result as after its run and as report.html, or several joined over sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.errors import BadInput
from bench.measure.accounted import Accounted
from bench.measure.series import Series, checkpoint_bytes, series, unlike_in_series
from bench.report.accounts import read_account
from bench.report.arguments import help_text, key_values, paths, yes_or_no
from bench.report.data import read_result
from bench.report.notebook import path_of
from bench.report.terminal import Terminal, figure_tables
from bench.report.trace import write_trace
from bench.report.words import size
from bench.results import write_json

USAGE = (
    "python -m bench report [run=RESULT] [notebook=NAME] [out=FOLDER] [format=terminal] [trace=true [launch=K]]",
    "python -m bench report run=[RESULT,RESULT,...] [out=FILE] [format=terminal]",
)
KEYS = {
    "run": "result folder (default: results/latest); several as [A,B,C] make a series over sizes",
    "out": "folder of report.html, figures/, tables/ (default: the result's); of a series: the file series.json",
    "format": "html (default), or terminal: print only, write no report.html",
    "notebook": "the notebook to make report.html of (default: the one that fits), e.g. claim_40_percent",
    "trace": "true: also write a trace of one launch, for ui.perfetto.dev or chrome://tracing",
    "launch": "with trace: which launch (default: the first measured one)",
}
CODES = "0 reported, 1 a result is invalid, 2 bad input"
FORMATS = ("html", "terminal")


def usage() -> str:
    return help_text(USAGE, KEYS, CODES)


def report(words: Sequence[str], terminal: Terminal | None = None) -> int:
    """Carry out the command. Returns the exit code. Raises BadInput."""
    given = key_values(words, KEYS)
    terminal = terminal or Terminal()
    chosen = given.get("format", "html")
    if chosen not in FORMATS:
        raise BadInput(f"format: must be html or terminal, got {chosen!r}")
    folders = paths("run", given.get("run", "results/latest"))
    if len(folders) == 1:
        return _one(folders[0], given, chosen == "html", terminal)
    for key in ("notebook", "trace", "launch"):
        if key in given:
            raise BadInput(f"{key}: goes with one result; leave it out, or give one run=")
    return _several(folders, _target(given.get("out")), chosen == "html", terminal)


# --- one result
def _one(folder: Path, given: Mapping[str, str], html: bool, terminal: Terminal) -> int:
    """The same summary as after the run, derived again from the events; then the page, and the trace if asked for."""
    traced, launch = _trace_words(given)
    name = given.get("notebook")
    if name is not None:
        path_of(name)  # refused before anything is read
    result = read_result(folder, "run")
    target = _folder(given["out"]) if "out" in given else folder.resolve()
    terminal.result(result.summary, folder.resolve())
    if html:
        from bench.report.html import write_report  # half a second for matplotlib

        terminal.say(f"report: {write_report(result, target, name)}")
    if traced:
        terminal.say(f"trace:  {write_trace(result, target, launch)} (open it at ui.perfetto.dev)")
    return 1 if result.summary.status == "invalid" else 0


def _trace_words(given: Mapping[str, str]) -> tuple[bool, int | None]:
    traced = yes_or_no("trace", given.get("trace", "false"))
    launch = given.get("launch")
    if launch is None:
        return traced, None
    if not traced:
        raise BadInput("launch: goes with trace=true; give both, or leave it out")
    if not launch.isdigit():
        raise BadInput(f"launch: must be the number of a launch, e.g. launch=1, got {launch!r}")
    return traced, int(launch)


def _folder(name: str) -> Path:
    path = Path(name)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"out: {path} cannot be made ({error.strerror}); give out=FOLDER") from None
    return path.resolve()


# --- several
def _target(out: str | None) -> Path:
    path = Path(out or "series.json")
    path = path / "series.json" if path.is_dir() else path
    if not path.parent.is_dir():
        raise BadInput(f"out: {path.parent} does not exist; create it or give another file")
    return path


def joined(folders: Sequence[Path]) -> Series:
    """The series of these results. Raises BadInput where they do not belong together."""
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise BadInput("run: names a result twice; list each once")
    results = [read_account(folder, "run") for folder in folders]
    unlike = unlike_in_series(results)
    if unlike is not None:
        raise BadInput(f"run: a series may differ in world size and bytes only, these differ in {unlike}")
    return series(results)


def _several(folders: Sequence[Path], target: Path, html: bool, terminal: Terminal) -> int:
    found = joined(folders)
    try:
        write_json(target, found.to_json())
    except OSError as error:
        raise BadInput(f"out: {target} cannot be written ({error.strerror}); give out=FILE") from None
    _print(found, terminal)
    terminal.say(f"\nseries: {target}")
    if html:
        from bench.report.html import write_series  # half a second for matplotlib

        terminal.say(f"report: {write_series(found, target)}")
    return 1 if any(result.summary.status == "invalid" for result in found.results) else 0


def _print(found: Series, terminal: Terminal) -> None:
    """A table an arm, one column a size."""
    for stamp in dict.fromkeys(stamp for result in found.results for stamp in result.summary.stamps):
        terminal.say(stamp, "bold yellow")
    names = dict.fromkeys(name for result in found.results for name in result.arms)
    for name in names:
        terminal.say(f"\n{name}", "bold")
        columns = [(_size(result), result.arms[name]) for result in found.results if name in result.arms]
        for table in figure_tables(columns, terminal.console.width):
            terminal.console.print(table)
    terminal.verdicts(found.verdicts)
    for result in found.results:
        if result.summary.status != "valid":
            terminal.say(f"  {_size(result)}: {result.summary.status}, see its own report", "yellow")


def _size(result: Accounted) -> str:
    summary = result.summary
    return f"{summary.num_nodes} x {summary.world_size // summary.num_nodes}, {size(checkpoint_bytes(result))}"
