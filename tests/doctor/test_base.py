"""What every check knows: which machine this is to the run, and how much of the run is on it."""

from __future__ import annotations

import pytest

from bench.config import Recovery
from bench.doctor.base import Check, judged
from tests.doctor.cases import SMALL, case, run

SIZE = SMALL.parameters * 12


@pytest.mark.parametrize(
    ("cluster", "environ", "on_node", "sees_store"),
    [
        ("local", {}, True, True),
        ("emulated", {}, True, True),
        ("slurm", {}, False, True),
        ("slurm", {"SLURM_JOB_ID": "7"}, True, True),
        ("kubernetes", {}, False, False),
        ("kubernetes", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True, True),
    ],
)
def test_a_machine_that_only_submits_is_told_from_a_node_of_the_run(cluster, environ, on_node, sees_store):
    found = case(run(cluster=cluster), environ=environ)
    assert (found.on_node, found.sees_store) == (on_node, sees_store)


def test_a_node_holds_its_share_of_a_checkpoint_and_a_rehearsal_all_of_it():
    assert case(run(num_nodes=4)).shard_bytes == SIZE // 4
    assert case(run(num_nodes=4, cluster="emulated")).shard_bytes == SIZE
    assert case(run(num_nodes=4, cluster="emulated")).ranks_here == 8


def test_spare_ranks_are_on_one_node_and_write_nothing():
    spare = run(num_nodes=4, recovery=Recovery(layer="in_process", reserve=1))
    assert (case(spare).ranks_here, case(spare).writers_here, case(spare).shard_bytes) == (3, 2, SIZE // 4)


def test_the_size_of_a_users_model_is_unknown_and_not_zero():
    assert case(run(model=type(SMALL)(target="package.Class"))).shard_bytes is None


def test_arms_that_write_are_named_by_their_strategy_without_the_control():
    assert case(run(arms=("none", "sync_local", "sync_local+fsync"))).writing_arms == ["sync_local", "sync_local"]


@pytest.mark.parametrize(("nodes_there", "num_nodes", "across"), [("2", 2, True), ("1", 2, False), ("2", 1, False)])
def test_other_nodes_are_reached_from_an_allocation_of_several_only(nodes_there, num_nodes, across):
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": nodes_there}
    assert case(run(cluster="slurm", num_nodes=num_nodes), environ=environ).across_nodes is across


def test_what_is_right_needs_no_remedy():
    assert judged("x", True, "there", "get it") == Check("x", "ok", "there", "")
    assert judged("x", False, "not there", "get it", "warn") == Check("x", "warn", "not there", "get it")
