"""One contract for all recovery layers: what a node runner starts for a launch, and on which rank."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from bench import recovery
from bench.errors import BadInput
from bench.recovery.base import WORKER_MODULE, Place

PLACE = Place("run-3", node=1, num_nodes=2, ranks_per_node=3, host="10.0.0.1", agent_port=4711, python=sys.executable)


@pytest.mark.parametrize("name", recovery.LAYERS)
def test_every_layer_starts_the_worker_with_the_given_python_under_distinct_names(name):
    layer = recovery.create(name)
    processes = layer.processes(PLACE)
    assert layer.name == name
    assert processes
    assert len({process.name for process in processes}) == len(processes)
    for process in processes:
        assert process.command[0] == PLACE.python
        assert process.command[-2:] == ["-m", WORKER_MODULE]


def test_an_unknown_layer_is_refused_with_a_suggestion():
    with pytest.raises(BadInput, match=r"recovery\.layer: unknown layer 'torchrunn'; did you mean torchrun\?"):
        recovery.create("torchrunn")


def test_without_recovery_every_rank_is_a_process_that_knows_its_place():
    ranks = [process.env for node in (0, 1) for process in recovery.create("none").processes(replace(PLACE, node=node))]
    assert [env["RANK"] for env in ranks] == ["0", "1", "2", "3", "4", "5"]
    assert [env["LOCAL_RANK"] for env in ranks] == ["0", "1", "2"] * 2
    assert {(env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) for env in ranks} == {("6", "3")}


def test_torchrun_is_one_agent_per_node_that_meets_at_node_zero():
    hosts = []
    for node in (0, 1):
        (agent,) = recovery.create("torchrun").processes(replace(PLACE, node=node))
        assert agent.local_rank is None
        assert {"--nnodes=2", "--nproc-per-node=3", "--rdzv-endpoint=10.0.0.1:4711", "--rdzv-id=run-3"} <= set(
            agent.command
        )
        hosts.append("--rdzv-conf=is_host=true" in agent.command)
    assert hosts == [True, False]
