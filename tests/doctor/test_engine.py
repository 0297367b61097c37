"""Where the run is to take place: the rules of launchers and engines, before anything is submitted."""

from __future__ import annotations

import pytest

from bench.doctor import engine
from tests.doctor.cases import case, run

INSIDE = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "8", "SLURM_TASKS_PER_NODE": "1(x8)"}


def test_more_nodes_than_one_machine_fail_with_the_ways_on():
    nodes, placement = engine.examine(case(run(num_nodes=8)))
    assert (nodes.level, placement.level) == ("fail", "fail")
    assert "cluster=emulated" in nodes.remedy
    assert placement.found.startswith("`run` would refuse: num_nodes: ")
    assert "cluster=slurm" in placement.remedy


def test_a_rehearsal_is_accepted_and_named_one():
    nodes, placement = engine.examine(case(run(num_nodes=2, cluster="emulated")))
    assert (nodes.level, placement.level) == ("ok", "ok")
    assert "never cluster figures" in nodes.found


@pytest.mark.parametrize(
    ("text", "counts"), [("1", [1]), ("1(x3)", [1, 1, 1]), ("2(x2),1", [2, 2, 1]), ("8,1(x2)", [8, 1, 1])]
)
def test_tasks_per_node_are_read_from_slurms_short_form(text, counts):
    assert engine.tasks_per_node(text) == counts


def test_a_form_that_is_not_understood_is_an_error_and_no_guess():
    with pytest.raises(ValueError, match="is not understood"):
        engine.tasks_per_node("one")


@pytest.mark.parametrize(
    ("changes", "layers", "level"),
    [
        ({}, {"in_job"}, "ok"),
        ({"SLURM_TASKS_PER_NODE": "8(x8)"}, {"in_job"}, "fail"),
        ({"SLURM_TASKS_PER_NODE": "8(x8)"}, set(), "warn"),
        ({"SLURM_JOB_NUM_NODES": "4"}, set(), "fail"),
    ],
)
def test_an_allocation_must_have_the_nodes_and_one_task_on_each(changes, layers, level):
    assert engine.allocation(INSIDE | changes, 8, layers).level == level


def test_an_allocation_that_does_not_say_its_tasks_stops_ft_launcher():
    environ = {name: value for name, value in INSIDE.items() if name != "SLURM_TASKS_PER_NODE"}
    assert engine.allocation(environ, 8, {"nested"}).level == "fail"


def test_missing_slurm_clients_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    slurm = {check.name: check for check in engine.examine(case(run(cluster="slurm")))}["Slurm"]
    assert (slurm.level, slurm.found) == ("fail", "not on PATH: sbatch, srun, squeue, scontrol, scancel")


@pytest.mark.parametrize(
    ("cluster", "way"), [("slurm", "salloc --nodes=8"), ("kubernetes", "in a pod of the same image")]
)
def test_a_machine_that_only_submits_is_told_how_to_look_at_the_nodes(cluster, way):
    first = next(engine.examine(case(run(cluster=cluster, num_nodes=8))))
    assert (first.name, first.level) == ("this machine", "skip")
    assert way in first.remedy


def test_without_its_client_kubernetes_is_not_to_be_reached(monkeypatch):
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    assert engine.kubernetes().level == "fail"
    monkeypatch.setattr(engine, "find_spec", lambda name: object())
    assert engine.kubernetes().level == "ok"


def test_in_a_pod_neither_client_nor_placement_is_asked_for():
    pod = case(run(cluster="kubernetes", num_nodes=8), environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    nodes, placement = engine.examine(pod)
    assert (nodes.level, placement.name, placement.level) == ("ok", "placement", "skip")
