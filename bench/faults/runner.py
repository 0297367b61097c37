"""In a node runner: strikes what no rank can do to itself, and takes away afterwards whatever faults have left."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from bench.faults import create
from bench.faults.base import NodeFault, Planned, Site, planned_from_json
from bench.faults.claim import amend, claim, claimed, record_of, records, withdraw
from bench.record import clock as monotonic


def unavailable(planned: list[Planned], site: Site) -> dict[str, str]:
    """Why this node cannot do faults that are planned for it: {fault id: reason}. Tries each, and leaves nothing."""
    reasons = {p.id: _reason(p, site) for p in planned if p.node == site.node}
    return {id_: reason for id_, reason in reasons.items() if reason is not None}


def _reason(planned: Planned, site: Site) -> str | None:
    try:
        return create(planned.kind).unavailable(planned, site)
    except OSError as error:
        return str(error)


class Injector:
    """One node's faults in one launch. Never blocks for longer than a fault takes; meant to be polled every 20 ms."""

    def __init__(self, site: Site, clock: Callable[[], float] = monotonic) -> None:
        self._site = site
        self._clock = clock
        self._seen: set[str] = set()
        self._lifts: list[tuple[float, dict[str, Any]]] = []  # when to undo which record

    def poll(self) -> list[dict[str, Any]]:
        """Strike what ranks have asked for since the last call, lift what has lasted long enough.

        Returns the records of the faults that struck; one that the machine refused has no effect, is no longer on
        record, and comes with details.failed.
        """
        wishes = [json.loads((self._site.requests_dir / name).read_text()) for name in self._new_requests()]
        struck = [record for wish in wishes if (record := self._strike(wish)) is not None]
        due = [lift for lift in self._lifts if self._clock() >= lift[0]]
        for lift in due:
            self._lifts.remove(lift)
            self._lift(lift[1])
        return struck

    def finish(self) -> dict[str, dict[str, Any]]:
        """After the launch, when its processes have ended: undo all faults of this node, also those of its ranks.

        Returns the evidence found, by fault id (the kernel's count of kills: {"oom_kill": 1}); it also goes into the
        records. What could not be undone is told under "left", which is None once it could. May be called again.
        """
        self._lifts = []
        own = [record for record in records(self._site.faults_dir) if record["node"] == self._site.node]
        for record in own:
            if _touches(record) is not None:  # the job's next start must not wait for its lift
                self._note(record, {"lifted": True})
        return {record["id"]: details for record in own if (details := self._undo(record))}

    def _new_requests(self) -> list[str]:
        names = {name for name in os.listdir(self._site.requests_dir) if name.endswith(".json")}
        new = sorted(names - self._seen)
        self._seen |= names
        return new

    def _strike(self, wish: dict[str, Any]) -> dict[str, Any] | None:
        planned, site = planned_from_json(wish["planned"]), self._site
        fault = create(planned.kind)
        if not isinstance(fault, NodeFault):
            raise TypeError(f"{planned.kind} strikes in a rank; a runner cannot")
        asked = {"requested_mono": wish["mono"]}
        record = record_of(planned, wish["step"], wish["rank"], tuple(wish["process"]), "runner", asked)
        try:
            asked |= fault.prepare(planned, site)
            asked |= self._before_all(fault, record)  # read after that: who changed it is on record by then
            if not claim(site.faults_dir, record):
                return None
            fault.strike(planned, site, asked)
        except OSError as error:
            return self._refused(record, error)
        if (seconds := fault.lifted_after_s(planned)) is not None:
            self._lifts.append((self._clock() + seconds, record))
        return record

    def _refused(self, record: dict[str, Any], error: OSError) -> dict[str, Any]:
        """The machine refused, maybe half-way: nothing was injected."""
        if record["id"] in claimed(self._site.faults_dir):
            self._undo(record)
            withdraw(self._site.faults_dir, record["id"])
        return record | {"details": record["details"] | {"failed": str(error)}}

    def _before_all(self, fault: NodeFault, record: dict[str, Any]) -> dict[str, Any]:
        """What undo is to put back, as it was before any fault of the launch: this one may have found it changed."""
        return {name: other["details"][name] for other in self._others(record)[:1] for name in fault.restores}

    def _others(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        """The faults on record, of all nodes, that change the same as this one."""
        what = _touches(record)
        found = [] if what is None else records(self._site.faults_dir)
        return [other for other in found if other["id"] != record["id"] and _touches(other) == what]

    def _lift(self, record: dict[str, Any]) -> None:
        """Its time is over. Undone once that of all is which change the same: of two runners the later one sees so."""
        self._note(record, {"lifted": True})
        others = self._others(record)
        if all(other["details"].get("lifted") for other in others):
            for each in (record, *others):
                self._undo(each)

    def _undo(self, record: dict[str, Any]) -> dict[str, Any]:
        fault = create(record["kind"])
        try:
            found = fault.undo(record)
        except OSError as error:
            found = {"left": f"{error}{f'; {fault.by_hand}' if fault.by_hand else ''}"}
        else:
            found = found | ({"left": None} if record["details"].get("left") else {})
        return self._note(record, found) if found else found

    def _note(self, record: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        """Put it on record, too; a result folder that takes nothing now must not keep faults from being undone."""
        try:
            amend(self._site.faults_dir, record["id"], **found)
        except OSError as error:
            return found | {"not_recorded": str(error)}
        return found


def _touches(record: dict[str, Any]) -> tuple[str, ...] | None:
    """What a fault on record changes that others may change as well; None for one that changes nothing of the kind."""
    fault = create(record["kind"])
    what = fault.touches(record["details"]) if isinstance(fault, NodeFault) else None
    return None if what is None else (record["kind"], *what)
