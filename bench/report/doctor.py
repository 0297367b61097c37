"""What the doctor found, as people and programs read it."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from bench.config import Run
from bench.doctor.base import LEVELS, Check

PLAIN_WIDTH = 100  # of output that goes to a file or a pipe
NAME_WIDTH = 18
STYLE = {"fail": "bold red", "warn": "yellow", "skip": "dim", "ok": "green"}
SCHEMA_VERSION = 1  # of the JSON form


class Screen:
    """Writes to standard output, or to the console given, group by group, as soon as a group is known."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        if console is None and not self.console.is_terminal:
            self.console.width = PLAIN_WIDTH

    def say(self, text: str = "", style: str = "") -> None:
        self.console.print(Text(text, style=style))

    def head(self, config: Run) -> None:
        self.say(f"doctor: {config.scenario}, {_form(config)}", "bold")
        self.say(f"  {config.about}", "dim")

    def group(self, title: str, checks: Iterable[Check]) -> list[Check]:
        """Print the checks of a group; returns them. A remedy stands below what was found."""
        self.say(f"\n{title}", "bold")
        found = []
        for check in checks:
            found.append(check)
            self.check(check)
        return found

    def check(self, check: Check) -> None:
        skipped = "dim" if check.level == "skip" else ""
        head = Text(f"  {check.level:4} ", STYLE[check.level]).append(
            f"{check.name:{NAME_WIDTH}} ", skipped or "default"
        )
        indent = " " * len(head.plain)
        lines = [(line, skipped) for line in self._wrapped(check.found, len(indent))]
        remedy = f"-> {check.remedy}" if check.remedy else ""
        lines += [(line, skipped or "cyan") for line in self._wrapped(remedy, len(indent))]
        for number, (line, style) in enumerate(lines):
            self.console.print((Text(indent) if number else head).append(line, style), soft_wrap=True)

    def _wrapped(self, text: str, indent: int) -> list[str]:
        return textwrap.wrap(text, self.console.width - indent, break_long_words=False, break_on_hyphens=False)

    def verdict(self, checks: Sequence[Check]) -> None:
        counts = Counter(check.level for check in checks)
        self.say("\n" + ", ".join(f"{counts[level]} {level}" for level in LEVELS if counts[level]), "bold")
        failed = [check.name for check in checks if check.level == "fail"]
        if failed:
            self.say(f"The run as asked would not work here: {', '.join(dict.fromkeys(failed))}.", STYLE["fail"])
        else:
            self.say("Nothing stands in the way of the run.", STYLE["ok"])


def _form(config: Run) -> str:
    nodes = f"{config.num_nodes} node{'s' * (config.num_nodes > 1)}"
    return f"cluster={config.cluster.name}, {nodes} x {config.ranks_per_node} ranks on {config.device}"


def to_json(config: Run, found: Mapping[str, Sequence[Check]]) -> dict[str, object]:
    """The findings as one record; `level` is the worst of them, skipped ones aside."""
    checks = [asdict(check) | {"group": group} for group, checks in found.items() for check in checks]
    levels = {check["level"] for check in checks}
    worst = next((level for level in LEVELS if level != "skip" and level in levels), "ok")
    about = {name: getattr(config, name) for name in ("scenario", "num_nodes", "ranks_per_node", "device")}
    head = {"schema_version": SCHEMA_VERSION, **about, "cluster": config.cluster.name}
    return {**head, "level": worst, "checks": checks}


def print_json(config: Run, found: Mapping[str, Sequence[Check]]) -> None:
    print(json.dumps(to_json(config, found), indent=1, allow_nan=False))
