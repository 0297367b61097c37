"""A job of its own, against a Slurm whose state is a list of looks and whose clock is a number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config import Cluster, Recovery, Run
from bench.errors import BadInput
from bench.launch import slurm_commands, slurm_job
from bench.launch.base import Paths
from bench.launch.slurm_commands import JobState, Refused, Unanswered
from bench.launch.slurm_job import Job

RUNNING, ENDED = JobState("RUNNING", nodes="n[1-2]"), JobState("COMPLETED")
CONFIG = replace(Run(num_nodes=2, device="cpu"), cluster=Cluster(name="slurm", poll_s=5.0))


class Slurm:
    """`states`: what each look sees, the last one for ever; an exception is raised. `orders`: what it was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.states: list[JobState | Exception | None] = [RUNNING]
        self.looks = 0
        self.orders: list[str] = []
        self.on_order: dict[str, Callable[[], None]] = {}
        monkeypatch.setattr(slurm_commands, "job_state", self._look)
        monkeypatch.setattr(slurm_commands, "submit", lambda script: "12")
        for name in ("ask_to_end", "cancel"):
            monkeypatch.setattr(slurm_commands, name, lambda job, name=name: self._order(name, job))

    def _look(self, job: str) -> JobState | None:
        self.looks += 1
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return state

    def _order(self, name: str, job: str) -> None:
        self.orders.append(f"{name} {job}")
        self.on_order.get(name, lambda: None)()

    def ends(self) -> None:
        self.states = [ENDED]

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def job(self) -> Job:
        return Job(clock=lambda: self.now, pause=self.pause)


@pytest.fixture
def slurm(monkeypatch) -> Slurm:
    return Slurm(monkeypatch)


@pytest.fixture
def paths(tmp_path) -> Paths:
    (tmp_path / "result" / "slurm").mkdir(parents=True)
    return Paths(tmp_path / "result", tmp_path / "work", tmp_path / "checkpoints")


def started(slurm: Slurm, paths: Paths) -> Job:
    job = slurm.job()
    job.start(CONFIG, paths)
    return job


def test_a_submission_says_the_id_that_the_terminal_may_close_and_how_to_collect(slurm, paths):
    slurm.states = [JobState("PENDING", "Resources"), RUNNING]
    said = started(slurm, paths).news()
    assert said[0] == "job 12 is submitted; you may close this terminal, the job goes on without it"
    assert f"python -m bench run resume={paths.result}" in said[2]
    assert said[3] == "job 12 waits (Resources)"


def test_slurm_is_asked_no_more_often_than_configured(slurm, paths):
    job = started(slurm, paths)
    for tenth in range(100):  # the driver looks every half second
        slurm.now = tenth / 10
        assert job.running()
    assert slurm.looks == 2


def test_the_wait_ends_with_the_job(slurm, paths):
    slurm.states = [RUNNING, JobState("NODE_FAIL")]
    job = started(slurm, paths)
    assert job.running()
    slurm.now = 5.0
    assert not job.running()
    assert job.news()[-1] == "job 12 has ended: NODE_FAIL"
    job.stop()
    assert slurm.orders == []


def test_a_job_that_can_never_start_is_cancelled_and_not_waited_for(slurm, paths):
    slurm.states = [JobState("PENDING", "PartitionTimeLimit")]
    job = started(slurm, paths)
    assert not job.running()
    assert slurm.orders == ["cancel 12"]


def test_a_stop_asks_the_runners_and_gives_them_time_to_bring_home_what_they_measured(slurm, paths):
    job = started(slurm, paths)
    slurm.on_order["ask_to_end"] = slurm.ends
    job.stop()
    assert slurm.orders == ["ask_to_end 12"]
    assert not job.running()


def test_runners_that_do_not_end_are_cancelled_with_their_job(slurm, paths):
    job = started(slurm, paths)
    slurm.on_order["cancel"] = slurm.ends
    job.stop()
    assert slurm.orders == ["ask_to_end 12", "cancel 12"]
    assert slurm.now == pytest.approx(slurm_job.STOP_PATIENCE_S + 1, abs=1)


def test_a_job_that_even_a_cancel_does_not_end_is_not_waited_for_for_ever(slurm, paths):
    job = started(slurm, paths)
    job.stop()
    assert slurm.now <= slurm_job.STOP_PATIENCE_S + slurm_job.END_PATIENCE_S + 2


def test_a_job_that_still_waits_is_cancelled_at_once(slurm, paths):
    slurm.states = [JobState("PENDING", "Priority")]
    job = started(slurm, paths)
    slurm.on_order["cancel"] = slurm.ends
    job.stop()
    assert slurm.orders == ["cancel 12"]


def test_what_cannot_be_cancelled_is_said_with_the_command_that_would(slurm, paths):
    slurm.states = [JobState("PENDING", "Priority")]
    job = started(slurm, paths)

    def fails() -> None:
        raise Unanswered("no answer")

    slurm.on_order["cancel"] = fails
    job.stop()
    assert "job 12 could not be told to end (no answer); scancel 12" in job.news()


