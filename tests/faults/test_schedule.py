"""The schedule: the asked mix exactly, everything from the seed, every fault in an interval that has a checkpoint."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.config import MOMENTS, Run
from bench.config import Fault as Given
from bench.errors import BadInput
from bench.faults import FAULTS, create
from bench.faults.base import AT_SAVE, IN_RECOVERY
from bench.faults.schedule import draw, saves_needed, schedule, settle
from tests.faults.made import run

KINDS = sorted(FAULTS)
DRAWN = {"exception": 0.6, "collective_hang": 0.4}


def test_the_published_schedule_has_exactly_its_shares():
    (launch,) = schedule(run(count=5, weights=DRAWN, per_launch=5))
    assert Counter(fault.kind for fault in launch) == {"exception": 3, "collective_hang": 2}


@given(
    weights=st.dictionaries(st.sampled_from(KINDS), st.floats(0, 10), min_size=1).filter(lambda w: any(w.values())),
    count=st.integers(0, 60),
    seed=st.integers(0, 2**32),
)
def test_every_kind_is_drawn_as_often_as_its_share_rounded_up_or_down(weights, count, seed):
    drawn = Counter(draw(weights, count, random.Random(seed)))
    assert drawn.total() == count
    for kind, weight in weights.items():
        assert abs(drawn[kind] - count * weight / sum(weights.values())) < 1 + 1e-9


def test_over_many_seeds_the_mean_of_a_draw_of_one_is_the_asked_share():
    drawn = Counter(kind for seed in range(2000) for kind in draw(DRAWN, 1, random.Random(seed)))
    assert drawn["exception"] / 2000 == pytest.approx(0.6, abs=0.05)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 12), per_launch=st.integers(1, 5), interval=st.integers(5, 50))
def test_every_fault_strikes_within_an_interval_of_its_own_that_a_checkpoint_precedes(
    seed, count, per_launch, interval
):
    config = run(count=count, weights={"exception": 1, "writer_killed": 1}, per_launch=per_launch, interval=interval)
    launches = schedule(replace(config, seed=seed))
    assert [len(launch) for launch in launches[:-1]] == [per_launch] * (len(launches) - 1)
    assert sum(len(launch) for launch in launches) == count
    for launch in launches:
        assert [fault.turn for fault in launch] == list(range(1, len(launch) + 1))
        assert len({fault.id for fault in launch}) == len(launch)
        for fault in launch:
            begin, end = fault.turn * interval, (fault.turn + 1) * interval
            assert fault.step == end if fault.at in AT_SAVE else begin < fault.step < end
            assert fault.node in (0, 1)
            assert fault.local_rank in (0, 1, 2)
        assert saves_needed(launch, interval) == len(launch) + 2


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), interval=st.integers(5, 50))
def test_an_interval_found_by_a_pilot_gives_the_steps_of_the_same_interval_given(seed, interval):
    config = replace(run(count=4, weights=DRAWN), seed=seed)
    auto = replace(config, checkpoint=replace(config.checkpoint, interval="auto"))
    known = replace(config, checkpoint=replace(config.checkpoint, interval=interval))
    open_ = schedule(auto)
    assert [[settle(fault, interval) for fault in launch] for launch in open_] == schedule(known)
    assert {fault.step for launch in open_ for fault in launch} == {0}


def test_the_same_seed_gives_the_same_schedule_and_another_one_another():
    config = run(count=6, weights=DRAWN)
    assert schedule(config) == schedule(config)
    assert schedule(config) != schedule(replace(config, seed=config.seed + 1))


def test_one_fault_more_does_not_move_the_others():
    faults = [Given("sigkill"), Given("exception"), Given("oom_host")]
    assert schedule(run(*faults[:2]))[0] == schedule(run(*faults))[0][:2]


def test_drawn_victims_are_spread_over_all_ranks():
    launches = schedule(run(count=200, weights={"sigkill": 1}))
    victims = Counter((fault.node, fault.local_rank) for launch in launches for fault in launch)
    assert set(victims) == {(node, local) for node in (0, 1) for local in (0, 1, 2)}


def test_given_victims_and_steps_are_kept_and_a_rank_is_its_place_at_the_start():
    ((fault,),) = schedule(run(Given("sigkill", rank=4, step=33)))
    assert (fault.node, fault.local_rank, fault.step) == (1, 1, 33)
    assert settle(fault, 7).step == 33
    assert saves_needed([fault], 10) == 5


def test_negative_ranks_count_from_the_last_one_however_many_there_are():
    for ranks_per_node, slot in ((3, (1, 2)), (1, (1, 0))):
        config = replace(run(Given("sigkill", rank=-1)), ranks_per_node=ranks_per_node)
        ((fault,),) = schedule(config)
        assert (fault.node, fault.local_rank) == slot


def test_a_fault_of_a_node_is_asked_for_by_its_first_rank():
    ((fault,),) = schedule(run(Given("node_loss", rank=5)))
    assert (fault.node, fault.local_rank) == (1, 0)


def test_options_are_complete_and_the_given_ones_win():
    ((fault,),) = schedule(run(Given("slow_rank", options={"steps": 3})))
    assert fault.options == {"seconds": 1.0, "steps": 3}


def test_a_damaged_checkpoint_needs_one_before_it():
    ((fault,),) = schedule(run(Given("corrupt_checkpoint")))
    assert fault.turn == 2


def test_a_fault_again_strikes_the_same_slot_in_the_attempts_that_follow():
    ((first, again, last, other),) = schedule(run(Given("sigkill", rank=2, options={"again": 2}), Given("exception")))
    assert [fault.after for fault in (first, again, last, other)] == [None, first.id, again.id, None]
    assert {(fault.node, fault.local_rank, fault.turn) for fault in (first, again, last)} == {(0, 2, 1)}
    assert (again.at, last.at, other.turn) == ("recovery", "recovery", 2)
    assert "again" not in first.options


def test_what_cannot_strike_before_the_ranks_have_joined_strikes_again_before_their_first_step():
    ((_, again),) = schedule(run(Given("gpu_error", options={"again": 1})))
    assert again.at == "step"


def test_a_fault_in_a_recovery_belongs_to_the_fault_before_it():
    ((first, second, third),) = schedule(run(Given("sigkill"), Given("exception", at="load"), Given("sigterm")))
    assert (second.after, second.turn, third.turn) == (first.id, first.turn, first.turn + 1)


def test_without_faults_there_is_nothing_to_schedule():
    assert schedule(Run()) == []
    assert saves_needed([], 10) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_scheduled_at_each_of_its_moments(kind):
    for at in create(kind).moments:
        before = [Given("exception")] if at in IN_RECOVERY else []
        (launch,) = schedule(run(*before, Given(kind, at=at)))
        assert (launch[-1].kind, launch[-1].at) == (kind, at)


SLOW, HANG = "slow_rank", "collective_hang"
# Given faults, what else the configuration says, and the line that is the answer.
LINES = [
    ([Given("sigkil")], {}, r"faults\.given\[0\]\.kind: unknown fault 'sigkil'; did you mean sigkill\?"),
    ([], {"count": 1, "weights": {"hang": 1}}, r"faults\.weights: unknown fault 'hang'; did you mean .*"),
    (
        [Given("exception"), Given("sigkill", rank=6)],
        {},
        r"faults\.given\[1\]\.rank: must be below .* \(6\), got 6; give .*",
    ),
    ([Given("sigkill", rank=-7)], {}, r"faults\.given\[0\]\.rank: must be below .* \(6\), got -7; give .*"),
    ([Given(SLOW, at="load")], {}, r"faults\.given\[0\]\.at: slow_rank cannot strike at load; give one of step"),
    ([Given("exception", at="load")], {}, r"faults\.given\[0\]\.at: exception at load strikes while .*; give that .*"),
    (
        [Given("sigkill", at="write")],
        {"arm": "sync_dcp"},
        r"faults\.given\[0\]\.at: no write of sync_dcp is .*; give .*",
    ),
    ([Given("exception", step=9)], {"interval": "auto"}, r"faults\.given\[0\]\.step: .*; leave the step out"),
    ([Given("corrupt_checkpoint")], {"keep": 1}, r"checkpoint\.keep: .*; give checkpoint\.keep=2"),
    ([Given(SLOW, options={"second": 2})], {}, r".*\.second: unknown option of slow_rank; did you mean seconds\?"),
    ([Given(SLOW, options={"seconds": 0})], {}, r".*\.seconds: must be a number greater than 0, got 0; .*"),
    ([Given(SLOW, options={"steps": 1.5})], {}, r".*\.steps: must be a whole number greater than 0, got 1\.5; .*"),
    ([Given(SLOW, options={"again": 1})], {}, r".*\.again: slow_rank starts no recovery .*; leave it out"),
    ([Given("sigkill", options={"again": True})], {}, r".*\.again: must be a whole number, got True; .*"),
    ([Given(HANG, options={"interruptible": "no"})], {}, r".*\.interruptible: must be true or false, got 'no'; .*"),
    ([Given("corrupt_checkpoint", options={"how": "x"})], {}, r".*\.how: must be one of truncate, flip, got 'x'; .*"),
]


@pytest.mark.parametrize(("faults", "more", "line"), LINES, ids=[line[:40] for _, _, line in LINES])
def test_what_makes_no_sense_is_refused_in_one_line_that_names_field_rule_and_remedy(faults, more, line):
    with pytest.raises(BadInput, match=f"^{line}$"):  # a dot matches no new line
        schedule(run(*faults, **more))


@pytest.mark.parametrize("fault", [Given("corrupt_checkpoint"), Given("sigkill", at="commit")], ids=lambda f: f.kind)
def test_a_run_that_saves_once_has_no_later_save_for_a_fault_to_wait_for(fault):
    config = run(fault)
    once = replace(config, recovery=replace(config.recovery, save_once=True))
    with pytest.raises(BadInput, match=r"^recovery\.save_once: .*; give recovery\.save_once=false$"):
        schedule(once)


def test_the_usual_moment_of_a_drawn_fault_is_one_that_comes():
    for arm, at in (("nvrx_async", "write"), ("sync_dcp", "step")):
        ((fault,),) = schedule(run(count=1, weights={"writer_killed": 1}, arm=arm))
        assert fault.at == at


def test_all_moments_of_all_kinds_are_moments():
    assert {moment for kind in KINDS for moment in create(kind).moments} <= set(MOMENTS)
