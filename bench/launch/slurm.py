"""Slurm: a job of its own for the run, or a step of the allocation that the driver is in."""

from __future__ import annotations

import os
from pathlib import Path

from bench import design
from bench.config import Run
from bench.errors import BadInput
from bench.launch import slurm_commands, slurm_script
from bench.launch.base import Launcher, Paths
from bench.launch.slurm_job import Job
from bench.launch.slurm_step import Step
from bench.predict import predict


class Slurm(Launcher):
    """Submits a job, or, where SLURM_JOB_ID says that this process is in one, runs within it."""

    name = "slurm"
    outlives_driver = True
    relaunches = True

    def __init__(self) -> None:
        allocation = os.environ.get("SLURM_JOB_ID")
        self._way: Job | Step = Job() if allocation is None else Step(allocation)

    def check(self, config: Run, gpus: int) -> None:
        if config.device == "cpu" and config.cluster.gres and "gpu" in config.cluster.gres:
            raise BadInput(
                f"cluster.gres: {config.cluster.gres} asks for GPUs that device=cpu would leave idle; "
                "give device=cuda, or leave it out"
            )
        paths = _paths_to_check(config)
        slurm_script.check(config, paths)
        if not slurm_commands.available():
            raise BadInput(
                "cluster: slurm's clients (sbatch, scontrol) are not on this machine; start the run on a login node, "
                "rehearse it here with cluster=emulated, or print its script with dry_run=true"
            )
        self._way.check(config, self.script(config, paths))

    def commands(self, config: Run, paths: Paths) -> list[list[str]]:
        return [self._way.command(paths)]

    def script(self, config: Run, paths: Paths) -> str:
        predicted_s = predict(config, design.plan(config), config.device).seconds
        minutes = slurm_script.time_limit_minutes(config, predicted_s)
        return slurm_script.render(config, paths, minutes, within=self._way.within)

    def start(self, config: Run, paths: Paths) -> None:
        (paths.result / "logs").mkdir(exist_ok=True)
        folder = slurm_script.folder(paths.result)
        folder.mkdir(exist_ok=True)
        (folder / slurm_script.SCRIPT).write_text(self.script(config, paths))
        self._way.start(config, paths)

    def attach(self, config: Run, paths: Paths) -> bool:
        return self._way.attach(config, paths)

    def running(self) -> bool:
        return self._way.running()

    def stop(self) -> None:
        self._way.stop()

    def left_running(self) -> bool:
        return self._way.left_running()

    def news(self) -> list[str]:
        return self._way.news()


def _paths_to_check(config: Run) -> Paths:
    result = Path(config.results_dir).resolve() / "MACHINE" / config.scenario / "TIME"
    return Paths(result, Path("/tmp"), result / "checkpoints")
