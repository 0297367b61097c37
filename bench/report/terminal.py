"""The terminal: the plan, where the run stands, the table of arms and the verdicts in words."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bench.config import Run
from bench.design import Launch
from bench.predict import Prediction
from bench.progress import Progress
from bench.report import recovery
from bench.report.words import INTERVAL_NAMES, MISSING, digits, duration, percent, seconds, size, span, with_interval
from bench.schema import Arm, Figure, Summary, Verdict

LINE_EVERY_S = 15.0  # progress lines where there is no terminal to redraw
MARK = {
    "holds": "holds",
    "does_not_hold": "does not hold",
    "not_decided": "not decided",
    "not_measured": "not measured",
}
STYLE = {"holds": "bold green", "does_not_hold": "bold", "not_decided": "yellow", "not_measured": "dim"}
LEVEL = {"invalid": "bold red", "warn": "yellow", "note": "dim"}

LABEL_WIDTH, ARM_WIDTH = 18, 24  # columns of a table of arms
PLAIN_WIDTH = 100  # of output that goes to a file or a pipe


def cell(name: str, form: Callable[[float | None], str]) -> Callable[[Arm], str]:
    """The figure `name` of an arm as "median [low, high]"; the interval's numbers are in the median's unit."""

    def write(arm: Arm) -> str:
        figure: Figure | None = getattr(arm, name)
        return MISSING if figure is None else with_interval(figure, form)

    return write


def _write_speed(arm: Arm) -> str:
    if arm.write_bytes_per_s is None:
        return MISSING
    share = f", {arm.storage_ceiling_share * 100:.0f} % of probe" if arm.storage_ceiling_share is not None else ""
    return f"{size(arm.write_bytes_per_s.median)}/s{share}"


VERIFIED = {True: "yes", False: "NO", None: MISSING}
ROWS: tuple[tuple[str, Callable[[Arm], str]], ...] = (
    ("share K/P", cell("share", percent)),
    ("  visible S/P", cell("stall_share", percent)),
    ("true cost K", cell("cost_s", seconds)),
    ("blocking S", cell("blocking_s", seconds)),
    ("hidden K-S", cell("hidden_s", seconds)),
    ("durable L", cell("durable_s", seconds)),
    ("first save", cell("first_save_s", seconds)),
    ("40 % below P =", lambda arm: seconds(arm.period_at_40_s)),
    ("written", lambda arm: size(arm.written_bytes)),
    ("write speed", _write_speed),
    ("limited by", lambda arm: arm.limited_by or MISSING),
    ("load, cold", cell("load_cold_s", seconds)),
    ("load, warm", cell("load_warm_s", seconds)),
    ("deletion", cell("delete_s", seconds)),
    ("host memory", lambda arm: size(arm.peak_host_bytes.median) if arm.peak_host_bytes else MISSING),
    ("/dev/shm", lambda arm: size(arm.peak_shm_bytes.median) if arm.peak_shm_bytes else MISSING),
    ("content verified", lambda arm: VERIFIED[arm.content_verified]),
    ("saves measured", lambda arm: f"{arm.cycles} in {arm.launches} launches"),
)


def figure_tables(columns: Sequence[tuple[str, Arm]], width: int) -> Iterator[Table]:
    """One column an arm (or a size), one line a figure: it stays readable at 80 columns and with many arms.

    A figure that no column has (loads of a smoke run, memory in the quick design) has no line.
    """
    fitting = max((width - LABEL_WIDTH) // ARM_WIDTH, 1)
    for first in range(0, len(columns), fitting):
        shown = columns[first : first + fitting]
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        table.add_column("", justify="left", no_wrap=True)
        for title, _ in shown:
            table.add_column(title, justify="left", no_wrap=True)
        for label, text in ROWS:
            if any(text(arm) != MISSING for _, arm in columns):
                table.add_row(label, *(text(arm) for _, arm in shown))
        yield table


def _sweep_cells(point: dict[str, Any]) -> tuple[str, ...]:
    shares = [Figure(**found) if (found := point[name]) else None for name in ("share", "predicted_share")]
    measured, predicted = (MISSING if share is None else with_interval(share, percent) for share in shares)
    period = seconds(point["period_s"]) + " *" * point["saturated"]
    words = {True: "overlap", False: "DIFFER", None: ""}[point["agree"]]
    steps = point["interval_steps"]
    return f"{steps} step{'s' * (steps > 1)}", period, measured, predicted, words


def _launch_words(launch: Launch) -> str:
    if launch.endures:
        return recovery.launch_words(launch)
    saves = sum(segment.saves for segment in launch.segments)
    return f"{', '.join(launch.arms)}  ({saves or 'auto'} saves)"


class Terminal:
    """Writes to standard output; redraws one line of progress on a terminal, prints plain lines elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        if console is None and not self.console.is_terminal:
            self.console.width = PLAIN_WIDTH
        self._live: Live | None = None
        self._last_line = 0.0
        self._told_timeouts = False
        self._told = -1  # the last launch of whose faults was told

    def say(self, text: str = "", style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)

    # --- before
    def plan(self, config: Run, launches: Sequence[Launch], expected: Prediction) -> None:
        where = (
            f"{config.num_nodes} node{'s' * (config.num_nodes > 1)} x {config.ranks_per_node} ranks on {config.device}"
        )
        self.say(f"{config.scenario}: {config.about}", "bold")
        stamp = "  REHEARSAL: emulated nodes, never cluster figures" if config.cluster.name == "emulated" else ""
        self.say(f"  {config.design.name} design, {where}, model {config.model.name}{stamp}")
        compared = f"arms: {', '.join(config.checkpoint.arms)}"
        if config.design.name == "recovery":
            compared += f"; {recovery.planned(config, launches)}"
        self.say(f"  checkpoint {size(expected.checkpoint_bytes)} over {config.world_size} ranks; {compared}")
        self.say(f"  {len(launches)} launches; expected {duration(expected.seconds)}, {self._hours(config, expected)}")

    def _hours(self, config: Run, expected: Prediction) -> str:
        if expected.gpu_hours is None:
            return "GPU-hours unknown"
        unit = "GPU-hours" if config.device == "cuda" else "slot-hours"
        money = f", {digits(expected.money)} in your currency" if expected.money is not None else ""
        budget = f"; the budget ends it after {config.budget.minutes:g} minutes" if config.budget.minutes else ""
        return f"{digits(expected.gpu_hours)} {unit}{money}{budget}"

    def other_design(self, config: Run, other: tuple[str, Prediction] | None) -> None:
        if other is not None:
            name, expected = other
            self.say(f"  design={name} instead: {duration(expected.seconds)}, {self._hours(config, expected)}")

    def dry_run(
        self, launches: Sequence[Launch], expected: Prediction, commands: Sequence[list[str]], obstacle: str | None
    ) -> None:
        """What follows the plan where nothing is started. `obstacle`: why this machine could not run it as asked."""
        self.say("\nlaunches", "bold")
        for launch in launches:
            self.say(f"  {launch.index:3}  {launch.kind:9} {_launch_words(launch)}")
        self.say("\nassumed, until the pilot launch has measured it", "bold")
        for assumption in expected.assumptions:
            self.say(f"  {assumption}")
        if commands:
            self.say("\ncommands", "bold")
        for command in commands:
            self.say(f"  {shlex.join(command)}")
        if obstacle is not None:
            self.say(f"\nnot to be run like this: {obstacle}", "yellow")
        self.say("\nNothing was started (dry_run=true).")

    # --- while it runs
    def progress(self, progress: Progress) -> None:
        text = f"launch {progress.number} of {progress.of} ({progress.kind})"
        if progress.arm is None:
            text += ", starting"
        else:
            cycle = f", cycle {progress.cycle} of {progress.cycles}" if progress.cycle is not None else ""
            rate = f", {digits(progress.steps_per_s)} steps/s" if progress.steps_per_s else ""
            text += f", {progress.arm}{cycle}, {progress.saves} saves{rate}"
        text += f", about {duration(progress.left_s)} left" if progress.left_s is not None else ""
        if self.console.is_terminal:
            self._redraw(text)
        elif time.monotonic() - self._last_line > LINE_EVERY_S:
            self._last_line = time.monotonic()
            self.say(text)

    def _redraw(self, text: str) -> None:
        if self._live is None:
            self._live = Live(console=self.console, transient=True, refresh_per_second=4)
            self._live.start()
        self._live.update(Text(text, style="cyan"))

    def _still(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def launch_ended(self, record: dict[str, Any], of: int) -> None:
        self._still()
        took = f", {duration(record['ended'] - record['started'])}" if "ended" in record else ""
        reason = f": {record['reason']}" if record.get("reason") else ""
        style = "" if record["status"] == "ok" else "yellow"
        self.say(f"launch {record['index']} ({record['kind']}) {record['status']}{took}{reason}", style)

    def timeouts(self, record: dict[str, Any]) -> None:
        """Once per run, as soon as the pilot has told them."""
        if record.get("timeouts") and not self._told_timeouts:
            self._told_timeouts = True
            self.say(f"  timeouts, from the pilot; {'; '.join(recovery.timeouts_words(record['timeouts']))}", "dim")

    def provisional(self, summary: Summary) -> None:
        """One line after each launch; intervals are still wide."""
        if summary.design == "recovery":
            self._provisional_recovery(summary)
            return
        shares = [
            f"{arm.name} {percent(arm.share.median)} [{span(arm.share)}]"
            for arm in summary.arms
            if arm.share and arm.name != "none"
        ]
        if shares:
            n = min(arm.share.n for arm in summary.arms if arm.share)
            self.say(f"  so far, {n} saves an arm: {'; '.join(shares)} of the period", "dim")

    def _provisional_recovery(self, summary: Summary) -> None:
        last = max((record.launch for record in summary.recoveries), default=self._told)
        if last > self._told:
            self._told = last
            self.say(f"  {recovery.provisional(summary.recoveries, last)}", "dim")

    # --- the result
    def result(self, summary: Summary, folder: Path) -> None:
        self._still()
        self.say()
        for stamp in summary.stamps:
            self.say(stamp, "bold yellow")
        if summary.design == "recovery":
            self._recoveries(summary)
        else:
            self._arms(summary)
            self._sweep(summary)
        self.verdicts(summary.verdicts)
        self._checks(summary)
        self.say(f"\nresult: {folder}")

    def _arms(self, summary: Summary) -> None:
        if not any(arm.blocking_s for arm in summary.arms):
            self.say("no save was measured", "yellow")
            return
        self.say("What a checkpoint costs", "bold")
        columns = [(f"{arm.name}{' (saturated)' if arm.saturated else ''}", arm) for arm in summary.arms]
        for table in figure_tables(columns, self.console.width):
            self.console.print(table)
        self.say(self._legend(summary), "dim")

    def _recoveries(self, summary: Summary) -> None:
        if not summary.layers:
            self.say("no launch with a fault was measured", "yellow")
            return
        self.say("What came of each fault", "bold")
        for number, table in enumerate(recovery.matrix(summary.layers, self.console.width)):
            if number:
                self.say()
            self.console.print(table)
        for line in recovery.left_out(summary.recoveries):
            self.say(line, "dim")
        self.say(recovery.legend(summary), "dim")
        self.say("\nWhere the time went, s", "bold")
        for label, table in recovery.parts(summary.layers, summary.time_unit):
            self.say(label)
            self.console.print(table)
        self.say("\nWhat each layer costs", "bold")
        self.console.print(recovery.prices(summary.layers))

    def _sweep(self, summary: Summary) -> None:
        """The share at every measured interval beside what the longest one predicts; a table an arm."""
        if not summary.sweep:
            return
        self.say("\nThe share K/P at several intervals, and what K and L of the longest predict", "bold")
        for arm in dict.fromkeys(point["arm"] for point in summary.sweep):
            table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
            for title in (arm, "period", "share measured", "predicted", ""):
                table.add_column(title, justify="left", no_wrap=True)
            for point in summary.sweep:
                if point["arm"] == arm:
                    table.add_row(*_sweep_cells(point))
            self.console.print(table)
        if any(point["saturated"] for point in summary.sweep):
            self.say("* saturated: the write outlasts the period, so saves wait for each other", "dim")

    def _legend(self, summary: Summary) -> str:
        periods = sorted(arm.period_s for arm in summary.arms if arm.period_s is not None)
        texts = [seconds(periods[0]), seconds(periods[-1])] if periods else [MISSING]
        step = next((arm.step_s.median for arm in summary.arms if arm.step_s), None)
        kinds = sorted({INTERVAL_NAMES[arm.cost_s.interval] for arm in summary.arms if arm.cost_s})
        launches = max((arm.launches for arm in summary.arms), default=0)
        parts = [
            f"period P {' to '.join(dict.fromkeys(texts))}",
            f"step {seconds(step)}",
            f"medians [{' / '.join(kinds)}] over {launches} launch{'es' * (launches != 1)}",
        ]
        if summary.probe_bytes_per_s:
            parts.append(f"storage probe {size(summary.probe_bytes_per_s.median)}/s")
        if summary.synced_probe_bytes_per_s:
            parts.append(f"with fsync {size(summary.synced_probe_bytes_per_s.median)}/s")
        return "; ".join([*parts, "definitions: METHOD.md"])

    def verdicts(self, verdicts: Sequence[Verdict]) -> None:
        self.say("\nVerdicts", "bold")
        for verdict in verdicts:
            line = Text("  ")
            line.append(f"{verdict.claim}: {MARK[verdict.outcome]}. ", STYLE[verdict.outcome])
            line.append(verdict.text)
            self.console.print(line, soft_wrap=True)

    def _checks(self, summary: Summary) -> None:
        doubts = [check for check in summary.checks if check.level in LEVEL]
        passed = sum(check.level == "ok" for check in summary.checks)
        partial = " (interrupted: partial result)" if summary.interrupted else ""
        self.say(f"\nstatus: {summary.status}{partial}; {passed} checks passed", "bold")
        for check in sorted(doubts, key=lambda check: list(LEVEL).index(check.level)):
            line = Text("  ")
            line.append(f"{check.level}: ", LEVEL[check.level])
            line.append(f"{check.name}: {check.reason}{f'. {check.remedy}' if check.remedy else ''}")
            self.console.print(line, soft_wrap=True)
