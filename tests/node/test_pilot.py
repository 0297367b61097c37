"""From the pilot's seconds to intervals, durations and timeouts, in one coherent order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.config import Checkpoint, Design, Fault, Faults, Recovery, Run, Train
from bench.design import Launch, plan, settle_auto
from bench.node.pilot import MIN_INTERVAL_STEPS, Pilot, deadline_s, endurance_s

CHECKPOINT = Checkpoint(arms=["none", "sync_local", "nvrx_async"], verify_content=False)


def pilot(**changes) -> Pilot:
    seconds = {
        "step_s": 0.5,
        "startup_s": 4.0,
        "around_s": 3.0,
        "blocking_s": {"none": 0.0, "sync_local": 1.0, "nvrx_async": 0.25},
        "durable_s": {"sync_local": 1.0, "nvrx_async": 3.25},
        "first_durable_s": {"sync_local": 1.0, "nvrx_async": 5.25},
    }
    return Pilot(**(seconds | changes))


def test_an_automatic_period_is_twice_the_longest_write():
    assert pilot().interval() == 13  # 2 x 3.25 s in steps of 0.5 s


def test_an_automatic_interval_has_a_least_length():
    assert pilot(durable_s={}).interval() == MIN_INTERVAL_STEPS
    assert pilot(step_s=100.0).interval() == MIN_INTERVAL_STEPS


@given(step_s=st.floats(1e-4, 10), durable_s=st.floats(0, 1000))
def test_an_automatic_interval_never_saturates(step_s, durable_s):
    made = pilot(step_s=step_s, durable_s={"nvrx_async": durable_s})
    assert made.interval() * step_s >= 2 * durable_s


def test_a_quick_launch_takes_its_steps_its_saves_and_the_waiting_for_writes():
    launch = plan(Run(checkpoint=CHECKPOINT, cycles=3))[1]
    per_cycle_s = 0.0 + 1.0 + 0.25  # blocking
    after_steps = 4 + 4 + 7  # at least 4; the asynchronous write needs 3 s = 6 steps, and one to notice
    warm_steps = 1 + 1 + 7  # at least 1
    steps = after_steps + 2 * warm_steps + 3 * 3 * 1 + 2 * 3 * 1 + 1 * 3 * 4  # settle; warm-up and measured control
    extra_s = 5.25 - 3.25  # the writer's start
    assert pilot().duration_s(launch) == pytest.approx(4.0 + 3.0 + extra_s + 3 * per_cycle_s + steps * 0.5)


def test_a_full_launch_takes_its_intervals_its_saves_and_the_last_write():
    checkpoint = Checkpoint(arms=["none", "nvrx_async"], verify_content=False)
    config = Run(design=Design(name="full"), checkpoint=checkpoint, train=Train(steps=83))
    launch = settle_auto(next(each for each in plan(config) if each.arms == ("nvrx_async",)), 10, config)
    assert pilot().duration_s(launch) == pytest.approx(4.0 + 3.0 + 2.0 + 8 * (0.25 + 10 * 0.5) + 3.25)


def test_verifying_content_takes_time_too():
    with_content, without = (plan(Run(checkpoint=c))[1] for c in (Checkpoint(arms=CHECKPOINT.arms), CHECKPOINT))
    assert pilot().duration_s(with_content) > pilot().duration_s(without)


def test_a_collective_is_given_up_later_than_any_wait_that_is_no_hang():
    assert pilot().collective_timeout_s() == 60.0
    slow = pilot(blocking_s={"sync_local": 90.0})
    assert slow.collective_timeout_s() > 90.0 + slow.step_s


def test_a_launch_is_given_up_well_after_it_should_have_ended():
    assert deadline_s(Run(), 100.0) == 360.0
    assert deadline_s(Run(), None) == deadline_s(Run(), None, 20.0) == 600.0
    assert deadline_s(Run(), None, 1050.0) == 3150.0
    assert deadline_s(Run(launch_deadline_s=5.0), 100.0) == 5.0


def struck(layer: str, **changes) -> tuple[Run, Launch]:
    config = Run(
        design=Design(name="recovery"),
        checkpoint=Checkpoint(arms=["sync_dcp"], interval=8, verify_content=False),
        recovery=Recovery(layers=[layer], **changes),
        faults=Faults(given=[Fault("sigkill"), Fault("exception")], per_launch=2),
    )
    return config, next(launch for launch in plan(config) if launch.faults)


def endured_s(layer: str, collective_s: float, **changes) -> float:
    config, launch = struck(layer, **changes)
    return endurance_s(config, pilot(), pilot().timeouts(config), launch, collective_s)


def test_a_launch_with_faults_has_its_work_several_times_over_and_every_fault_the_slowest_detector_once():
    _, launch = struck("requeue", node_return_s=3.0)
    work_s = pilot().duration_s(replace(launch, faults=()))
    fault_s = 100.0 + 30.0 + 2 * 4.0 + 8.0 + 3.0  # found, stopped, two starts, caught up, a node away
    assert endured_s("requeue", 100.0, node_return_s=3.0) == pytest.approx(3 * work_s + 30.0 + 2 * fault_s)
    assert endured_s("requeue", 100.0) - endured_s("requeue", 40.0) == pytest.approx(2 * 60.0)


def test_nodes_that_start_again_out_of_step_have_the_time_to_wait_for_each_other():
    waits_s = 10.0 + 20.0 + 40.0
    rendezvous_s = pilot().timeouts(struck("pod_restart")[0]).rendezvous_s
    longer_s = endured_s("pod_restart", 100.0) - endured_s("requeue", 100.0)
    assert longer_s == pytest.approx(waits_s + 2 * rendezvous_s)
