"""The coordinator's view of one launch: who has reported, who must be stopped, who is lost, who starts again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Event
from typing import Any

from bench.node.board import Board
from bench.node.pulse import Pulses
from bench.schema import ENDURING

REPORT_PATIENCE_S = 90.0  # after a stop, for runners to end their processes
LINGER_S = 8.0  # after one node came to the end of a launch with faults, for the others (agents may wait 300 s)
LOOK_S = 0.02


@dataclass(frozen=True)
class StartAgain:
    """Of the whole job. `left`: how many times more; `none_left`: why no more, in words."""

    left: int
    none_left: str
    by_engine: bool = False  # else the runners do it


class Follow:
    """`record`: the order of the launch. `outcomes()` blocks until every node has reported or is lost.

    `again`: who may start the whole job again, and how often; None: nobody needs to. `needs_all`: the layer brings a
    job back on all of its nodes or not at all. Afterwards `why` says what ended it, where nobody else can tell.
    """

    def __init__(
        self,
        board: Board,
        order: int,
        record: dict[str, Any],
        nodes: int,
        pulses: Pulses,
        again: StartAgain | None = None,
        needs_all: bool = False,
    ) -> None:
        self.board = board
        self.order = order
        self.endures = record["kind"] in ENDURING
        self.pulses = pulses
        self.waiting = set(range(nodes))
        self.found: dict[str, dict[str, Any]] = {}
        self.done: dict[int, str] = {}  # how a node's part ended; its report follows when all are that far
        self.end = time.monotonic() + float(record["deadline_s"])
        self.reading_s: dict[int, float] = {}  # how long each node may read checkpoints back, once it is to begin
        self.stopped: str | None = None  # why
        self._first_ok: float | None = None
        self._generation = len(record.get("relaunches", []))  # starts of the whole job after the first
        self._again = again
        self._left = again.left if again is not None else 0
        self._needs_all = needs_all
        self.why: str | None = None

    def outcomes(self, cancelled: Event) -> dict[str, dict[str, Any]]:
        """Every runner's report, by node: {"status", "codes", "leftovers"}."""
        nodes = sorted(self.waiting)
        while self.waiting:
            self._collect()
            self._give_up_lost()
            self._requeue(nodes)
            if not self.waiting:
                break
            reason = self._reason_to_stop(cancelled) or self._reason_to_give_up() or self._reason_to_relaunch()
            if reason is not None and self.stopped is None:
                self.board.post(f"stop/{self.order}", reason)
                self.stopped, self.end = reason, time.monotonic() + REPORT_PATIENCE_S
            elif self.stopped is not None and self._too_late():
                self._lost(self.waiting)
            time.sleep(LOOK_S)
        return self.found

    def _collect(self) -> None:
        for node in sorted(self.waiting):
            if node not in self.done and self.board.has(f"done/{self.order}/{node}"):
                self.done[node] = str(self.board.read(f"done/{self.order}/{node}"))
                if self.done[node] == "ok" and self._first_ok is None:
                    self._first_ok = time.monotonic()
            if node not in self.reading_s and self.board.has(f"reading/{self.order}/{node}"):
                self.reading_s[node] = float(self.board.read(f"reading/{self.order}/{node}"))
            if self.board.has(f"ended/{self.order}/{node}"):
                self.found[str(node)] = self.board.read(f"ended/{self.order}/{node}")
                self.done[node] = str(self.found[str(node)]["status"])
                self.waiting.discard(node)

    def _too_late(self) -> bool:
        """Reading back comes after the launch's own time, and takes as long as there are bytes."""
        return time.monotonic() > self.end + max(self.reading_s.values(), default=0.0)

    def _give_up_lost(self) -> None:
        self._lost({node for node in self.waiting if self.pulses.silent(node)})

    def _lost(self, nodes: set[int]) -> None:
        for node in sorted(nodes):
            self.found[str(node)] = {"status": "lost"}
            self.board.post("lost", node)
        self.waiting = self.waiting - nodes

    def _reason_to_stop(self, cancelled: Event) -> str | None:
        lost = {outcome["status"] for outcome in self.found.values()} & {"lost"}
        if lost | set(self.done.values()) - {"ok", "gone", "unavailable", "relaunch"} or cancelled.is_set():
            return "failed"
        busy = [node for node in self.waiting if node not in self.done]
        if busy and all(self.board.has(f"gone/{self.order}/{node}") for node in busy):
            return "over"
        if self._too_late():
            return "deadline"
        lingering = bool(busy) and self._first_ok is not None and time.monotonic() > self._first_ok + LINGER_S
        return "over" if self.endures and lingering else None

    # --- the job starts again on all nodes together
    def _fell(self) -> bool:
        return self.board.has(f"fell/{self.order}/{self._generation}")

    def _reason_to_relaunch(self) -> str | None:
        return "relaunch" if self._again is not None and self._again.by_engine and self._fell() else None

    def _reason_to_give_up(self) -> str | None:
        """The layer cannot go on, though no runner can know that."""
        if self._again is not None and self._left <= 0 and self._fell():
            self.why = self._again.none_left
        away = sorted(node for node, status in self.done.items() if status == "gone")
        elsewhere = self._again is not None and self._again.by_engine  # the job's next start has all nodes
        if away and self._needs_all and not elsewhere:
            self.why = (
                f"node {away[0]} does not come back (recovery.node_return_s=null), and the job cannot go on without it"
            )
        return None if self.why is None else "failed"

    def _requeue(self, nodes: list[int]) -> None:
        if self.stopped is not None or self._again is None or self._again.by_engine or self._left <= 0:
            return
        coming = self._generation + 1
        if not self.board.has(f"again/{self.order}/{coming}"):
            if self._fell():
                self.board.post(f"again/{self.order}/{coming}", True)
        elif all(self.board.has(f"ready/{self.order}/{coming}/{node}") for node in nodes):
            self.board.post(f"go/{self.order}/{coming}", True)
            self._generation = coming
            self._left -= 1
