"""A small stand-in for the node runners: hosts the stores, starts a layer's processes on all "nodes", and acts on
deaths as the layer says. Real processes; one supervisor for all nodes."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from bench import recovery
from bench.recovery.base import Layer, Place
from bench.recovery.timeouts import Timeouts, derive
from bench.supervise import Supervisor

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BACKOFF_S = 0.2
QUICK = derive(step_s=0.05, save_s=0.2, startup_s=6.0)


def held_port() -> socket.socket:
    """A port that nobody else is given while the socket is open; c10d may listen there all the same."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("", 0))
    return holder


@dataclass
class Outcome:
    """What a program left behind. Events of workers by file; `count`: how far it came."""

    finished: bool
    seconds: float
    codes: list[int]
    workers: list[list[dict[str, Any]]]
    logs: str
    count: int

    def named(self, name: str) -> list[dict[str, Any]]:
        """Instants of all workers, each with the pid of its process, by time."""
        found = [event | {"pid": events[0]["pid"]} for events in self.workers for event in events]
        return sorted((event for event in found if event.get("name") == name), key=lambda event: event["t"])

    def after_strike(self, name: str) -> float:
        """Seconds from the strike to the first instant `name` after it."""
        struck = self.named("strike")[0]["t"]
        return float(next(event["t"] for event in self.named(name) if event["t"] > struck) - struck)

    def generations(self) -> dict[str, list[dict[str, Any]]]:
        """Attempts by the name of their group, in the order of time."""
        found: dict[str, list[dict[str, Any]]] = {}
        for event in self.named("attempt"):
            found.setdefault(event["group"], []).append(event)
        return found


class StandIn:
    def __init__(self, folder: Path, layer: str, num_nodes: int = 1, ranks_per_node: int = 2, **settings: Any) -> None:
        self.folder = folder
        self.layer: Layer = recovery.create(layer)
        self.times: Timeouts = settings.pop("times", QUICK)
        self.reserve: int = settings.pop("reserve", 0)
        self.num_nodes, self.ranks_per_node, self.max_restarts = num_nodes, ranks_per_node, 3
        self.settings = {"steps": 12, "fault": None, "victim": 1, "at_step": 5, "again": None} | settings
        self.settings.setdefault("monitoring", "heartbeats")
        self.stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(2)]
        self.held = [held_port(), held_port()]
        self.agent_port, self.rank_port = (int(holder.getsockname()[1]) for holder in self.held)
        self.supervisor = Supervisor()
        self.running: dict[int, int] = {}  # pid -> node
        self.attempts: Counter[int] = Counter()
        self.codes: list[int] = []

    def run(self, deadline_s: float = 90.0) -> Outcome:
        begin = time.monotonic()
        try:
            for node in range(self.num_nodes):
                self._start(node)
            while self.running and time.monotonic() < begin + deadline_s:
                self._reap()
                time.sleep(0.01)
            finished = not self.running and not any(self.codes)
        finally:
            seconds = time.monotonic() - begin
            self.supervisor.end_all()
            for holder in self.held:
                holder.close()
        return self._outcome(finished, seconds)

    def _start(self, node: int) -> None:
        for process in self.layer.processes(self._place(node)):
            settings = self.folder / f"settings-{node}.json"
            settings.write_text(json.dumps(self._program(node)))
            path = os.pathsep.join(filter(None, [str(ROOT), str(HERE), os.environ.get("PYTHONPATH")]))
            variables = {"GLOO_PROGRAM": str(settings), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
            variables |= {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "TMPDIR": str(self.folder)}
            log = self.folder / f"node{node}-{process.name}.log"
            pid = self.supervisor.start(process.command, os.environ | variables | process.env, log)
            self.running[pid] = node

    def _program(self, node: int) -> dict[str, Any]:
        return {
            "layer": self.layer.name,
            "host": "127.0.0.1",
            "base_port": self.stores[0].port,
            "wrapper_port": self.stores[1].port,
            "timeouts": asdict(self.times),
            "collective_s": self.layer.collective_timeout_s(self.times),
            "folder": str(self.folder),
            "active": self.num_nodes * self.ranks_per_node,
            "node": node,
            **self.settings,
        }

    def _place(self, node: int) -> Place:
        return Place(
            launch_id=self.folder.name,
            node=node,
            num_nodes=self.num_nodes,
            ranks_per_node=self.ranks_per_node,
            host="127.0.0.1",
            agent_port=self.agent_port,
            python=sys.executable,
            attempt=self.attempts[node],
            timeouts=self.times,
            max_restarts=self.max_restarts,
            reserve=self.reserve,
            rank_port=self.rank_port,
            monitoring=self.settings["monitoring"],
            worker_module="gloo_program",
        )

    def _reap(self) -> None:
        for ended in self.supervisor.reap():
            node = self.running.pop(ended.pid, None)
            if node is None:
                continue  # an orphan, or one of a start before
            if ended.code != 0:
                self._died(node, ended.code)

    def _died(self, node: int, code: int) -> None:
        match self.layer.when_one_dies:
            case "end_launch":
                self.codes.append(code)
            case "go_on":
                if not self.running:
                    self.codes.append(code)
            case "restart_node":
                self._end([pid for pid, place in self.running.items() if place == node])
                time.sleep(BACKOFF_S * 2 ** self.attempts[node])
                self.attempts[node] += 1
                self._start(node)
            case "requeue":
                self._end(list(self.running))
                for each in range(self.num_nodes):
                    self.attempts[each] += 1
                    self._start(each)

    def _end(self, pids: list[int]) -> None:
        for pid in pids:
            del self.running[pid]
            os.kill(pid, 9)
        self.supervisor.wait(pids, 10.0)

    def _outcome(self, finished: bool, seconds: float) -> Outcome:
        files = sorted(self.folder.glob("worker-*.jsonl"))
        workers = [[json.loads(line) for line in path.read_text().splitlines()] for path in files]
        count = self.folder / "count"
        logs = "\n".join(f"--- {path.name}\n{path.read_text()[-6000:]}" for path in sorted(self.folder.glob("*.log")))
        return Outcome(finished, seconds, self.codes, workers, logs, int(count.read_text()) if count.exists() else 0)
