"""The processes of a launch on this node: started, watched, and started again where the recovery layer asks for it.

The runner plays what stands outside the job: the pod that restarts its container, the orchestrator that starts the job
again on all nodes together, the machine that goes away and comes back. One look takes well under a millisecond and
never blocks, whatever the processes do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.node.agent_log import AgentLog
from bench.node.base import Scene
from bench.record import process_start_ticks
from bench.recovery.base import Layer, Process

Start = Callable[[int, int], Sequence[Process]]  # (generation, attempt) -> what to start


class Crew:
    """`generation` counts the starts of the whole job (requeue), `attempt` those of this node's part."""

    def __init__(self, scene: Scene, layer: Layer, start: Start, starts: int = 0) -> None:
        self.scene = scene
        self.layer = layer
        self.processes = start
        self.recorder = scene.recorder
        self.supervisor = scene.node.supervisor
        self.codes: dict[str, int] = {}
        self.generation = self.attempt = starts  # the engine started the job again so many times before this runner
        self._running: dict[int, Process] = {}
        self._ticks: dict[int, int] = {}  # by pid: with its start time it names a process
        self._logs: list[AgentLog] = []
        self._ok = 0
        self._restart_at: float | None = None  # this node's processes are to start again then
        self._away_until: float | None = None  # the node is lost until then; inf: for good
        self.without_ranks = False  # all of them have ended, none of them well
        self._fell = False  # the coordinator has been asked to start the job again
        self._by_engine = starts > 0

    # --- starting
    def start(self) -> None:
        if self._by_engine:
            self.recorder.instant("restart", attempt=self.attempt, backoff_s=0.0, scope="job")
        self._spawn()

    def _spawn(self) -> None:
        env = self.scene.environment()
        for process in self.processes(self.generation, self.attempt):
            name = process.name if self.attempt == 0 else f"{process.name}-attempt{self.attempt}"
            log = self.scene.logs_dir / f"{name}.log"
            if process.local_rank is None:
                self._logs.append(AgentLog(log, self.layer.anchors, self.recorder))
            pid = self.supervisor.start(process.command, env | process.env, log)
            self._running[pid] = process
            self._ticks[pid] = process_start_ticks(pid)
            self.recorder.instant(
                "started",
                pid=pid,
                pid_start=self._ticks[pid],
                local_rank=process.local_rank,
                process=name,
                attempt=self.attempt,
            )

    def _start_again(self, scope: str, backoff_s: float) -> None:
        self.attempt += 1
        self._ok, self._restart_at = 0, None
        self.recorder.instant("restart", attempt=self.attempt, backoff_s=backoff_s, scope=scope)
        self._spawn()

    def _end_processes(self) -> None:
        self.supervisor.end_all()
        self._running.clear()

    # --- one look
    def look(self) -> str | None:
        """How this node's part ended: ok, failed, or gone (all its ranks are, and the layer goes on without them)."""
        for log in self._logs:
            log.look()
        failed = self._reap()
        if self._away_until is not None:
            return self._while_away()
        if self._restart_at is not None:
            if time.monotonic() >= self._restart_at:
                self._start_again("node", self._backoff_s(self.attempt))
            return None
        if self.layer.when_one_dies == "requeue":
            return self._requeued(failed)
        if failed and self.layer.when_one_dies == "end_launch":
            return "failed"
        if failed and self.layer.when_one_dies == "restart_node":
            return self._restart_node()
        if self._running:
            return None
        if self._ok or self.layer.when_one_dies != "go_on":
            return "ok" if self._ok else "gone"
        self._tell_without_ranks()
        return None

    def _tell_without_ranks(self) -> None:
        """The others may go on. What watched the ranks here lives, and may be what tells them, to the launch's end."""
        if not self.without_ranks:
            self.without_ranks = True
            self.scene.node.board.post(f"gone/{self.scene.order}/{self.scene.node.number}", True)

    def _reap(self) -> bool:
        """Whether a process that this runner started has failed."""
        failed = False
        for ended in self.supervisor.reap():
            process = self._running.pop(ended.pid, None)
            if process is None:
                continue  # an adopted orphan
            self.codes[process.name] = ended.code
            about: dict[str, Any] = {"local_rank": process.local_rank, "pid": ended.pid, "process": process.name}
            about["pid_start"] = self._ticks[ended.pid]
            self.recorder.instant("exited", code=ended.code, **about)
            self._ok += ended.code == 0
            failed = failed or ended.code != 0
        return failed

    # --- pod_restart: the node's own orchestrator
    def _restart_node(self) -> str | None:
        """The container is what fails, so all its processes go; the wait before the next one doubles each time."""
        self._end_processes()
        if self.attempt >= self.scene.node.config.recovery.max_restarts:
            return "failed"
        self._restart_at = time.monotonic() + self._backoff_s(self.attempt)
        return None

    def _backoff_s(self, attempt: int) -> float:
        recovery = self.scene.node.config.recovery
        return float(min(recovery.backoff_s * 2**attempt, recovery.backoff_cap_s))

    # --- requeue: the coordinator starts the whole job again
    def _requeued(self, failed: bool) -> str | None:
        if failed and not self._fell:
            self._fall()
        board, order, coming = self.scene.node.board, self.scene.order, self.generation + 1
        if not board.has(f"again/{order}/{coming}"):
            return None if self._running or self._fell else "ok"
        if self._running or not board.has(self._ready(coming)):
            self._end_processes()
            board.post(self._ready(coming), True)
        if board.has(f"go/{order}/{coming}"):
            self.generation, self._fell = coming, False
            self._start_again("job", 0.0)
        return None

    def _fall(self) -> None:
        self._fell = True
        self.scene.node.board.post(f"fell/{self.scene.order}/{self.generation}", True)

    def _ready(self, generation: int) -> str:
        return f"ready/{self.scene.order}/{generation}/{self.scene.node.number}"

    # --- node_loss
    def lose_node(self, fault: str) -> None:
        """Agent, workers and writers of this node end at once; the node comes back after recovery.node_return_s."""
        self.recorder.instant("away", fault=fault)
        if not self.layer.has_agent:  # agents of other nodes notice it; else this runner plays who would, at once
            self.recorder.instant("detected", source="runner", text=f"{fault}: the node is lost")
        self._end_processes()
        self._reap()
        wait_s = self.scene.node.config.recovery.node_return_s
        self._away_until = float("inf") if wait_s is None else time.monotonic() + wait_s
        self._restart_at = None
        if self.layer.when_one_dies == "requeue":
            self._fall()

    def _while_away(self) -> str | None:
        assert self._away_until is not None
        if self._away_until == float("inf"):
            return "gone"
        if time.monotonic() < self._away_until:
            return None
        self._away_until = None
        self.recorder.instant("back")
        if self.layer.when_one_dies == "restart_node":
            return self._restart_node()
        if self.layer.when_one_dies == "requeue":
            return None  # with all others, as soon as the coordinator says so
        if self.layer.has_agent:
            self._start_again("node", 0.0)
            return None
        return "gone"
