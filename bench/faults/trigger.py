"""In a rank: strikes what is due at the places that the training loop passes, and costs next to nothing elsewhere."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from bench.faults import create
from bench.faults.base import Missed, NodeFault, Planned, RankFault, Scene
from bench.faults.claim import claim, claimed, record_of, withdraw
from bench.record import clock, process_start_ticks


class Reached(Protocol):
    def reach(self, moment: str, step: int) -> None: ...


class Nothing:
    """In place of a Trigger where no fault is planned."""

    def reach(self, moment: str, step: int) -> None:
        """Nothing is ever due."""


class Trigger:
    """The faults of one slot in one attempt: make a new one for every attempt, also within one process.

    What strikes in a recovery does so in attempts that began after the fault before it, so what has been claimed is
    read here, once.
    """

    def __init__(self, planned: Sequence[Planned], scene: Scene) -> None:
        fired = claimed(scene.faults_dir)
        self._pending = [p for p in planned if p.id not in fired and (p.after is None or p.after in fired)]
        self._scene = scene
        self._lasting: list[Iterator[None]] = []
        self._least: dict[str, float] = {}
        self._look_ahead()

    def reach(self, moment: str, step: int) -> None:
        """Called at every moment of bench.config.MOMENTS, before every step, with `step` finished ones.

        Where nothing is due it is one look into a dict. Raises, kills, stops or delays where a fault is.
        """
        if step >= self._least.get(moment, math.inf):
            self._act(moment, step)

    def _act(self, moment: str, step: int) -> None:
        if moment == "step":
            self._lasting = [effect for effect in self._lasting if next(effect, effect) is None]
        for planned in [p for p in self._pending if p.at == moment and step >= _due(p)]:
            self._fire(planned, step)
        self._look_ahead()

    def _fire(self, planned: Planned, step: int) -> None:
        fault, process = create(planned.kind), (os.getpid(), process_start_ticks())
        if isinstance(fault, NodeFault):
            self._pending.remove(planned)
            request(planned, step, self._scene, process)
        elif isinstance(fault, RankFault):
            details = fault.prepare(planned, self._scene)
            if details is not None:
                record = record_of(planned, step, self._scene.rank, process, "rank", details)
                self._strike(fault, planned, record)

    def _strike(self, fault: RankFault, planned: Planned, record: dict[str, Any]) -> None:
        self._pending.remove(planned)
        if not claim(self._scene.faults_dir, record):
            return
        try:
            effect = fault.strike(planned, self._scene, record["details"])
        except Missed:
            withdraw(self._scene.faults_dir, planned.id)
            self._pending.append(planned)
        else:
            self._lasting += [] if effect is None else [effect]

    def _look_ahead(self) -> None:
        """The least step at which there is something to do, by moment."""
        self._least = {}
        for planned in self._pending:
            self._least[planned.at] = min(_due(planned), self._least.get(planned.at, math.inf))
        if self._lasting:
            self._least["step"] = 0


def _due(planned: Planned) -> int:
    return planned.step if planned.after is None else 0


def trigger_for(planned: Sequence[Planned], scene: Scene) -> Reached:
    """The trigger of this slot, for the faults of its launch; Nothing for a slot that has none."""
    own = [p for p in planned if (p.node, p.local_rank) == (scene.node, scene.local_rank)]
    return Trigger(own, scene) if own else Nothing()


def request(planned: Planned, step: int, scene: Scene, process: tuple[int, int]) -> None:
    """Ask the node's runner for a fault; it appears under its name at once and whole. Asking again changes nothing."""
    wish = {"planned": planned.to_json(), "step": step, "rank": scene.rank, "process": process, "mono": clock()}
    path = scene.requests_dir / f"{planned.id}.json"
    temporary = path.with_suffix(f".{process[0]}.tmp")
    temporary.write_text(json.dumps(wish))
    os.replace(temporary, path)
