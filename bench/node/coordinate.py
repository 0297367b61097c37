"""The coordinator, on node 0: which launch is next, what it is told, when it is stopped.

It works through the static list of launches in run.json. Each order goes to all runners at once; a launch ends when
every runner has reported, and is stopped on all nodes when one of them failed or the deadline has passed (follow.py).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import recovery
from bench.config import Run
from bench.design import Launch, launch_from_json, settle_auto
from bench.errors import BadInput
from bench.node import room
from bench.node.board import Board
from bench.node.follow import Follow, StartAgain
from bench.node.pilot import Pilot, deadline_s, endurance_s
from bench.node.pulse import Pulses
from bench.node.ship import last_words
from bench.predict import expected_pilot
from bench.results import ResultFolder
from bench.schema import RELAUNCHING


class Cancelled(Exception):
    """The run is being stopped from outside."""


class Relaunch(Exception):
    """The engine is to start the whole job again, and the launch in progress goes on in it."""


class Coordinator(threading.Thread):
    """Runs beside the runner of node 0. `read_pilot(launch folder) -> Pilot` turns a finished pilot into figures."""

    def __init__(self, board: Board, config: Run, folder: ResultFolder, read_pilot: Callable[[Path], Pilot]) -> None:
        super().__init__(name="coordinator", daemon=True)
        self.board = board
        self.config = config
        self.folder = folder
        self.read_pilot = read_pilot
        self.pulses = Pulses(board)
        self.cancelled = threading.Event()
        self.pilot: Pilot | None = None
        self.interval: int | None = None

    def run(self) -> None:
        order, last = 0, "end"
        try:
            for launch in self._todo():
                begun = self._begun(launch)
                if begun is None and self._left_out(launch):
                    continue
                order += 1  # before it is given: however it ends, the end is announced under the next number
                self._carry_out(order - 1, launch, begun)
        except Cancelled:
            pass
        except Relaunch:
            last = "relaunch"
        finally:
            self.board.post(f"order/{order}", {"action": last})

    def _todo(self) -> list[Launch]:
        occasions = self.folder.read_run()["occasions"]
        launches = [launch_from_json(record) for record in occasions[-1]["launches"]]
        todo = [launch for launch in launches if not self._finished(launch)]
        return sorted(todo, key=lambda launch: self._begun(launch) is None)  # nothing may run within its outage

    def _finished(self, launch: Launch) -> bool:
        record = self.folder.read_launch(launch.index) or {}
        done = record.get("status") == "ok"
        if done and launch.kind == "pilot":
            self._learn(launch)
        return done

    def _learn(self, launch: Launch) -> None:
        self.pilot = self.read_pilot(self.folder.launch_dir(launch.index))
        wanted = self.config.checkpoint.interval
        settled = self.folder.read_run()["occasions"][-1].get("interval")  # by an earlier occasion of the same work
        self.interval = int(settled or self.pilot.interval()) if wanted == "auto" else int(wanted)

    def _left_out(self, launch: Launch) -> bool:
        """Record and skip a launch that the budget has no room for, or whose pilot failed."""
        reason = None
        if self.board.has("lost"):
            reason = f"node {self.board.read('lost')} was lost"
        elif launch.kind != "pilot" and self.pilot is None:
            reason = "the pilot launch failed"
        elif self.pilot is not None:
            expected_s = self.pilot.duration_s(self._settled(launch))
            reason = room.no_room(self._bounds(), expected_s) or self._contradiction(launch)
        if reason is not None:
            self.folder.write_launch(launch.index, launch.to_json() | {"status": "skipped", "reason": reason})
        return reason is not None

    def _contradiction(self, launch: Launch) -> str | None:
        """Timeouts of the user's that the pilot's figures put out of order."""
        try:
            self._limits(launch)
        except BadInput as error:
            return str(error)
        return None

    def _bounds(self) -> list[room.Bound]:
        return room.bounds(self.config, self.folder.read_run()["occasions"][-1], time.time())

    def _settled(self, launch: Launch) -> Launch:
        if self.pilot is None:
            return launch
        return settle_auto(launch, self.interval or 1, self.config)

    def _begun(self, launch: Launch) -> dict[str, Any] | None:
        """The record of a launch for which the engine has just started the job again; None: it starts afresh."""
        record = self.folder.read_launch(launch.index) or {}
        asked = record["relaunches"][-1] if record.get("status") == RELAUNCHING else None
        if asked is None:
            return None
        now = self._start()
        if asked["job"] != now["job"] or asked["start"] >= now["start"]:
            return None
        relaunches = [*record["relaunches"][:-1], asked | {"back": time.time()}]
        return record | {"relaunches": relaunches, "status": "running"}

    def _start(self) -> dict[str, Any]:
        """The engine's job, and how many times it has been started by now."""
        occasion = self.folder.read_run()["occasions"][-1]
        return {"job": occasion.get("job"), "start": int(occasion.get("starts", 1))}

    def _carry_out(self, order: int, launch: Launch, begun: dict[str, Any] | None) -> None:
        launch = self._settled(launch)
        record = begun
        limits = self._limits(launch)
        if record is not None:
            record |= {name: limits[name] for name in ("deadline_s", "deadline_by")}  # the job's next start has its own
        else:
            placed = {"ranks_by_node": self._ranks_by_node(launch)}
            record = launch.to_json() | placed | limits | {"started": time.time(), "status": "running"}
            self.folder.set_aside(launch.index)
        self.folder.write_launch(launch.index, record)
        self.board.post(f"order/{order}", {"action": "launch", "record": record})
        layer = recovery.create(launch.layer)
        again, needs_all = self._again(launch, record), layer.when_one_dies in ("requeue", "restart_node")
        follow = Follow(self.board, order, record, self.config.num_nodes, self.pulses, again, needs_all)
        outcomes = follow.outcomes(self.cancelled)
        if self.cancelled.is_set():
            raise Cancelled
        if self._status(outcomes) == "relaunch":
            asked = {"asked": time.time()} | self._start()
            relaunches = [*record.get("relaunches", []), asked]
            self.folder.write_launch(launch.index, record | {"status": RELAUNCHING, "relaunches": relaunches})
            raise Relaunch
        record |= {"ended": time.time(), "nodes": outcomes} | self._end(launch, outcomes, record, follow.why)
        self.folder.write_launch(launch.index, record)
        if record["status"] == "interrupted":
            raise Cancelled  # a runner is leaving; nobody would take another order
        if launch.kind == "pilot" and record["status"] == "ok":
            try:
                self._learn(launch)
            except ValueError as error:
                self.folder.write_launch(launch.index, record | {"status": "failed", "reason": str(error)})

    def _again(self, launch: Launch, record: dict[str, Any]) -> StartAgain | None:
        """Who starts the whole job again after a fault, and how often; None where the layer has no need of it."""
        if recovery.create(launch.layer).when_one_dies != "requeue":
            return None
        most = self.config.recovery.max_restarts
        by_engine = self.config.recovery.relaunch == "engine" and launch.endures
        if by_engine and (over := room.no_room(self._bounds(), 0.0)):
            return StartAgain(0, over, by_engine)
        used_up = f"the job was started again {most} times, and recovery.max_restarts allows no more"
        return StartAgain(most - len(record.get("relaunches", [])), used_up, by_engine)

    def _ranks_by_node(self, launch: Launch) -> list[int]:
        """Those that are started on each, the reserve on the last one included."""
        alike = [self.config.ranks_per_node] * self.config.num_nodes
        takes_reserve = recovery.create(launch.layer).takes_reserve
        return [*alike[:-1], self.config.ranks_of_last_node] if takes_reserve else alike

    def _limits(self, launch: Launch) -> dict[str, Any]:
        """How long the launch and the waits within it may take, by what the pilot has shown."""
        pilot = self.pilot
        timeouts = pilot.timeouts(self.config) if pilot and launch.endures else None
        expected_s = pilot.duration_s(launch) if pilot else None
        assumed = None if pilot else expected_pilot(self.config, self.config.device)
        limit_s = deadline_s(self.config, expected_s, assumed.duration_s(launch) if assumed else None)
        # The pilot's peers wait in a collective while rank 0 writes, for as long as a save may take.
        collective_s = pilot.collective_timeout_s() if pilot else max(120.0, self.config.checkpoint.deadline_s)
        if pilot and timeouts and launch.endures:
            collective_s = recovery.create(launch.layer).collective_timeout_s(timeouts)
            limit_s = endurance_s(self.config, pilot, timeouts, launch, collective_s)
        return {
            "interval": launch.segments[0].interval or self.interval,
            "expected_s": expected_s,
            "collective_timeout_s": collective_s,
            "timeouts": timeouts.to_json() if timeouts else None,
            "pilot": pilot.to_json() if pilot else None,
        } | self._deadline(limit_s, expected_s)

    def _deadline(self, limit_s: float, expected_s: float | None) -> dict[str, Any]:
        """When a launch that begins now is ended, at the latest where the run's own time ends."""
        around_s = self.pilot.around_s if self.pilot else 0.0
        limit_s, bound = room.capped(self._bounds(), limit_s, expected_s, around_s)
        return {"deadline_s": limit_s, "deadline_by": bound}

    def _end(self, launch: Launch, outcomes: dict[str, Any], record: dict[str, Any], why: str | None) -> dict[str, Any]:
        """How the launch ended. One that was struck is a result, however it ended."""
        status = self._status(outcomes)
        end = {"ok": "completed", "gone": "failed"}.get(status, status)  # or unavailable: nothing was started
        unavailable = {
            fault: reason for outcome in outcomes.values() for fault, reason in outcome.get("unavailable", {}).items()
        }
        struck = any((self.folder.launch_dir(launch.index) / "faults").glob("*.json"))
        found: dict[str, Any] = {"end": end}
        if struck and status in ("failed", "deadline", "stopped", "gone"):
            found["given_up"] = why or self._reason(status, launch, record, outcomes)
            status = "ok"
        status = "ok" if status == "unavailable" else status
        found["status"] = status
        if launch.endures:
            found["unavailable"] = unavailable
        if status != "ok":
            found["reason"] = why or self._reason(status, launch, record, outcomes)
        return found

    def _status(self, outcomes: dict[str, Any]) -> str:
        found = {outcome["status"] for outcome in outcomes.values()}
        for status in ("interrupted", "lost", "deadline", "failed", "stopped", "relaunch", "unavailable"):
            if status in found:
                return status
        return "ok" if "ok" in found else "gone"

    def _reason(self, status: str, launch: Launch, record: dict[str, Any], outcomes: dict[str, Any]) -> str:
        limit_s = record["deadline_s"]
        if status == "deadline" and record["deadline_by"] is not None:
            return f"ended after {math.ceil(limit_s)} s, where {record['deadline_by']} left no more"
        if status == "deadline":
            mend = "; give launch_deadline_s=N, or storage.provisioned_bytes_per_s=N of a slow store"
            return f"ended at its deadline of {math.ceil(limit_s)} s{mend if launch.kind == 'pilot' else ''}"
        if status == "lost":
            lost = sorted(int(node) for node, outcome in outcomes.items() if outcome["status"] == "lost")
            return f"node{'s' * (len(lost) > 1)} {', '.join(map(str, lost))} {'were' if len(lost) > 1 else 'was'} lost"
        words = last_words(self.folder.launch_dir(launch.index) / "logs") or status
        if status == "failed" and recovery.create(launch.layer).when_one_dies == "restart_node":
            most = self.config.recovery.max_restarts
            return f"a node was started again {most} times, and recovery.max_restarts allows no more: {words}"
        return words
