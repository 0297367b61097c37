"""A job of its own for the run: submitted, watched from the login node, asked to end, taken up again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.config import Run
from bench.errors import BadInput
from bench.launch import slurm_commands, slurm_script
from bench.launch.base import STOP_PATIENCE_S, Paths
from bench.launch.slurm_commands import Refused, Unanswered
from bench.launch.slurm_watch import Watch
from bench.results import write_json

END_PATIENCE_S = 60.0  # from scancel to the end of a job: Slurm's own KillWait is half of it by default
STOP_LOOK_S = 1.0
JOBS = "jobs.json"  # in <result>/slurm: the jobs that were submitted for it, newest last
FIELDS = "cluster.partition, account, time, gres, constraint, exclusive, directives and num_nodes"


class Job:
    """`clock` and `pause` are the waiting: seconds, as time.monotonic and time.sleep have them."""

    within = False

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._pause = clock, pause
        self._watch: Watch | None = None
        self._look_s = 5.0
        self._next_look = 0.0
        self._said: list[str] = []
        self._untold = False  # it was to be cancelled, and Slurm did not take the order

    def check(self, config: Run, script: str) -> None:
        try:
            why = slurm_commands.refusal(script)
        except Unanswered as error:
            raise BadInput(f"cluster: Slurm's controller cannot be asked ({error}); try again later") from None
        if why is not None:
            raise BadInput(f"cluster: Slurm would refuse this job ({why}); see {FIELDS}{_about_spare(config)}")

    def command(self, paths: Paths) -> list[str]:
        return ["sbatch", "--parsable", str(slurm_script.folder(paths.result) / slurm_script.SCRIPT)]

    def start(self, config: Run, paths: Paths) -> None:
        folder = slurm_script.folder(paths.result)
        try:
            job = slurm_commands.submit(str(folder / slurm_script.SCRIPT))
        except (Refused, Unanswered) as error:
            raise BadInput(f"cluster: Slurm did not take the job ({error}); see {FIELDS}") from None
        write_json(folder / JOBS, [*_jobs(folder), {"job": job, "submitted": time.time()}])
        self._said += [
            f"job {job} is submitted; you may close this terminal, the job goes on without it",
            f"look: squeue -j {job}; output: {folder / f'job-{job}.out'} and {paths.result / 'logs'}",
            f"wait for it and collect: python -m bench run resume={paths.result}",
        ]
        self._follow(config, job)

    def attach(self, config: Run, paths: Paths) -> bool:
        jobs = _jobs(slurm_script.folder(paths.result))
        if not jobs:
            return False
        job = str(jobs[-1]["job"])
        try:
            state = slurm_commands.job_state(job)
        except Unanswered as error:
            raise BadInput(f"resume: Slurm cannot tell whether job {job} still runs ({error}); try later") from None
        if state is None or not state.alive:
            return False
        self._follow(config, job)
        return True

    def _follow(self, config: Run, job: str) -> None:
        self._watch = Watch(job, self._clock(), slurm_script.may_be_requeued(config))
        self._look_s, self._next_look = config.cluster.poll_s, 0.0
        self._look()

    def _look(self) -> None:
        assert self._watch is not None
        try:
            self._watch.see(self._clock(), slurm_commands.job_state(self._watch.job))
        except Unanswered as error:
            self._watch.no_answer(self._clock(), str(error))
        self._next_look = self._clock() + self._look_s
        if self._watch.to_cancel:
            self._cancel()

    def running(self) -> bool:
        if self._watch is None:
            return False
        if self._watch.alive and self._clock() >= self._next_look:
            self._look()
        return self._watch.alive

    def news(self) -> list[str]:
        said, self._said = self._said, []
        return said + (self._watch.news() if self._watch is not None else [])

    def stop(self) -> None:
        """Runners are asked first, so that what was measured comes home; then the job is cancelled."""
        if self._watch is None or not self._watch.alive:
            return
        if self._watch.state is not None and self._watch.state.state == "RUNNING":
            self._order(slurm_commands.ask_to_end)
            self._wait_for_the_end(STOP_PATIENCE_S)
        if self._watch.alive:
            self._cancel()
            self._wait_for_the_end(END_PATIENCE_S)

    def left_running(self) -> bool:
        if self._watch is None:
            return False
        return self._watch.silent or (self._untold and (self._watch.alive or self._watch.to_cancel))

    def _wait_for_the_end(self, patience_s: float) -> None:
        assert self._watch is not None
        end = self._clock() + patience_s
        while self._watch.alive and self._clock() < end:
            self._pause(STOP_LOOK_S)
            self._look()

    def _cancel(self) -> None:
        self._untold = not self._order(slurm_commands.cancel)

    def _order(self, order: Callable[[str], None]) -> bool:
        """Whether Slurm took it."""
        assert self._watch is not None
        try:
            order(self._watch.job)
        except (Refused, Unanswered) as error:
            self._said.append(f"job {self._watch.job} could not be told to end ({error}); scancel {self._watch.job}")
            return False
        return True


def _about_spare(config: Run) -> str:
    """A node of 8 GPUs has none for a spare rank beside 8 others."""
    spare, ranks = config.recovery.reserve, config.ranks_per_node
    if config.device != "cuda" or not 0 < spare < ranks or config.cluster.gres is not None:
        return ""
    return (
        f". It asks for {ranks + spare} GPUs a node, {spare} of them for recovery.reserve; on nodes of {ranks} give "
        f"ranks_per_node={ranks - spare}"
    )


def _jobs(folder: Path) -> list[dict[str, Any]]:
    path = folder / JOBS
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else []
    return found
