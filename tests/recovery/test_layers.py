"""One contract for all recovery layers: what a node runner starts for a launch, and on which rank."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import import_module

import pytest

from bench import recovery
from bench.config import Checkpoint, Cluster, Design, Fault, Faults, Recovery, Run
from bench.errors import BadInput
from bench.recovery import ft_launcher, nvrx_versions
from bench.recovery.base import WORKER_MODULE, Place
from bench.recovery.timeouts import derive

TIMES = derive(step_s=0.05, save_s=0.3, startup_s=6.0)
PLACE = Place(
    "run-3",
    node=1,
    num_nodes=2,
    ranks_per_node=3,
    host="10.0.0.1",
    agent_port=4711,
    python=sys.executable,
    timeouts=TIMES,
    max_restarts=7,
    rank_port=4712,
)
AGENTS = ("torchrun", "in_job", "nested")
RANKS = sorted(set(recovery.LAYERS) - set(AGENTS))
ON_THIS_MACHINE = Cluster(name="local")


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


@pytest.mark.parametrize("name", recovery.LAYERS)
def test_every_layer_starts_another_worker_where_one_is_named_and_does_without_measured_timeouts(name):
    for process in recovery.create(name).processes(replace(PLACE, worker_module="mine", timeouts=None)):
        assert process.command[-2:] == ["-m", "mine"]


@pytest.mark.parametrize("name", recovery.LAYERS)
def test_the_part_inside_the_ranks_goes_by_the_same_name(name):
    pytest.importorskip("torch")
    module, attribute = recovery.create(name).inside.split(":")
    assert getattr(import_module(module), attribute).layer == name


@pytest.mark.parametrize("name", ["none", "torchrun"])  # the others share the first one's module
def test_ranks_of_a_layer_without_nvrx_do_not_spend_their_restart_on_importing_it(name):
    pytest.importorskip("torch")
    module = recovery.create(name).inside.split(":")[0]
    code = f"import {module}, sys; print('nvidia_resiliency_ext' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "False\n", result.stderr


def test_an_unknown_layer_is_refused_with_a_suggestion():
    with pytest.raises(BadInput, match=r"recovery\.layer: unknown layer 'torchrunn'; did you mean torchrun\?"):
        recovery.create("torchrunn")


# --- layers that start the ranks themselves
@pytest.mark.parametrize("name", RANKS)
def test_without_an_agent_every_rank_is_a_process_that_knows_its_place(name):
    ranks = [process.env for node in (0, 1) for process in recovery.create(name).processes(replace(PLACE, node=node))]
    assert [env["RANK"] for env in ranks] == ["0", "1", "2", "3", "4", "5"]
    assert [env["LOCAL_RANK"] for env in ranks] == ["0", "1", "2"] * 2
    assert {(env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) for env in ranks} == {("6", "3")}


@pytest.mark.parametrize("name", RANKS)
def test_a_rank_is_told_how_often_its_node_was_started_before(name):
    processes = recovery.create(name).processes(replace(PLACE, attempt=2))
    assert {process.env["BENCH_ATTEMPT"] for process in processes} == {"2"}


def test_spare_ranks_stand_on_the_last_node_and_count_in_the_world():
    nodes = [recovery.create("in_process").processes(replace(PLACE, node=node, reserve=2)) for node in (0, 1)]
    assert [len(processes) for processes in nodes] == [3, 5]
    assert [process.env["RANK"] for process in nodes[1]] == ["3", "4", "5", "6", "7"]
    assert {process.env["WORLD_SIZE"] for processes in nodes for process in processes} == {"8"}


def test_a_pods_ranks_meet_at_rank_zero_which_hosts_the_rendezvous_itself():
    for process in recovery.create("pod_restart").processes(PLACE):
        assert (process.env["MASTER_ADDR"], process.env["MASTER_PORT"]) == ("10.0.0.1", "4712")


def test_the_wrapper_is_told_its_limit_and_on_gpus_what_nccl_needs_for_an_abort():
    on_cpu, on_cuda = (
        recovery.create("in_process").processes(replace(PLACE, device=device))[0].env for device in ("cpu", "cuda")
    )
    assert on_cpu["BENCH_MAX_RESTARTS"] == "7"
    assert "NCCL_NVLS_ENABLE" not in on_cpu
    assert (on_cuda["TORCH_NCCL_RETHROW_CUDA_ERRORS"], on_cuda["NCCL_NVLS_ENABLE"]) == ("0", "0")


# --- layers with an agent
@pytest.mark.parametrize("name", AGENTS)
def test_there_is_one_agent_per_node_and_they_meet_at_node_zero(name):
    hosts = []
    for node in (0, 1):
        (agent,) = recovery.create(name).processes(replace(PLACE, node=node))
        assert agent.local_rank is None
        assert {"--nnodes=2", "--nproc-per-node=3", "--rdzv-endpoint=10.0.0.1:4711", "--rdzv-id=run-3"} <= set(
            agent.command
        )
        assert "--max-restarts=7" in agent.command
        assert agent.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
        hosts += [word.split("=", 1)[1] for word in agent.command if word.startswith("--rdzv-conf=")]
    assert hosts == ["is_host=true,join_timeout=60", "is_host=false,join_timeout=60"]


def options(name: str, version: str, monkeypatch: pytest.MonkeyPatch, **place: object) -> dict[str, str]:
    monkeypatch.setattr(nvrx_versions, "installed", lambda: version)
    (agent,) = recovery.create(name).processes(replace(PLACE, **place))
    words = [word for word in agent.command if word.startswith("--")]
    return dict(word.split("=", 1) for word in words) | agent.env


@pytest.mark.parametrize("version", ["0.4.1", "0.7.0"])
def test_in_job_watches_heartbeats_by_the_derived_times(version, monkeypatch):
    given = options("in_job", version, monkeypatch)
    assert given["--ft-rank-heartbeat-timeout"] == "5"
    assert given["--ft-initial-rank-heartbeat-timeout"] == "30"
    assert given["--ft-workload-check-interval"] == "1"
    assert given["--workers-stop-timeout"] == "3"
    assert not [name for name in given if "section" in name]


def test_in_job_watches_sections_and_turns_heartbeats_off_where_they_are_on_unasked(monkeypatch):
    old, new = (options("in_job", version, monkeypatch, monitoring="sections") for version in ("0.4.1", "0.7.0"))
    assert old["--ft-rank-section-timeouts"] == new["--ft-rank-section-timeouts"] == "setup:30,step:5,checkpointing:5"
    assert old["--ft-rank-out-of-section-timeout"] == "5"
    assert (old["--ft-initial-rank-heartbeat-timeout"], old["--ft-rank-heartbeat-timeout"]) == ("inf", "inf")
    assert "--ft-rank-heartbeat-timeout" not in new


def test_around_the_wrapper_the_agent_is_more_patient_than_the_wrapper(monkeypatch):
    old, new = (options("nested", version, monkeypatch) for version in ("0.4.1", "0.7.0"))
    assert float(old["--ft-rank-heartbeat-timeout"]) > TIMES.hard_s + TIMES.grace_s
    assert old["--ft-restart-policy"] == "min-healthy"
    assert "--ft-restart-policy" not in new  # 0.7 has one policy
    assert old["BENCH_MAX_RESTARTS"] == new["BENCH_MAX_RESTARTS"] == "7"


def test_only_the_newer_launcher_must_be_allowed_several_agents_on_a_machine(monkeypatch):
    name = "NVRX_ENABLE_MULTI_LAUNCHERS_PER_NODE"
    assert name not in options("in_job", "0.4.1", monkeypatch)
    assert options("in_job", "0.7.0", monkeypatch)[name] == "1"


def test_the_process_groups_timeout_is_long_only_where_the_layer_finds_hangs_itself():
    found = {name: recovery.create(name).collective_timeout_s(TIMES) for name in recovery.LAYERS}
    watching = {"in_job", "in_process", "nested"}
    assert {name for name, seconds in found.items() if seconds == TIMES.collective_s} == watching
    assert {name for name, seconds in found.items() if seconds == TIMES.collective_alone_s} == set(found) - watching


# --- refusals
@pytest.mark.parametrize("name", recovery.LAYERS)
def test_a_plain_run_is_refused_by_no_layer(name):
    assert recovery.create(name).refusal(Run(cluster=ON_THIS_MACHINE)) is None


@pytest.mark.parametrize("name", recovery.LAYERS)
def test_spare_ranks_are_refused_where_nobody_would_use_them(name):
    refusal = recovery.refusal(Run(cluster=ON_THIS_MACHINE, recovery=Recovery(layer=name, reserve=1)))
    if name in ("in_process", "nested"):
        assert refusal is None
    else:
        assert refusal == f"recovery.reserve: {name} has no use for spare ranks; give them to in_process or nested"


def compared(*layers: str) -> Run:
    """A run with faults and a spare rank."""
    return Run(
        cluster=ON_THIS_MACHINE,
        design=Design(name="recovery"),
        checkpoint=Checkpoint(arms=["sync_dcp"], interval=6),
        faults=Faults(given=[Fault("sigkill")]),
        recovery=Recovery(layers=list(layers), reserve=1),
    )


def test_spare_ranks_are_for_runs_all_of_whose_compared_layers_can_use_them():
    assert recovery.refusal(compared("in_process", "nested")) is None
    assert recovery.refusal(compared("in_process", "in_job", "requeue")) == (
        "recovery.reserve: in_job, requeue have no use for spare ranks; give them to in_process or nested alone, in a "
        "run of their own"
    )


@pytest.mark.parametrize("name", ["in_job", "in_process", "nested"])
def test_without_nvrx_its_layers_are_refused_here_and_left_to_the_cluster_elsewhere(name, monkeypatch):
    monkeypatch.setattr(ft_launcher, "find_spec", lambda module: None)
    here, there = (recovery.create(name).refusal(Run(cluster=Cluster(name=where))) for where in ("local", "slurm"))
    assert here is not None
    assert here.startswith(f"recovery.layer: {name} needs nvidia-resiliency-ext; install it")
    assert there is None


def test_nested_does_not_watch_sections():
    refused = recovery.create("nested").refusal(Run(recovery=Recovery(ft_monitoring="sections")))
    assert refused is not None
    assert refused.startswith("recovery.ft_monitoring: nested watches heartbeats")
