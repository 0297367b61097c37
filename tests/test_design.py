"""The list of launches: fixed by the seed, complete, and with the order of arms at random."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bench.config import Checkpoint, Design, Fault, Faults, Recovery, Run, Train
from bench.design import AUTO_PERIODS, Launch, Segment, launch_from_json, plan, settle_auto
from bench.measure.check_saves import LEAST_SAVES

ARMS = ["none", "sync_local", "nvrx_async"]


def quick(**changes) -> Run:
    return Run(**({"launches": 2, "cycles": 4, "checkpoint": Checkpoint(arms=ARMS)} | changes))


def full(interval="auto", **changes) -> Run:
    checkpoint = Checkpoint(arms=ARMS, interval=interval)
    return Run(**({"design": Design(name="full"), "checkpoint": checkpoint, "blocks": 2} | changes))


def test_the_same_seed_gives_the_same_launches_and_another_seed_another_order():
    assert plan(quick()) == plan(quick())
    assert plan(full()) == plan(full())
    orders = {tuple(s.arm for launch in plan(quick(seed=seed)) for s in launch.segments) for seed in range(6)}
    assert len(orders) == 6


def test_another_occasion_of_the_same_seed_has_another_order_and_continues_the_numbers():
    first, second = plan(quick()), plan(quick(), occasion=1, first_index=3)
    assert [launch.index for launch in second] == [3, 4, 5]
    assert {launch.occasion for launch in second} == {1}
    assert [s.arm for s in first[1].segments] != [s.arm for s in second[1].segments]


@given(seed=st.integers(0, 10_000), launches=st.integers(1, 4), cycles=st.integers(3, 9))
def test_every_cycle_of_a_quick_launch_holds_each_arm_once_after_the_warm_up(seed, launches, cycles):
    config = quick(seed=seed, launches=launches, cycles=cycles)
    made = plan(config)
    assert [launch.kind for launch in made] == ["pilot"] + ["quick"] * launches
    for launch in made[1:]:
        counts = Counter((segment.cycle, segment.arm) for segment in launch.segments)
        assert counts == Counter((cycle, arm) for cycle in range(cycles) for arm in ARMS)
        assert all(earlier.cycle <= later.cycle for earlier, later in pairwise(launch.segments))
        assert {s.cycle for s in launch.segments if not s.measured} == set(range(config.design.warmup_saves))


@given(seed=st.integers(0, 10_000), cycles=st.integers(3, 9))
def test_the_saves_of_one_measured_cycle_come_after_three_times_the_compute(seed, cycles):
    for launch in plan(quick(seed=seed, cycles=cycles))[1:]:
        long = [s for s in launch.segments if s.control_steps > 4]
        if cycles < 5:  # two measured ones, nothing to hold it against
            assert not long
            continue
        assert {s.arm for s in long} == {"sync_local", "nvrx_async"}
        assert [s.measured for s in long] == [True, True]
        assert len({s.cycle for s in long}) == 1
        assert {s.after_steps + s.settle_steps + s.control_steps for s in long} == {3 * (4 + 1 + 4)}


def test_calibration_has_no_such_cycle():
    (_, calibrated, *_) = plan(quick(design=Design(name="calibrate"), cycles=8))
    assert {s.control_steps for s in calibrated.segments if s.measured} == {4}


def test_the_pilot_saves_twice_with_every_arm_and_is_never_measured():
    pilot = plan(quick())[0]
    assert (pilot.kind, pilot.verify) == ("pilot", False)
    assert Counter(s.arm for s in pilot.segments for _ in range(s.saves)) == dict.fromkeys(ARMS, 2)
    assert not any(segment.measured for segment in pilot.segments)


def test_a_full_design_gives_each_arm_a_launch_of_its_own_in_every_block():
    launches = plan(full(interval=5, blocks=3))[1:]
    assert Counter((launch.block, launch.arms) for launch in launches) == {
        (block, (arm,)): 1 for block in range(3) for arm in ARMS
    }
    assert [launch.index for launch in launches] == list(range(1, 10))
    assert {(s.arm,) for launch in launches for s in launch.segments if (s.arm,) != launch.arms} == set()


def test_a_full_launch_holds_as_many_whole_intervals_as_its_steps_have_room_for():
    launches = plan(full(interval=6, train=Train(steps=43, warmup_steps=3)))[1:]
    assert {(s.interval, s.saves) for launch in launches for s in launch.segments} == {(6, 6)}


def test_content_is_verified_once_for_every_arm():
    for config in (quick(), full()):
        verified = [arm for launch in plan(config) if launch.verify for arm in launch.arms]
        assert sorted(verified) == sorted(ARMS)
    off = Checkpoint(arms=ARMS, verify_content=False)
    assert not any(launch.verify for launch in plan(quick(checkpoint=off)))


def test_a_calibration_is_named_so():
    assert {launch.kind for launch in plan(quick(design=Design(name="calibrate")))} == {"pilot", "calibrate"}


def test_an_automatic_interval_is_filled_in_and_a_given_one_is_left_alone():
    config, given_by_user = full(train=Train(steps=83, warmup_steps=3)), plan(full(interval=5))[1]
    automatic = plan(config)[1]
    assert [(s.interval, s.saves) for s in settle_auto(automatic, 8, config).segments] == [(8, 10)]
    assert settle_auto(given_by_user, 9, config) == given_by_user
    assert settle_auto(plan(quick())[1], 9, config) == plan(quick())[1]


def test_a_launch_whose_interval_the_pilot_settles_measures_enough_periods_even_where_its_steps_have_no_room():
    config = full()
    (segment,) = settle_auto(plan(config)[1], 30, config).segments
    assert segment.saves - config.design.warmup_saves - 1 == AUTO_PERIODS >= 3
    assert 3 * AUTO_PERIODS >= LEAST_SAVES, "the default number of blocks is enough for a verdict"


def test_a_launch_of_a_sweep_measures_as_many_periods_as_are_asked_for():
    checkpoint = Checkpoint(arms=ARMS, intervals=[2, 8])
    made = plan(Run(design=Design(name="sweep", sweep_saves=3), checkpoint=checkpoint, blocks=1))[1:]
    assert {(s.interval, s.saves) for launch in made for s in launch.segments} == {(2, 2 + 3 + 1), (8, 2 + 3 + 1)}


def test_a_launch_comes_back_from_json_as_it_was():
    for launch in plan(quick()):
        assert launch_from_json(json.loads(json.dumps(launch.to_json()))) == launch
    assert isinstance(plan(quick())[0], Launch)
    assert isinstance(plan(quick())[0].segments[0], Segment)


# --- faults and recovery
def struck(**changes) -> Run:
    faults = Faults(given=[Fault("exception", rank=1), Fault("sigkill", rank=0), Fault("os_hang")])
    recovery = Recovery(layers=["in_process", "in_job"])
    checkpoint = Checkpoint(arms=["sync_dcp"], interval=6)
    base = {"design": Design(name="recovery"), "blocks": 2, "checkpoint": checkpoint}
    return Run(**(base | {"faults": faults, "recovery": recovery} | changes))


def test_every_fault_meets_every_layer_once_in_each_block_beside_a_twin():
    made = plan(struck())
    assert [launch.kind for launch in made].count("twin") == 2
    for block in range(2):
        twin, *cells = [launch for launch in made if launch.kind != "pilot" and launch.block == block]
        assert (twin.kind, twin.layer, twin.faults) == ("twin", "none", ())
        met = Counter((launch.layer, fault.kind) for launch in cells for fault in launch.faults)
        kinds = ("exception", "sigkill", "os_hang")
        assert met == Counter((layer, kind) for layer in ("in_process", "in_job") for kind in kinds)


def test_twins_can_be_left_out_where_minutes_count_more_than_comparison():
    made = plan(struck(design=Design(name="recovery", twins=False)))
    assert {launch.kind for launch in made} == {"pilot", "recovery"}
    assert len(made) == len(plan(struck())) - 2


def test_all_launches_of_a_run_with_faults_have_the_steps_of_their_twin():
    made = plan(struck(faults=Faults(given=struck().faults.given, per_launch=3)))
    assert len({launch.segments for launch in made[1:]}) == 1
    (segment,) = made[1].segments
    assert (segment.saves, segment.interval) == (5, 6)
    assert all(6 < fault.step < 24 for fault in made[-1].faults), "an interval follows the last one"


def test_only_the_wanted_pairs_of_fault_and_layer_are_planned():
    wanted = Recovery(layers=["in_process", "in_job"], only=["sigkill/in_job"])
    made = plan(struck(recovery=wanted, blocks=1))
    assert [(launch.layer, launch.faults[0].kind) for launch in made[2:]] == [("in_job", "sigkill")]


def test_an_automatic_interval_settles_saves_and_faults_after_the_pilot():
    launch = plan(struck(checkpoint=Checkpoint(arms=["sync_dcp"])))[-1]
    assert launch.segments[0].interval == 0
    settled = settle_auto(launch, 10, struck())
    assert settled.segments[0].interval == 10
    assert 10 < settled.faults[0].step < 20


def test_a_launch_with_faults_survives_the_way_to_the_ranks():
    for launch in plan(struck()):
        assert launch_from_json(json.loads(json.dumps(launch.to_json()))) == launch


def test_a_checkpoint_run_has_the_layer_of_the_configuration_and_its_launches_do_not_endure():
    made = plan(quick(recovery=Recovery(layer="torchrun")))
    assert {launch.layer for launch in made} == {"torchrun"}
    assert not any(launch.endures for launch in made)
