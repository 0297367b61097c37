"""What is left of a run's budget and of its job's time, and the deadline that follows."""

from __future__ import annotations

import pytest

from bench.config import Budget, Run
from bench.node.room import HOME_S, SLACK, SLACK_S, Bound, bounds, capped, no_room

NOW = 10_000.0
LIMIT = Bound("the job's time limit (cluster.time)", 500.0, hard=True)
BUDGET = Bound("budget.minutes=55", 500.0)


def test_what_was_not_given_bounds_nothing():
    assert bounds(Run(), {"started": 0.0}, NOW) == []


def test_bounds_are_what_is_left_of_each():
    budget = Budget(minutes=20, gpu_hours=2)
    config = Run(num_nodes=2, ranks_per_node=4, budget=budget)
    found = bounds(config, {"started": NOW - 600, "ends_by": NOW + 1000}, NOW)
    assert [(bound.left_s, bound.hard) for bound in found] == [(600, False), (300, False), (1000 - HOME_S, True)]


def test_the_first_bound_that_is_too_tight_is_the_reason():
    assert no_room([BUDGET, LIMIT], 500.0) is None
    assert no_room([BUDGET._replace(left_s=900.0), LIMIT], 501.0) == f"{LIMIT.name} has no room for another 501 s"


def test_a_deadline_that_ends_before_every_bound_stays():
    assert capped([BUDGET, LIMIT], 300.0, 100.0, 10.0) == (300.0, None)


def test_a_launch_ends_early_enough_for_its_results_to_come_home_before_the_jobs_time_is_over():
    assert capped([LIMIT], 5964.0, 400.0, 20.0) == (480.0, LIMIT.name)
    assert capped([LIMIT], 600.0, None, 0.0) == (500.0, LIMIT.name), "the pilot too"
    assert capped([LIMIT._replace(left_s=5.0)], 600.0, 1.0, 20.0)[0] == 0.0


@pytest.mark.parametrize(("expected_s", "deadline_s"), [(100.0, 500.0), (480.0, SLACK * 480.0 + SLACK_S)])
def test_a_hung_launch_does_not_use_up_much_more_than_the_budget_and_a_late_one_comes_to_its_end(
    expected_s, deadline_s
):
    assert capped([BUDGET], 5964.0, expected_s, 20.0) == (deadline_s, BUDGET.name)


def test_the_pilot_is_bound_by_no_budget():
    assert capped([BUDGET._replace(left_s=1.0)], 600.0, None, 0.0) == (600.0, None)
