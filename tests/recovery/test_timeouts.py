from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import BadInput
from bench.recovery.timeouts import MARGIN, NAMES, RULES, Timeouts, derive, unmeasured

TINY = derive(step_s=0.05, save_s=0.3, startup_s=6.0)
LARGE = derive(step_s=1.0, save_s=60.0, startup_s=90.0)


@given(
    st.floats(0.001, 120.0, allow_nan=False),
    st.floats(0.0, 1800.0, allow_nan=False),
    st.floats(0.1, 3600.0, allow_nan=False),
    st.floats(0.0, 600.0, allow_nan=False),
)
def test_whatever_the_pilot_measures_the_derived_set_is_in_order(step_s, save_s, startup_s, absent_s):
    assert derive(step_s, save_s, startup_s, absent_s=absent_s).problems() == []


def test_a_tiny_job_finds_hangs_within_seconds_and_a_large_one_within_minutes():
    for found_s in (TINY.rank_heartbeat_s + TINY.check_interval_s, TINY.soft_s + TINY.in_process_interval_s):
        assert 5.0 <= found_s <= 8.0
    assert 60.0 < LARGE.rank_heartbeat_s < 300.0
    assert LARGE.rank_heartbeat_s == MARGIN * 61.0
    assert LARGE.soft_s == LARGE.rank_heartbeat_s  # the layers that watch are given the same patience


def test_a_slow_start_makes_hang_detection_patient_but_less_than_it_takes():
    slow = derive(step_s=0.05, save_s=0.3, startup_s=60.0)
    assert slow.soft_s == slow.rank_heartbeat_s == 30.0
    assert slow.initial_heartbeat_s == slow.section_setup_s == 180.0


def test_large_jobs_reach_the_libraries_own_intervals():
    assert (LARGE.in_process_interval_s, LARGE.last_call_s, LARGE.check_interval_s) == (1.0, 1.0, 5.0)
    assert (LARGE.missing_rank_s, LARGE.grace_s, LARGE.workers_stop_s) == (30.0, 5.0, 30.0)


def test_a_node_that_may_be_away_is_waited_for():
    assert derive(0.05, 0.3, 6.0, absent_s=40.0).rendezvous_s == TINY.rendezvous_s + 40.0


def test_what_the_user_gives_is_taken_and_what_depends_on_it_follows():
    given_soft = derive(0.05, 0.3, 6.0, {"soft_s": 20.0})
    assert given_soft.soft_s == 20.0
    assert given_soft.hard_s == 30.0
    assert given_soft.barrier_s > 30.0
    assert given_soft.problems() == []
    assert given_soft.rank_heartbeat_s == TINY.rank_heartbeat_s


def test_the_inputs_can_be_given_too():
    assert derive(0.05, 0.3, 6.0, {"save_s": 60.0}).soft_s > 180.0


def test_an_unknown_name_is_refused_with_a_suggestion():
    with pytest.raises(BadInput, match=r"recovery\.timeouts\.soft: unknown timeout; did you mean soft_s\?"):
        derive(0.05, 0.3, 6.0, {"soft": 3.0})


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.field} > {rule.bound_name}")
def test_every_rule_notices_its_breach_and_says_what_to_do(rule):
    broken = replace(LARGE, **{rule.field: rule.bound(LARGE)})
    mine = [text for text in broken.problems() if rule.bound_name in text]
    assert mine
    assert all(text.startswith(f"recovery.timeouts.{rule.field}: must exceed ") for text in mine)
    assert all("give more or leave it out" in text and "\n" not in text for text in mine)
    with pytest.raises(BadInput, match=rf"recovery\.timeouts\.{rule.field}"):
        broken.require_order()


def test_a_set_in_order_is_accepted():
    TINY.require_order()
    unmeasured().require_order()


def test_a_collective_timeout_that_would_pre_empt_the_wrapper_is_a_problem():
    (text, *_) = replace(TINY, collective_s=TINY.hard_s).problems()
    assert text.startswith("recovery.timeouts.collective_s: must exceed hard_s and grace_s (15 s)")
    assert "it pre-empts the Wrapper's hang detection; got 10" in text


def test_the_printed_lines_name_every_timeout_once():
    assert [line.split()[0] for line in TINY.lines()] == list(NAMES)
    assert all(line.endswith(" s") for line in TINY.lines())


def test_a_set_survives_the_way_through_json():
    assert Timeouts.from_json(TINY.to_json()) == TINY
    with pytest.raises(TypeError):
        Timeouts.from_json({**asdict(TINY), "another": 1.0})
