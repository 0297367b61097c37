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
from bench.node.board import Board
from bench.node.follow import Follow
from bench.node.pilot import Pilot, deadline_s, endurance_s
from bench.node.pulse import Pulses
from bench.node.ship import last_words
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
            reason = self._over_budget(self.pilot.duration_s(self._settled(launch))) or self._contradiction(launch)
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

    def _over_budget(self, expected_s: float) -> str | None:
        budget, occasion = self.config.budget, self.folder.read_run()["occasions"][-1]
        elapsed_s, ends_by = time.time() - occasion["started"], occasion.get("ends_by")
        needed_s = elapsed_s + expected_s
        hours = needed_s * self.config.world_size / 3600
        if budget.minutes is not None and needed_s > budget.minutes * 60:
            return f"budget.minutes={budget.minutes} has no room for another {expected_s:.0f} s"
        if budget.gpu_hours is not None and hours > budget.gpu_hours:
            return f"budget.gpu_hours={budget.gpu_hours} has no room for another {expected_s:.0f} s"
        if ends_by is not None and time.time() + expected_s > ends_by:
            return f"the job's time limit (cluster.time) has no room for another {expected_s:.0f} s"
        return None

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
        if record is None:
            placed = {"ranks_by_node": self._ranks_by_node(launch)}
            record = launch.to_json() | placed | self._limits(launch) | {"started": time.time(), "status": "running"}
            self.folder.set_aside(launch.index)
        self.folder.write_launch(launch.index, record)
        self.board.post(f"order/{order}", {"action": "launch", "record": record})
        outcomes = Follow(
            self.board, order, record, self.config.num_nodes, self.pulses, self._relaunches_left(launch, record)
        ).outcomes(self.cancelled)
        if self.cancelled.is_set():
            raise Cancelled
        if self._status(outcomes) == "relaunch":
            asked = {"asked": time.time()} | self._start()
            relaunches = [*record.get("relaunches", []), asked]
            self.folder.write_launch(launch.index, record | {"status": RELAUNCHING, "relaunches": relaunches})
            raise Relaunch
        record |= {"ended": time.time(), "nodes": outcomes} | self._end(launch, outcomes, record)
        self.folder.write_launch(launch.index, record)
        if record["status"] == "interrupted":
            raise Cancelled  # a runner is leaving; nobody would take another order
        if launch.kind == "pilot" and record["status"] == "ok":
            try:
                self._learn(launch)
            except ValueError as error:
                self.folder.write_launch(launch.index, record | {"status": "failed", "reason": str(error)})

    def _relaunches_left(self, launch: Launch, record: dict[str, Any]) -> int | None:
        """None where no engine is asked to start the job again."""
        by_engine = self.config.recovery.relaunch == "engine"
        if not (by_engine and launch.endures) or recovery.create(launch.layer).when_one_dies != "requeue":
            return None
        if self._over_budget(0.0):
            return 0
        return self.config.recovery.max_restarts - len(record.get("relaunches", []))

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
        limit_s = deadline_s(self.config, expected_s)
        collective_s = pilot.collective_timeout_s() if pilot else 120.0
        if pilot and timeouts and launch.endures:
            collective_s = recovery.create(launch.layer).collective_timeout_s(timeouts)
            limit_s = endurance_s(self.config, pilot, timeouts, launch)
        return {
            "interval": launch.segments[0].interval or self.interval,
            "expected_s": expected_s,
            "deadline_s": limit_s,
            "collective_timeout_s": collective_s,
            "timeouts": timeouts.to_json() if timeouts else None,
            "pilot": pilot.to_json() if pilot else None,
        }

    def _end(self, launch: Launch, outcomes: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        """How the launch ended. One that was struck is a result, however it ended."""
        status = self._status(outcomes)
        end = {"ok": "completed", "gone": "failed"}.get(status, status)  # or unavailable: nothing was started
        unavailable = {
            fault: reason for outcome in outcomes.values() for fault, reason in outcome.get("unavailable", {}).items()
        }
        struck = any((self.folder.launch_dir(launch.index) / "faults").glob("*.json"))
        found: dict[str, Any] = {"end": end}
        if struck and status in ("failed", "deadline", "stopped", "gone"):
            found["given_up"] = self._reason(status, launch, record["deadline_s"], outcomes)
            status = "ok"
        status = "ok" if status == "unavailable" else status
        found["status"] = status
        if launch.endures:
            found["unavailable"] = unavailable
        if status != "ok":
            found["reason"] = self._reason(status, launch, record["deadline_s"], outcomes)
        return found

    def _status(self, outcomes: dict[str, Any]) -> str:
        found = {outcome["status"] for outcome in outcomes.values()}
        for status in ("interrupted", "lost", "deadline", "failed", "stopped", "relaunch", "unavailable"):
            if status in found:
                return status
        return "ok" if "ok" in found else "gone"

    def _reason(self, status: str, launch: Launch, limit_s: float, outcomes: dict[str, Any]) -> str:
        if status == "deadline":
            return f"ended at its deadline of {math.ceil(limit_s)} s"
        if status == "lost":
            lost = sorted(int(node) for node, outcome in outcomes.items() if outcome["status"] == "lost")
            return f"node{'s' * (len(lost) > 1)} {', '.join(map(str, lost))} {'were' if len(lost) > 1 else 'was'} lost"
        return last_words(self.folder.launch_dir(launch.index) / "logs") or status
