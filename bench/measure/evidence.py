"""What the validity checks look at, and how they answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bench.measure.events import Event, LaunchRecord
from bench.measure.sweep import Point
from bench.schema import Arm, Check, LayerFigures, LedgerRow, Recovery, Sample

Level = Literal["ok", "note", "warn", "invalid"]


@dataclass(frozen=True)
class Evidence:
    """A whole result, read and accounted."""

    launches: Sequence[LaunchRecord]
    samples: Sequence[Sample]  # of the launches that the arms' figures rest on
    ledger: Sequence[LedgerRow]
    arms: Sequence[Arm]
    config: dict[str, Any]  # fields of bench.config.Run
    environment: dict[str, Any]
    sweep: Sequence[Point] = ()  # the arms at several intervals, where that was measured
    recoveries: Sequence[Recovery] = ()
    layers: Sequence[LayerFigures] = ()

    @property
    def measured_launches(self) -> list[LaunchRecord]:
        """All but the pilots."""
        return [launch for launch in self.launches if launch.kind != "pilot"]

    def measured(self, arm: str) -> list[Sample]:
        """The arm's measured saves in order of time."""
        found = [sample for sample in self.samples if sample.measured and sample.arm == arm]
        return sorted(found, key=lambda sample: (sample.launch, sample.cycle, sample.save))


def answer(name: str, level: Level, reason: str, remedy: str) -> Check:
    """A check's result; what is fine needs no remedy."""
    return Check(name, level, reason, "" if level == "ok" else remedy)


def instants(launch: LaunchRecord, name: str) -> list[Event]:
    """The node runners' instants of that name."""
    return [event for runner in launch.runners for event in runner.named(name)]


def listed(items: Iterable[object], most: int = 4) -> str:
    """The first few of `items`, and how many more there are."""
    texts = [str(item) for item in items]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
