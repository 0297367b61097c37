"""What everything on a node knows: the node for the whole run, and one launch's folders, recorder and environment."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.config import Run
from bench.environment import cache_variables
from bench.node.board import Board
from bench.record import Recorder
from bench.results import ResultFolder
from bench.supervise import TOKEN, Supervisor

MEETING_PATIENCE_S = 120.0


class Stopped(Exception):
    """This runner was asked to end (SIGTERM)."""


class NodeLost(Exception):
    """Another node's runner is silent: nobody waits for it."""


@dataclass(frozen=True)
class Node:
    """What a runner knows for the whole run."""

    number: int
    host: str  # of node 0, for its board and clock
    board: Board
    config: Run
    folder: ResultFolder
    token: str
    work_dir: Path
    checkpoint_dir: Path
    device: str
    supervisor: Supervisor
    ranks_host: str | None = None  # of node 0, where agents and ranks have a network of their own; None: host
    interface: str | None = None  # of this node, made for this run, that a fault may cut; see bench.faults.base.Site
    netns: str | None = None  # the named network namespace that `interface` is in; None: the runner's own

    @property
    def job_host(self) -> str:
        """Address of node 0 for agents and ranks, and for the stores where they meet."""
        return self.ranks_host or self.host

    @property
    def ranks(self) -> range:
        """The ranks that are placed on this node."""
        first = self.number * self.config.ranks_per_node
        return range(first, first + self.config.ranks_per_node)


@dataclass(frozen=True)
class Scene:
    """One launch as this node sees it. `record` is the coordinator's order: launch.json as far as it is known."""

    node: Node
    order: int
    record: dict[str, Any]
    dir: Path
    temporary_dir: Path  # short: sockets below it must have paths of less than 108 characters
    checkpoint_dir: Path
    recorder: Recorder

    @classmethod
    def set(cls, node: Node, order: int, record: dict[str, Any]) -> Scene:
        """Make the launch's folders, fresh, and open the runner's own event file."""
        index = record["index"]
        scene_dir, checkpoint_dir = node.work_dir / f"launch-{index}", node.checkpoint_dir / f"launch-{index}"
        for folder in (scene_dir / "events", scene_dir / "logs", scene_dir / "requests", checkpoint_dir):
            folder.mkdir(parents=True, exist_ok=True)
        recorder = Recorder(
            scene_dir / "events",
            role="runner",
            launch=index,
            node=node.number,
            local_rank=-1,
            rank=-1,
            world_size=node.config.world_size,
            incarnation=len(record.get("relaunches", [])),
            token=node.token,
            boot=boot_id(),
        )
        temporary_dir = Path(tempfile.mkdtemp(prefix="bench-"))
        return cls(node, order, record, scene_dir, temporary_dir, checkpoint_dir, recorder)

    @property
    def events_dir(self) -> Path:
        return self.dir / "events"

    @property
    def requests_dir(self) -> Path:
        """Where ranks ask this runner for faults that they cannot carry out themselves."""
        return self.dir / "requests"

    @property
    def logs_dir(self) -> Path:
        return self.dir / "logs"

    def meet(self, name: str, patience_s: float = MEETING_PATIENCE_S) -> None:
        """Wait for the runners of all nodes. Raises TimeoutError, and NodeLost when one of them will not come."""
        self.node.board.meet(f"{name}/{self.order}", self.node.config.num_nodes, patience_s, self._require_all)

    def _require_all(self) -> None:
        if self.node.board.has("lost"):
            raise NodeLost(f"node {self.node.board.read('lost')} was lost")

    def environment(self) -> dict[str, str]:
        """For every agent alike: threads, interface, token; the user's own variables win, and are recorded."""
        config = self.node.config
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        defaults = {
            "OMP_NUM_THREADS": str(config.train.threads),
            "GLOO_SOCKET_IFNAME": config.cluster.interface or interface_to(self.node.job_host),
        }
        fixed = {
            TOKEN: self.node.token,
            "BENCH_LAUNCH": str(self.dir / "settings.json"),
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.temporary_dir),
        }
        return defaults | cache_variables(self.node.work_dir) | dict(os.environ) | fixed

    def call(self, modules: Sequence[Sequence[str]], logs: Sequence[Path], patience_s: float) -> list[int | None]:
        """Run `python -m MODULE ...` side by side; their exit codes, None for one that had to be ended."""
        supervisor, env = self.node.supervisor, self.environment()
        started = [
            supervisor.start([sys.executable, "-m", *words], env, log) for words, log in zip(modules, logs, strict=True)
        ]
        codes = supervisor.wait(started, patience_s)
        supervisor.end_all()
        return [codes.get(pid) for pid in started]


def boot_id() -> str | None:
    """Names this boot of this machine: monotonic clocks of processes with one boot id are one clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def interface_to(host: str) -> str:
    """Name of the network interface by which this node reaches `host` (gloo takes a concrete name only)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing: it only picks the route
        address = probe.getsockname()[0]
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            return name
    return "lo"
