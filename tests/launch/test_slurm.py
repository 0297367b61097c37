"""cluster=slurm before anything starts. What a real Slurm does with it: test_slurm_loopback.py."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config import Budget, Cluster, Run
from bench.errors import BadInput
from bench.launch import slurm_commands
from bench.launch.base import Paths
from bench.launch.slurm import Slurm

CONFIG = replace(Run(num_nodes=2, device="cpu"), cluster=Cluster(name="slurm"))
PATHS = Paths(Path("/shared/result"), Path("/tmp/work"), Path("/shared/checkpoints/abc"))


@pytest.fixture(autouse=True)
def on_a_login_node(monkeypatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def test_without_slurms_clients_the_ways_on_are_named(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BadInput, match=r"cluster: slurm's clients .* login node, .*cluster=emulated.*dry_run=true"):
        Slurm().check(CONFIG, gpus=0)


def test_gpus_that_would_stand_idle_are_refused():
    config = replace(CONFIG, cluster=Cluster(name="slurm", gres="gpu:8"))
    with pytest.raises(BadInput, match=r"cluster\.gres: gpu:8 asks for GPUs that device=cpu would leave idle"):
        Slurm().check(config, gpus=8)


def test_slurm_is_shown_the_very_script_that_would_be_submitted(monkeypatch):
    shown = []
    monkeypatch.setattr(slurm_commands, "available", lambda: True)
    monkeypatch.setattr(slurm_commands, "refusal", shown.append)
    Slurm().check(CONFIG, gpus=0)
    (script,) = shown
    assert "#SBATCH --nodes=2" in script
    assert "bench.launch.slurm_task" in script


def test_a_dry_run_shows_the_script_with_its_time_limit_and_the_command_that_submits_it():
    config = replace(CONFIG, budget=Budget(minutes=55))
    assert "#SBATCH --time=76" in Slurm().script(config, PATHS)
    assert Slurm().commands(config, PATHS) == [["sbatch", "--parsable", "/shared/result/slurm/job.sh"]]


def test_inside_an_allocation_the_run_is_a_step_of_it(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert "--overlap" in Slurm().script(CONFIG, PATHS)
    assert Slurm().commands(CONFIG, PATHS) == [["bash", "/shared/result/slurm/job.sh"]]
