"""Every layer brings a real program of gloo ranks to its end after real faults: exceptions, kills, hangs.

The program and the runner's stand-in are in gloo_program.py and standin.py. Times are only compared with the timeouts
that caused them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.recovery.nvrx_versions import installed
from tests.recovery.standin import QUICK, Outcome, StandIn

STEPS = 12

pytestmark = pytest.mark.timeout(300)  # two programs of a busy machine


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    def run_one(layer: str, fault: str | None, **settings: Any) -> Outcome:
        folder = tmp_path_factory.mktemp(layer)
        outcome = StandIn(Path(folder), layer, fault=fault, steps=STEPS, **settings).run()
        assert outcome.finished, outcome.logs
        assert outcome.count == STEPS
        return outcome

    return run_one


def group_sizes(outcome: Outcome) -> list[tuple[int, ...]]:
    """World sizes that the ranks of each generation were given, in the order of time; one entry a rank."""
    return [tuple(event["world_size"] for event in events) for events in outcome.generations().values()]


def pids(outcome: Outcome) -> list[set[int]]:
    return [{event["pid"] for event in events} for events in outcome.generations().values()]


def in_order(outcome: Outcome) -> bool:
    return all([event["seq"] for event in events] == list(range(len(events))) for events in outcome.workers)


# --- in place
def test_in_process_calls_the_training_again_in_the_same_processes_after_an_exception(run):
    outcome = run("in_process", "exception")
    first, second = pids(outcome)
    assert first == second
    assert group_sizes(outcome) == [(2, 2), (2, 2)]
    assert sorted(event["number"] for event in outcome.named("attempt")) == [0, 0, 1, 1]
    assert [name for name in ("abort", "aborted") if len(outcome.named(name)) != 2] == []
    assert outcome.after_strike("abort") <= outcome.after_strike("aborted") < outcome.after_strike("attempt")
    assert "RuntimeError: struck" in {event["error"] for event in outcome.named("caught")}
    effective = outcome.named("effective")[-1]
    assert (effective["soft_s"], effective["hard_s"]) == (QUICK.soft_s, QUICK.hard_s)
    assert (effective["barrier_s"], effective["collective_s"]) == (QUICK.barrier_s, QUICK.collective_s)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_in_process_goes_on_with_the_survivors_after_a_kill_even_of_rank_zero(run, victim):
    outcome = run("in_process", "sigkill", ranks_per_node=3, victim=victim)
    first, second = pids(outcome)
    assert second < first
    assert group_sizes(outcome) == [(3, 3, 3), (2, 2)]
    assert sorted(event["rank"] for event in outcome.named("attempt")[3:]) == [0, 1]


@pytest.mark.slow
def test_in_process_keeps_the_world_size_with_a_spare_rank(run):
    outcome = run("in_process", "sigkill", reserve=1)
    assert group_sizes(outcome) == [(2, 2), (2, 2)]
    (spare,) = {event["pid"] for event in outcome.named("reserve")}
    first, second = pids(outcome)
    assert spare in second - first


@pytest.mark.slow
def test_in_process_ends_a_hang_that_can_be_interrupted_at_the_soft_timeout(run):
    outcome = run("in_process", "hang")
    assert pids(outcome)[0] == pids(outcome)[1]
    assert QUICK.soft_s < outcome.after_strike("abort") < QUICK.hard_s


@pytest.mark.slow
def test_in_process_ends_a_stopped_rank_at_the_hard_timeout(run):
    outcome = run("in_process", "sigstop", ranks_per_node=3)
    assert group_sizes(outcome) == [(3, 3, 3), (2, 2)]
    assert outcome.after_strike("attempt") > QUICK.hard_s - 1.0  # the last sign of life was before the strike


@pytest.mark.slow
@pytest.mark.parametrize("again", [0, 2])
def test_in_process_survives_a_kill_in_the_middle_of_a_recovery(run, again):
    outcome = run("in_process", "exception", ranks_per_node=3, again=again)
    assert group_sizes(outcome) == [(3, 3, 3), (3, 3, 3), (2, 2)]
    assert outcome.seconds < QUICK.collective_s  # ranks that waited for the dead one to join were woken


@pytest.mark.slow
def test_in_process_leaves_out_a_rank_whose_health_check_fails(run):
    outcome = run("in_process", "unhealthy", ranks_per_node=3)
    assert group_sizes(outcome) == [(3, 3, 3), (2, 2)]


@pytest.mark.slow
def test_in_process_gives_up_after_as_many_restarts_as_it_may(tmp_path):
    program = StandIn(tmp_path, "in_process", fault="always", steps=STEPS)
    outcome = program.run()
    assert not outcome.finished
    assert len(outcome.generations()) == program.max_restarts + 1


# --- in new processes
def test_in_job_restarts_all_ranks_in_new_processes_after_a_kill(run):
    outcome = run("in_job", "sigkill")
    first, second = pids(outcome)
    assert not first & second
    assert group_sizes(outcome) == [(2, 2), (2, 2)]
    effective = outcome.named("effective")[-1]
    assert effective["rank_heartbeat_s"] == QUICK.rank_heartbeat_s
    assert effective["initial_heartbeat_s"] == QUICK.initial_heartbeat_s
    assert effective["check_interval_s"] == QUICK.check_interval_s


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["torchrun", "in_job", "requeue", "pod_restart"])
@pytest.mark.parametrize("fault", ["exception", "sigkill"])
def test_two_nodes_start_again_after_rank_zero_has_failed(run, layer, fault):
    outcome = run(layer, fault, num_nodes=2, ranks_per_node=1, victim=0)
    assert len({event["pid"] for event in outcome.named("attempt")}) == 4
    assert {event["world_size"] for event in outcome.named("attempt")} == {2}
    if layer != "pod_restart":  # there a node counts its own starts, and rank 0's store keeps the groups apart
        assert [len(events) for events in outcome.generations().values()] == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("monitoring", ["heartbeats", "sections"])
def test_in_job_finds_a_hang_by_heartbeats_and_by_sections(run, monitoring):
    outcome = run("in_job", "hang", monitoring=monitoring)
    assert outcome.after_strike("attempt") > QUICK.rank_heartbeat_s - 0.5
    effective = outcome.named("effective")[-1]
    assert ("section_step_s" in effective) == (monitoring == "sections")


@pytest.mark.slow
def test_in_job_restarts_a_stopped_rank(run):
    assert len(run("in_job", "sigstop").generations()) == 2


@pytest.mark.slow
def test_nested_mends_an_exception_in_place_and_leaves_a_kill_to_the_agent(run):
    in_place = run("nested", "exception", num_nodes=2, ranks_per_node=1)
    assert pids(in_place)[0] == pids(in_place)[1]
    assert in_place.named("effective")[-1]["nested_heartbeat_s"] == QUICK.nested_heartbeat_s
    by_agent = run("nested", "sigkill", num_nodes=2, ranks_per_node=1)
    assert not pids(by_agent)[0] & pids(by_agent)[-1]
    assert group_sizes(by_agent)[-1] == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["none", "torchrun", "in_job", "in_process", "nested"])
def test_without_a_fault_there_is_one_generation_and_every_event_in_its_place(run, layer):
    outcome = run(layer, None)
    assert len(outcome.generations()) == 1
    assert in_order(outcome)
    assert len(outcome.named("measured_end")) == 2


def test_the_version_of_nvrx_is_known():
    assert installed() is not None
