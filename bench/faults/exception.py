"""An exception in the training thread: a bug, bad data, an assertion."""

from __future__ import annotations

from typing import Any, NoReturn

from bench.faults.base import InjectedFault, Planned, RankFault, Scene


class RaisedException(RankFault):
    name = "exception"
    expects = "An exception leaves the training function; the process still lives and can tell."

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> NoReturn:
        raise InjectedFault(f"injected exception {planned.id} on rank {scene.rank}")
