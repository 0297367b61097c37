from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.measure.shares import (
    Period,
    arm_shares,
    period_at_share,
    period_of,
    sample_share,
    share_at_compute,
    share_at_period,
    stall_share,
)
from bench.schema import Sample

SAMPLE = Sample(
    launch=1,
    occasion=0,
    cycle=2,
    arm="a",
    save=2,
    step=20,
    measured=True,
    blocking_s=0.5,
    durable_s=0.4,
    cost_s=1.0,
    hidden_s=0.5,
    control_step_s=0.1,
    during_steps=0,
    slowdown_share=None,
    period_s=None,
    arrive_s=None,
    peers_s=None,
    write_s=None,
    written_bytes=None,
    write_bytes_per_s=None,
    dirty_bytes=None,
)
seconds = st.floats(0.001, 1e4)


def test_a_second_of_cost_after_nine_of_compute_is_a_tenth() -> None:
    found = share_at_compute(9.0, 1.0)
    assert found is not None
    assert (found.period_s, found.share, found.saturated) == (10.0, pytest.approx(0.1), False)
    assert stall_share(0.5, found.period_s) == 0.05


def test_a_background_write_longer_than_the_period_saturates() -> None:
    found = share_at_compute(9.0, 1.0, durable_s=20.0)
    assert found is not None
    assert (found.period_s, found.share, found.saturated) == (20.0, pytest.approx(11 / 20), True)
    assert found.wait_s == 10.0
    just_fits = share_at_compute(9.0, 1.0, durable_s=10.0)
    assert just_fits is not None
    assert just_fits.wait_s == 0.0
    assert not just_fits.saturated


def test_a_period_not_longer_than_the_cost_cannot_be_reached() -> None:
    for period_s in (0.5, 1.0):
        found = share_at_period(period_s, 1.0)
        assert found is not None
        assert (found.share, found.saturated) == (1.0, True)


def test_a_wall_period_shorter_than_a_background_write_becomes_that_write() -> None:
    found = share_at_period(5.0, 1.0, durable_s=8.0)
    assert found is not None
    assert (found.period_s, found.share, found.saturated) == (8.0, pytest.approx(0.5), True)  # 4 s of compute in 8 s


@given(seconds, st.floats(-0.5, 1e4), st.none() | seconds)
def test_compute_and_waste_make_up_the_period(compute_s: float, cost_s: float, durable_s: float | None) -> None:
    found = share_at_compute(compute_s, cost_s, durable_s)
    if found is None:
        assert compute_s + cost_s <= 0
        return
    assert found.share is not None
    assert found.period_s * (1 - found.share) == pytest.approx(compute_s, abs=1e-6)
    assert found.period_s >= compute_s + cost_s
    assert found.share <= 1


@given(seconds, seconds)
def test_stating_a_share_by_its_compute_or_by_its_period_is_the_same(compute_s: float, cost_s: float) -> None:
    one = share_at_compute(compute_s, cost_s)
    assert one is not None
    other = share_at_period(one.period_s, cost_s)
    assert other is not None
    assert other.share == pytest.approx(one.share, abs=1e-9)


@given(st.floats(0.01, 100.0), st.floats(0.01, 0.99))
def test_below_the_period_of_a_share_saving_costs_more_than_it(cost_s: float, share: float) -> None:
    period_s = period_at_share(cost_s, share)
    assert period_s is not None
    at, below = share_at_period(period_s, cost_s), share_at_period(0.9 * period_s, cost_s)
    assert at is not None
    assert below is not None
    assert at.share == pytest.approx(share)
    assert below.share is not None
    assert below.share > share


def test_the_period_of_forty_percent_is_two_and_a_half_times_the_cost() -> None:
    assert period_at_share(2.0, 0.4) == pytest.approx(5.0)
    assert period_at_share(0.0, 0.4) is None
    assert period_at_share(-0.1, 0.4) is None
    with pytest.raises(ValueError, match="between 0 and 1"):
        period_at_share(1.0, 0.0)


def test_only_a_write_that_outlasts_its_save_counts_as_background() -> None:
    short = Period("p", compute_s=0.1)
    sync, background = SAMPLE, replace(SAMPLE, durable_s=3.0)
    found, waiting = sample_share(sync, short), sample_share(background, short)
    assert found is not None
    assert waiting is not None
    assert (found.period_s, found.saturated) == (pytest.approx(1.1), False)
    assert (waiting.period_s, waiting.saturated) == (3.0, True)


def test_noise_below_zero_is_reported_as_it_is() -> None:
    found = sample_share(replace(SAMPLE, cost_s=-0.01), Period("p", compute_s=1.0))
    assert found is not None
    assert found.share == pytest.approx(-0.01 / 0.99)


def test_an_unknown_cost_gives_no_share_at_a_derived_period() -> None:
    unknown = replace(SAMPLE, cost_s=None)
    assert sample_share(unknown, Period("p", compute_s=1.0)) is None
    assert sample_share(unknown, Period("p", wall_s=1.0)) is None
    assert arm_shares([unknown], Period("p", compute_s=1.0)) == {
        "share": None,
        "stall_share": None,
        "period_s": None,
        "saturated": None,
    }


def test_at_its_own_measured_period_the_share_is_direct() -> None:
    found = sample_share(replace(SAMPLE, period_s=4.0), Period("p", measured=True))
    assert found is not None
    assert (found.share, found.stall_share, found.period_s) == (0.25, 0.125, 4.0)
    without_control = sample_share(replace(SAMPLE, period_s=4.0, cost_s=None), Period("p", measured=True))
    assert without_control is not None
    assert (without_control.share, without_control.stall_share) == (None, 0.125)
    assert sample_share(SAMPLE, Period("p", measured=True)) is None


def test_an_arms_share_is_the_median_of_its_saves_shares() -> None:
    saves = [replace(SAMPLE, cost_s=cost) for cost in (1.0, 2.0, 6.0)]
    found = arm_shares(saves, Period("p", compute_s=4.0))
    assert found["share"].median == pytest.approx(2 / 6)
    assert (found["share"].low, found["share"].high) == (pytest.approx(1 / 5), pytest.approx(6 / 10))
    assert found["period_s"] == 6.0
    assert found["stall_share"].median == pytest.approx(0.5 / 6)
    assert found["saturated"] is False


@pytest.mark.parametrize(
    ("job", "design", "expected"),
    [
        ({"step_s": 2.0, "interval_steps": 30, "period_s": None}, "quick", (60.0, None, False)),
        ({"step_s": None, "interval_steps": None, "period_s": 90.0}, "full", (None, 90.0, False)),
        ({"step_s": None, "interval_steps": None, "period_s": None}, "quick", (1.2, None, False)),
        ({"step_s": None, "interval_steps": None, "period_s": None}, "full", (None, None, True)),
    ],
)
def test_the_users_period_comes_before_the_scenarios(
    job: dict[str, float | None], design: str, expected: tuple[float | None, float | None, bool]
) -> None:
    period = period_of(job, design, 12, 0.1)
    assert (period.compute_s, period.wall_s, period.measured) == (
        expected if expected[0] is None else (pytest.approx(expected[0]), *expected[1:])
    )
    assert ("your" in period.text) == any(job.values())


def test_without_a_measured_step_the_scenarios_period_is_unknown() -> None:
    period = period_of({}, "quick", 12, None)
    assert (period.compute_s, period.wall_s, period.measured) == (None, None, False)
