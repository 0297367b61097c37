"""A run inside an allocation that is there already: a step of it, so that 2, 4 and 8 nodes can share one allocation."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from bench.config import Run
from bench.errors import BadInput
from bench.launch import slurm_commands, slurm_script
from bench.launch.base import STOP_PATIENCE_S, Paths
from bench.launch.slurm_commands import Refused, Unanswered
from bench.supervise import Supervisor

END_PATIENCE_S = 60.0  # from scancel to the end of a step: Slurm's own KillWait is half of it by default


class Step:
    """The same script, run by bash in the allocation: its srun makes a step of the first num_nodes nodes."""

    within = True

    def __init__(self, allocation: str) -> None:
        self.allocation = allocation
        self._supervisor = Supervisor()
        self._bash: int | None = None
        self._step_file: Path | None = None
        self._said: list[str] = []
        self._untold = False  # it was to be cancelled, Slurm did not take the order, and it did not end by itself

    def check(self, config: Run, script: str) -> None:
        away = "or leave the allocation (env -u SLURM_JOB_ID) to submit a job of its own"
        nodes = int(os.environ.get("SLURM_JOB_NUM_NODES") or os.environ.get("SLURM_NNODES") or 1)
        if nodes < config.num_nodes:
            raise BadInput(
                f"num_nodes: {config.num_nodes} are more than the {nodes} of allocation {self.allocation}; "
                f"lower it, {away}"
            )
        given = os.environ.get("SLURM_TASKS_PER_NODE", "")
        counts = slurm_commands.tasks_per_node(given)
        if not counts or set(counts) != {1}:
            raise BadInput(
                f"cluster: allocation {self.allocation} has SLURM_TASKS_PER_NODE={given or 'unset'}, and it must be "
                f"1 on every node (one runner each; ft_launcher refuses others); salloc --ntasks-per-node=1, {away}"
            )
        if config.recovery.relaunch == "engine":
            raise BadInput(
                f"recovery.relaunch: Slurm requeues jobs, and this run is a step of allocation {self.allocation}; "
                f"use recovery.relaunch=coordinator, {away}"
            )
        if not config.cluster.wait:
            raise BadInput(f"cluster.wait: false needs a job of its own; wait for the run, {away}")

    def command(self, paths: Paths) -> list[str]:
        return ["bash", str(slurm_script.folder(paths.result) / slurm_script.SCRIPT)]

    def start(self, config: Run, paths: Paths) -> None:
        self._step_file = slurm_script.folder(paths.result) / slurm_script.STEP
        self._bash = self._supervisor.start(self.command(paths), os.environ, paths.result / "logs" / "step.log")
        self._said.append(f"runs on {config.num_nodes} nodes of allocation {self.allocation}")

    def attach(self, config: Run, paths: Paths) -> bool:
        """A step whose driver has died cannot be taken up, and a second one beside it would spoil the result."""
        step = _text(slurm_script.folder(paths.result) / slurm_script.STEP)
        try:
            alive = bool(step) and slurm_commands.step_alive(step)
        except Unanswered as error:
            raise BadInput(f"resume: Slurm cannot tell whether step {step} still runs ({error}); try later") from None
        if alive:
            raise BadInput(f"resume: {paths.result} still runs as step {step}; wait for its end, or scancel {step}")
        return False

    def running(self) -> bool:
        for ended in self._supervisor.reap():
            if ended.pid == self._bash:
                self._bash = None
                if ended.code != 0:
                    self._said.append(f"the step of allocation {self.allocation} ended with {ended.code}")
        return self._bash is not None

    def news(self) -> list[str]:
        said, self._said = self._said, []
        return said

    def stop(self) -> None:
        if self._bash is not None:
            os.kill(self._bash, signal.SIGTERM)  # the script's trap passes it on to the step, in order
            self._wait(STOP_PATIENCE_S)
        step, refused = _text(self._step_file), False
        if self.running() and step:
            try:
                slurm_commands.cancel(step)
            except (Refused, Unanswered) as error:
                refused = True
                self._said.append(f"step {step} could not be told to end ({error}); scancel {step}")
            self._wait(END_PATIENCE_S)
        self._untold = refused and self.running()
        self._supervisor.end_all()
        self._bash = None

    def left_running(self) -> bool:
        return self._untold

    def _wait(self, patience_s: float) -> None:
        end = time.monotonic() + patience_s
        while self.running() and time.monotonic() < end:
            time.sleep(0.05)


def _text(path: Path | None) -> str:
    try:
        return path.read_text().strip() if path is not None else ""
    except OSError:
        return ""
