"""A run inside an allocation, with small programs in place of srun and scancel."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench.config import Cluster, Recovery, Run
from bench.errors import BadInput
from bench.launch import slurm_commands, slurm_script, slurm_step
from bench.launch.base import Paths
from bench.launch.slurm_commands import Unanswered
from bench.launch.slurm_step import Step

CONFIG = replace(Run(num_nodes=2, device="cpu"), cluster=Cluster(name="slurm"))


@pytest.fixture
def allocation(monkeypatch) -> None:
    for name, value in {"JOB_ID": "7", "JOB_NUM_NODES": "4", "TASKS_PER_NODE": "1(x4)"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)


# --- what an allocation must be like
@pytest.mark.usefixtures("allocation")
def test_an_allocation_with_one_task_a_node_and_nodes_enough_will_do():
    assert Step("7").check(CONFIG, "") is None


@pytest.mark.usefixtures("allocation")
@pytest.mark.parametrize("tasks", ["8(x4)", "1,2(x3)", None])
def test_other_tasks_per_node_are_refused_with_the_rule(tasks, monkeypatch):
    monkeypatch.delenv("SLURM_TASKS_PER_NODE")
    if tasks is not None:
        monkeypatch.setenv("SLURM_TASKS_PER_NODE", tasks)
    with pytest.raises(BadInput, match=r"must be 1 on every node .*; salloc --ntasks-per-node=1, or leave") as caught:
        Step("7").check(CONFIG, "")
    assert f"SLURM_TASKS_PER_NODE={tasks or 'unset'}" in str(caught.value)


@pytest.mark.usefixtures("allocation")
def test_more_nodes_than_the_allocation_has_are_refused():
    with pytest.raises(BadInput, match=r"num_nodes: 8 are more than the 4 of allocation 7; lower it, or leave"):
        Step("7").check(replace(CONFIG, num_nodes=8), "")


@pytest.mark.usefixtures("allocation")
def test_a_step_cannot_be_left_to_itself():
    with pytest.raises(BadInput, match=r"cluster\.wait: false needs a job of its own"):
        Step("7").check(replace(CONFIG, cluster=Cluster(name="slurm", wait=False)), "")


@pytest.mark.usefixtures("allocation")
def test_slurm_requeues_jobs_and_no_steps():
    with pytest.raises(BadInput, match=r"recovery\.relaunch: .* a step of allocation 7; use recovery\.relaunch="):
        Step("7").check(replace(CONFIG, recovery=Recovery(relaunch="engine")), "")


# --- a step's life
class Fakes:
    def __init__(self, path, monkeypatch) -> None:
        self.path = path
        self.paths = Paths(path / "result", path / "work", path / "checkpoints")
        self.folder = slurm_script.folder(self.paths.result)
        self.folder.mkdir(parents=True)
        monkeypatch.setenv("PATH", f"{path}{os.pathsep}{os.environ['PATH']}")
        self.program("scontrol", "true")
        self.program("scancel", f'echo "$*" >>{path}/orders; kill -TERM "$(cat {path}/pid)"')

    def program(self, name: str, text: str) -> None:
        (self.path / name).write_text(f"#!/bin/bash\n{text}\n")
        (self.path / name).chmod(0o755)

    def step(self, text: str) -> Step:
        """Start a step whose srun is that shell text, and wait until it has come up."""
        told = f"echo 7.3 >{self.folder}/step; echo $$ >{self.path}/pid; echo >{self.path}/up"
        self.program("srun", f"{text}\n{told}\nwhile :; do sleep 0.05; done")
        step = Step("7")
        (self.folder / slurm_script.SCRIPT).write_text(slurm_script.render(CONFIG, self.paths, None, within=True))
        step.start(CONFIG, self.paths)
        until((self.path / "up").exists)
        return step

    @property
    def orders(self) -> list[str]:
        path = self.path / "orders"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def fakes(tmp_path, monkeypatch) -> Iterator[Fakes]:
    return Fakes(tmp_path, monkeypatch)


def until(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_step_runs_in_the_allocation_and_its_end_is_the_runs(fakes):
    fakes.program("srun", "exit 0")
    step = Step("7")
    (fakes.folder / slurm_script.SCRIPT).write_text(slurm_script.render(CONFIG, fakes.paths, None, within=True))
    step.start(CONFIG, fakes.paths)
    until(lambda: not step.running())
    assert step.news() == ["runs on 2 nodes of allocation 7"]


def test_a_stop_reaches_the_step_and_nothing_else_of_the_allocation(fakes):
    step = fakes.step("trap 'exit 130' TERM")
    assert step.running()
    step.stop()
    assert not step.running()
    assert fakes.orders == ["--ctld --signal=TERM 7.3"]
    assert step.news()[-1] == "the step of allocation 7 ended with 130"
    assert not step.left_running()


def test_a_step_that_does_not_end_is_cancelled(fakes, monkeypatch):
    monkeypatch.setattr(slurm_step, "STOP_PATIENCE_S", 0.2)
    monkeypatch.setattr(slurm_step, "END_PATIENCE_S", 0.2)
    step = fakes.step("trap '' TERM")
    step.stop()
    assert not step.running()
    assert fakes.orders[-1] == "7.3"


def test_a_step_that_could_not_be_cancelled_is_left_running(fakes, monkeypatch):
    monkeypatch.setattr(slurm_step, "STOP_PATIENCE_S", 0.2)
    monkeypatch.setattr(slurm_step, "END_PATIENCE_S", 0.2)
    step = fakes.step("trap '' TERM")
    fakes.program("scancel", "echo 'scancel: error: Socket timed out' >&2; exit 1")
    step.stop()
    assert step.left_running()


# --- taken up again
def test_a_step_that_goes_on_without_its_driver_is_not_joined_by_a_second_one(fakes, monkeypatch):
    (fakes.folder / slurm_script.STEP).write_text("7.3\n")
    monkeypatch.setattr(slurm_commands, "step_alive", lambda step: step == "7.3")
    with pytest.raises(BadInput, match=r"resume: .* still runs as step 7\.3; wait for its end, or scancel 7\.3"):
        Step("7").attach(CONFIG, fakes.paths)
    monkeypatch.setattr(slurm_commands, "step_alive", lambda step: False)
    assert not Step("7").attach(CONFIG, fakes.paths)


def test_whether_a_step_goes_on_is_not_guessed(fakes, monkeypatch):
    def away(step: str) -> bool:
        raise Unanswered("no answer")

    (fakes.folder / slurm_script.STEP).write_text("7.3\n")
    monkeypatch.setattr(slurm_commands, "step_alive", away)
    with pytest.raises(BadInput, match=r"resume: Slurm cannot tell whether step 7\.3 still runs"):
        Step("7").attach(CONFIG, fakes.paths)
