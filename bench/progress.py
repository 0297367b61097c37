"""How far a running launch is, read from the events that its runners ship into the result folder."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import ResultFolder
from bench.schema import UNFINISHED


@dataclass(frozen=True)
class Progress:
    """Where the run stands. Unknown is None."""

    number: int  # of the launch under way, from 1
    of: int
    kind: str
    arm: str | None
    cycle: int | None
    cycles: int | None
    saves: int
    steps_per_s: float | None
    left_s: float | None


class Watcher:
    """Follows launch.json and the events of the first worker of each launch, reading only what is new."""

    def __init__(self, folder: ResultFolder, indices: list[int]) -> None:
        self.folder = folder
        self.indices = indices
        self._current: int | None = None
        self._offsets: dict[Path, int] = {}
        self._steps: list[float] = []
        self._last: dict[str, Any] = {}
        self._saves = 0
        self._durations: list[float] = []

    def look(self) -> tuple[Progress | None, list[dict[str, Any]]]:
        """The launch under way, and the records of launches that ended since the last look."""
        records = [(index, self.folder.read_launch(index)) for index in self.indices]
        running = [
            (number, record)
            for number, (_, record) in enumerate(records, 1)
            if record and record["status"] == "running"
        ]
        ended = [record for _, record in records if record and record["status"] not in UNFINISHED]
        if not running:
            return None, ended
        number, record = running[-1]
        if record["index"] != self._current:
            self._current, self._offsets, self._steps, self._last, self._saves = record["index"], {}, [], {}, 0
        self._read(self.folder.launch_dir(record["index"]) / "events")
        return self._progress(number, record), ended

    def _read(self, events: Path) -> None:
        for path in sorted(events.glob("worker-n0-r0-*.jsonl")):
            with open(path, "rb") as file:
                file.seek(self._offsets.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._offsets[path] = self._offsets.get(path, 0) + len(line)
                    self._note(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        if event["kind"] == "span" and event["name"] == "step":
            self._last = event
            self._steps.append(event["t1"])
        elif event["kind"] == "span" and event["name"] == "save":
            self._saves += 1

    def _progress(self, number: int, record: dict[str, Any]) -> Progress:
        recent = self._steps[-20:]
        rate = (len(recent) - 1) / (recent[-1] - recent[0]) if len(recent) > 2 else None
        cycles = [segment["cycle"] for segment in record["segments"] if segment["interval"] is None]
        cycle = self._last.get("cycle", -1)
        return Progress(
            number=number,
            of=len(self.indices),
            kind=record["kind"],
            arm=self._last.get("arm") or None,
            cycle=cycle + 1 if cycles and cycle >= 0 else None,
            cycles=max(cycles) + 1 if cycles else None,
            saves=self._saves,
            steps_per_s=rate,
            left_s=self._left(number, record),
        )

    def _left(self, number: int, record: dict[str, Any]) -> float | None:
        expected: float | None = record.get("expected_s")
        if expected is None:
            return None
        under_way = max(0.0, float(record["started"]) + expected - time.time())
        return under_way + expected * (len(self.indices) - number)