def test_a_controller_that_stays_away_leaves_the_job_alone(slurm, paths):
    job = started(slurm, paths)
    slurm.states = [Unanswered("no answer")]
    while job.running():
        slurm.now += 5.0
    job.stop()
    assert slurm.orders == []
    assert "has not answered for 15 minutes" in job.news()[-1]
    assert job.left_running()


@pytest.mark.parametrize("state", [RUNNING, JobState("PENDING", "PartitionTimeLimit")])
def test_a_job_that_could_not_be_cancelled_is_left_running(slurm, paths, state):
    def away() -> None:
        raise Unanswered("no answer")

    slurm.states = [state]
    slurm.on_order = {"ask_to_end": away, "cancel": away}
    job = started(slurm, paths)
    job.stop()
    assert job.left_running()


def test_a_job_that_has_ended_or_was_told_to_is_not_left_running(slurm, paths):
    assert not slurm.job().left_running()
    told = started(slurm, paths)
    told.stop()
    over = started(slurm, paths)

    def ended_meanwhile() -> None:
        slurm.ends()
        raise Refused("Invalid job id specified")

    slurm.states = [JobState("PENDING", "Priority")]
    over = started(slurm, paths)
    slurm.on_order["cancel"] = ended_meanwhile
    over.stop()
    assert not told.left_running()
    assert not over.left_running()


def test_a_job_that_may_be_requeued_is_waited_for_while_it_completes(slurm, paths):
    slurm.states = [JobState("COMPLETING")]
    once, again = slurm.job(), slurm.job()
    once.start(CONFIG, paths)
    again.start(replace(CONFIG, cluster=Cluster(name="slurm", poll_s=5.0, requeue=True)), paths)
    slurm.now = 300.0
    assert (once.running(), again.running()) == (False, True)


# --- taken up again
def test_a_job_that_goes_on_is_taken_up_and_one_that_ended_is_not(slurm, paths):
    started(slurm, paths)
    assert slurm.job().attach(CONFIG, paths)
    for state in (ENDED, None):
        slurm.states = [state]
        assert not slurm.job().attach(CONFIG, paths)


def test_a_result_without_a_job_has_none_to_take_up(slurm, paths):
    job = slurm.job()
    assert not job.attach(CONFIG, paths)
    assert not job.running()
    job.stop()
    assert slurm.looks == 0


def test_the_newest_of_several_jobs_is_taken_up(slurm, paths, monkeypatch):
    started(slurm, paths)
    monkeypatch.setattr(slurm_commands, "submit", lambda script: "13")
    started(slurm, paths)
    job = slurm.job()
    assert job.attach(CONFIG, paths)
    assert job.news() == ["job 13 runs on n[1-2]"]


def test_whether_a_job_goes_on_is_not_guessed(slurm, paths):
    started(slurm, paths)
    slurm.states = [Unanswered("no answer")]
    with pytest.raises(BadInput, match=r"resume: Slurm cannot tell whether job 12 still runs \(no answer\); try later"):
        slurm.job().attach(CONFIG, paths)


# --- refusals
def test_a_job_that_slurm_would_refuse_is_bad_input_before_anything_is_made(slurm, monkeypatch):
    monkeypatch.setattr(slurm_commands, "refusal", lambda script: "invalid partition specified: no")
    with pytest.raises(
        BadInput, match=r"cluster: Slurm would refuse this job \(invalid partition specified: no\); see"
    ):
        slurm.job().check(CONFIG, "#!/bin/bash")


def test_gpus_for_spare_ranks_that_the_nodes_may_not_have_are_named_with_the_way_out(slurm, monkeypatch):
    monkeypatch.setattr(slurm_commands, "refusal", lambda script: "node configuration is not available")
    spare = Recovery(layer="in_process", reserve=1)
    config = replace(CONFIG, device="cuda", ranks_per_node=8, recovery=spare)
    with pytest.raises(BadInput, match=r"asks for 9 GPUs a node, .* on nodes of 8 give ranks_per_node=7$"):
        slurm.job().check(config, "#!/bin/bash")


def test_a_controller_that_cannot_be_asked_is_bad_input(slurm, monkeypatch):
    def away(script: str) -> str:
        raise Unanswered("no answer")

    monkeypatch.setattr(slurm_commands, "refusal", away)
    with pytest.raises(BadInput, match=r"controller cannot be asked \(no answer\); try again later"):
        slurm.job().check(CONFIG, "#!/bin/bash")


def test_a_refused_submission_is_bad_input(slurm, paths, monkeypatch):
    def no(script: str) -> str:
        raise Refused("Job violates accounting policy")

    monkeypatch.setattr(slurm_commands, "submit", no)
    with pytest.raises(BadInput, match=r"Slurm did not take the job \(Job violates accounting policy\)"):
        slurm.job().start(CONFIG, paths)
    assert not (Path(paths.result) / "slurm" / slurm_job.JOBS).exists()
