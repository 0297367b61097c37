"""What a launcher is, and the part that all launchers on this machine share."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.config import Run
from bench.errors import BadInput
from bench.supervise import Supervisor

RELAUNCH = 75  # exit code of runners that want the engine to start the whole job again (EX_TEMPFAIL)
STOP_PATIENCE_S = 40.0  # a runner needs it to end its launch and ship what was measured

WAYS_ON = (
    "run it on a cluster (cluster=slurm or cluster=kubernetes), rehearse it here with cluster=emulated (tiny model, "
    "CPU ranks), or print its plan with dry_run=true"
)


@dataclass(frozen=True)
class Paths:
    """Where a run's files lie. `work_dir` is node-local, `checkpoint_dir` belongs to this run alone."""

    result: Path
    work_dir: Path
    checkpoint_dir: Path


class Launcher(ABC):
    """Starts one node runner per node and tells whether they still run."""

    name: ClassVar[str]
    outlives_driver: ClassVar[bool] = False  # its runners go on without the driver; a later resume= takes them up again
    sees_storage: ClassVar[bool] = True  # this machine sees the checkpoint directory that the runners write to
    relaunches: ClassVar[bool] = False  # its engine starts all runners again when they end with RELAUNCH

    @abstractmethod
    def check(self, config: Run, gpus: int) -> None:
        """Raise BadInput, with the ways on, when this launcher cannot place the run (`gpus`: those of this machine)."""

    @abstractmethod
    def commands(self, config: Run, paths: Paths) -> list[list[str]]:
        """What it would start, for dry_run=true."""

    @abstractmethod
    def start(self, config: Run, paths: Paths) -> None:
        """Start the runners. Raises BadInput when an engine refuses them."""

    @abstractmethod
    def running(self) -> bool: ...

    @abstractmethod
    def stop(self) -> None:
        """Ask all runners for an orderly end, then make sure of it."""

    def left_running(self) -> bool:
        """After stop(): whether runners go on, or may do so, because the engine could not be told or asked."""
        return False

    def attach(self, config: Run, paths: Paths) -> bool:
        """Take up the runners of this result that an earlier driver left running. False: there are none."""
        return False

    def news(self) -> list[str]:
        """Lines for the user that have come up since the last call: a queue's state, why a job ended."""
        return []

    def script(self, config: Run, paths: Paths) -> str | None:
        """What an engine is handed, printed by dry_run=true below the plan."""
        return None

    def plan_text(self, config: Run, paths: Paths) -> str | None:
        """What dry_run=true prints in place of the plan, alone on standard output, for another program to read."""
        return None


def work_folder() -> str:
    """What the node-local folder is called below a temporary folder that all users of a machine share."""
    return f"bench-work-{os.getuid()}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def device_of(config: Run) -> str:
    """ "cuda" or "cpu"; auto is resolved before a launcher sees it."""
    if config.device == "auto":
        raise BadInput("device: auto was not resolved; give device=cpu or device=cuda")
    return config.device


class OnThisMachine(Launcher):
    """Runners as child processes of the driver, talking over the loopback address."""

    def __init__(self) -> None:
        self._supervisor = Supervisor()
        self._runners: dict[int, int] = {}  # pid -> node
        self.codes: dict[int, int] = {}

    def commands(self, config: Run, paths: Paths, port: str = "PORT") -> list[list[str]]:
        return [self._command(config, paths, node, port) for node in range(config.num_nodes)]

    def _host(self, config: Run) -> str:
        """Address of node 0's board."""
        return "127.0.0.1"

    def _command(self, config: Run, paths: Paths, node: int, port: str) -> list[str]:
        words = [sys.executable, "-m", "bench.node", "--result", str(paths.result), "--node", str(node)]
        words += ["--host", self._host(config), "--port", port, "--work-dir", str(paths.work_dir / f"node{node}")]
        return [
            *words,
            "--checkpoint-dir",
            str(paths.checkpoint_dir),
            "--device",
            device_of(config),
            "--die-with-parent",
        ]

    def start(self, config: Run, paths: Paths) -> None:
        root = str(Path(__file__).resolve().parents[2])
        env = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
        for node, command in enumerate(self.commands(config, paths, str(free_port()))):
            pid = self._supervisor.start(command, env, paths.result / "logs" / f"runner-{node}.log")
            self._runners[pid] = node

    def running(self) -> bool:
        for ended in self._supervisor.reap():
            node = self._runners.pop(ended.pid, None)
            if node is not None:
                self.codes[node] = ended.code
        return bool(self._runners)

    def stop(self) -> None:
        for pid in list(self._runners):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        end = time.monotonic() + STOP_PATIENCE_S
        while self.running() and time.monotonic() < end:
            time.sleep(0.05)
        self._supervisor.end_all()
        self._runners.clear()  # their pids may now be somebody else's
