from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench.measure import statistics
from bench.measure.statistics import (
    clustered_figure,
    drift_p,
    figure,
    harmonic_mean,
    log_ratio,
    median_interval,
    outliers,
    ratio_figure,
    shift_figure,
    shift_ratio,
    zero_event_bound,
)
from bench.schema import Figure

Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
SHAPES: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, size: rng.normal(size=size), 0.0),
    "exponential": (lambda rng, size: rng.exponential(size=size), math.log(2)),
    "lognormal": (lambda rng, size: rng.lognormal(sigma=1.0, size=size), 1.0),
}
finite = st.floats(-1e6, 1e6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", range(6, 31))
def test_the_interval_covers_the_median_as_often_as_it_claims(shape: str, n: int) -> None:
    """4000 samples: a standard error of 0.0034, so 0.93 ... 0.98 leaves room for simulation error only."""
    draw, median = SHAPES[shape]
    rows = draw(np.random.default_rng(1000 * n + len(shape)), (4000, n))
    intervals = [median_interval(row) for row in rows.tolist()]
    covered = np.mean([low <= median <= high for low, high in intervals])
    assert 0.93 <= covered <= 0.98


def test_the_interval_of_ten_values_agrees_with_a_calculation_by_hand() -> None:
    # n = 10: (x2, x9) covers 1 - 2 * 11/1024 = 0.978516, (x3, x8) covers 1 - 2 * 56/1024 = 0.890625;
    # share of the way 0.028516 / 0.087891 = 0.324444; inwards 8 * 0.324444 / (2 + 6 * 0.324444) = 0.657658
    low, high = median_interval([float(x) for x in range(1, 11)])
    assert low == pytest.approx(2.657658, abs=1e-5)
    assert high == pytest.approx(8.342342, abs=1e-5)


def test_six_values_are_the_fewest_with_an_interval() -> None:
    six, five = figure([3, 1, 2, 6, 5, 4]), figure([3, 1, 2, 5, 4])
    assert six is not None
    assert five is not None
    assert (six.interval, six.n, six.median) == ("ci95", 6, 3.5)
    assert (five.interval, five.low, five.high, five.median) == ("range", 1, 5, 3)
    with pytest.raises(ValueError, match="too few"):
        median_interval([1, 2, 3, 4, 5])


def test_no_values_give_no_figure_and_missing_ones_are_refused() -> None:
    assert figure([]) is None
    with pytest.raises(ValueError, match="finite"):
        figure([1.0, math.nan])


@given(st.lists(finite, min_size=1, max_size=60))
def test_a_figure_encloses_its_median_and_stays_within_the_values(values: list[float]) -> None:
    found = figure(values)
    assert found is not None
    slack = 1e-9 * (1 + max(map(abs, values)))
    assert min(values) - slack <= found.low <= found.median + slack
    assert found.median - slack <= found.high <= max(values) + slack
    assert found.n == len(values)


@given(st.lists(finite, min_size=6, max_size=40), finite)
def test_a_figure_does_not_depend_on_the_order_and_moves_with_its_values(values: list[float], by: float) -> None:
    one, other = figure(values), figure([value + by for value in reversed(values)])
    assert one is not None
    assert other is not None
    for name in ("median", "low", "high"):
        assert getattr(other, name) == pytest.approx(getattr(one, name) + by, abs=1e-6)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_exchanging_a_pair_changes_only_the_sign_of_its_log_ratio(a: float, b: float) -> None:
    assert log_ratio(a, b) == pytest.approx(-log_ratio(b, a))
    assert math.exp(log_ratio(a, b)) == pytest.approx(a / b)


# --- values in groups -------------------------------------------------------------------------------------------------
THREE = [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0], [3.0, 4.0, 5.0]]  # medians 2, 3, 4: standard deviation 1


def flat(groups: list[list[float]]) -> tuple[list[float], list[int]]:
    return [v for group in groups for v in group], [number for number, group in enumerate(groups) for _ in group]


def test_the_interval_of_values_in_groups_agrees_with_a_calculation_by_hand() -> None:
    found = clustered_figure(*flat(THREE))
    reach = 4.3027 / math.sqrt(3)  # t at 2 degrees of freedom
    assert found == Figure(3.0, pytest.approx(3 - reach, abs=1e-4), pytest.approx(3 + reach, abs=1e-4), 9, "ci95")


def test_it_is_never_narrower_than_the_pooled_interval_at_eighty_percent() -> None:
    alike = [[1.0, 2.0, 3.0, 4.0, 5.0]] * 3  # every median is 3: no spread between groups
    found = clustered_figure(*flat(alike))
    low, high = median_interval(flat(alike)[0], 0.80)
    assert found == Figure(3.0, low, high, 15, "ci95")
    assert high > low


def test_fewer_than_three_groups_do_not_show_how_groups_differ() -> None:
    for groups in (THREE[:2], [flat(THREE)[0]]):
        values, numbers = flat(groups)
        pooled = figure(values)
        assert pooled is not None
        assert clustered_figure(values, numbers) == replace(pooled, interval="within_run")


def test_groups_of_one_value_each_are_independent_values_and_too_few_values_a_range() -> None:
    values = [1.0, 5.0, 2.0, 4.0, 3.0, 6.0]
    assert clustered_figure(values, list(range(6))) == figure(values)
    assert clustered_figure(values[:5], [0, 0, 1, 1, 2]) == figure(values[:5])
    assert clustered_figure([], []) is None
    with pytest.raises(ValueError, match="as many groups"):
        clustered_figure(values, [1, 2])


def test_a_quantity_above_nought_by_nature_has_an_interval_above_nought() -> None:
    groups = [[0.1, 0.1, 0.1], [1.0, 1.0, 1.0], [10.0, 10.0, 10.0]]
    found, plain = clustered_figure(*flat(groups), positive=True), clustered_figure(*flat(groups))
    assert found is not None
    assert plain is not None
    assert plain.low < 0 < found.low
    assert found.median == pytest.approx(plain.median)
    assert math.log(found.high) == pytest.approx(-math.log(found.low))
    assert clustered_figure([0.0, *[1.0] * 8], [0, 0, 0, 1, 1, 1, 2, 2, 2], positive=True) is not None


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=6), min_size=3, max_size=6), st.floats(-1e3, 1e3))
def test_an_interval_over_groups_encloses_the_median_and_moves_with_the_values(
    groups: list[list[float]], by: float
) -> None:
    one, other = (clustered_figure(*flat([[v + d for v in group] for group in groups])) for d in (0.0, by))
    assert one is not None
    assert other is not None
    assert one.low <= one.median <= one.high
    for name in ("median", "low", "high"):
        assert getattr(other, name) == pytest.approx(getattr(one, name) + by, abs=1e-6)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (2, 4.303), (9, 2.262), (10, 2.228), (30, 2.042)])
def test_quantiles_of_students_t_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert statistics._t_quantile(freedom) == pytest.approx(quantile, abs=6e-4)


def test_a_shift_of_two_results_agrees_with_welch_by_hand() -> None:
    base, new = flat(THREE), flat([[v + 10 for v in group] for group in THREE])
    found = shift_figure(*base, *new)
    reach = 2.7764 * math.sqrt(2 / 3)  # variances 1/3 each: 4 degrees of freedom
    assert found == Figure(10.0, pytest.approx(10 - reach, abs=1e-4), pytest.approx(10 + reach, abs=1e-4), 9, "ci95")


def test_a_shift_of_few_launches_is_within_these_runs_and_of_few_values_a_range() -> None:
    values, numbers = flat(THREE[:2])
    found = shift_figure(values, numbers, [v + 1 for v in values], numbers)
    pooled = figure(values)
    assert found is not None
    assert pooled is not None
    arm = math.hypot(pooled.high - pooled.median, pooled.median - pooled.low)
    assert (found.interval, found.median) == ("within_run", 1.0)
    assert (found.low, found.high) == (pytest.approx(1 - arm), pytest.approx(1 + arm))
    assert shift_figure([1.0, 2.0], [0, 1], [5.0, 7.0], [0, 1]) == Figure(4.5, 3.0, 6.0, 2, "range")
    assert shift_figure([], [], [1.0], [0]) is None


def test_exchanging_two_results_inverts_their_ratio() -> None:
    base, new = flat(THREE), flat([[2 * v for v in group] for group in THREE])
    up, down = shift_ratio(*base, *new), shift_ratio(*new, *base)
    assert up is not None
    assert down is not None
    assert up.median == pytest.approx(2)
    assert (1 / down.high, 1 / down.low) == pytest.approx((up.low, up.high))
    with pytest.raises(ValueError, match="greater than 0"):
        shift_ratio([0.0], [0], [1.0], [0])


# --- other statistics -------------------------------------------------------------------------------------------------
def test_ratios_are_taken_pair_by_pair() -> None:
    found = ratio_figure([(2, 1), (200, 100), (4, 2)], [1, 2, 3])
    assert found is not None
    assert (found.median, found.low, found.high) == pytest.approx((2, 2, 2))
    assert ratio_figure([], []) is None
    with pytest.raises(ValueError, match="greater than 0"):
        ratio_figure([(1, 0)], [1])


def test_the_harmonic_mean_is_the_rate_of_equal_work_one_after_the_other() -> None:
    assert harmonic_mean([100.0, 300.0]) == pytest.approx(2 / (1 / 100 + 1 / 300))
    assert harmonic_mean([]) is None
    with pytest.raises(ValueError, match="greater than 0"):
        harmonic_mean([1.0, 0.0])


def test_outliers_are_marked_far_outside_only() -> None:
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.2]
    assert outliers(values) == []
    assert outliers([*values, 9.0, -9.0]) == [6, 7]
    assert outliers([1.0, 1.0, 50.0]) == []
    assert outliers([1.0] * 8 + [1.0000001], resolution=1e-6) == []
    assert outliers([1.0] * 8 + [1.0000001]) == [8]


def test_drift_is_found_in_a_trend_and_not_in_noise() -> None:
    rng = np.random.default_rng(5)
    trend = (np.arange(12) + rng.normal(scale=0.5, size=12)).tolist()
    assert drift_p(trend) == pytest.approx(0, abs=1e-3)
    assert drift_p([1, 2, 3]) is None
    assert drift_p([4.0] * 8) == 1.0
    below = np.mean([(drift_p(rng.normal(size=12).tolist()) or 1) < 0.05 for _ in range(1000)])
    assert 0.02 <= below <= 0.06


def test_exact_p_of_four_rising_values_is_two_orders_in_twenty_four() -> None:
    assert drift_p([1, 2, 3, 4]) == pytest.approx(2 / 24)
    assert drift_p([4, 3, 2, 1]) == pytest.approx(2 / 24)


def test_the_normal_approximation_meets_the_exact_p() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        values = rng.normal(size=50) + 0.01 * np.arange(50)
        exact, approximate = drift_p(values.tolist()), drift_p([*values.tolist(), float(np.median(values))])
        assert exact == pytest.approx(approximate, abs=0.06)


def test_no_event_in_a_while_bounds_the_rate() -> None:
    assert zero_event_bound(60) == pytest.approx(0.05)
    assert 1 - math.exp(-zero_event_bound(60) * 60) == pytest.approx(0.95, abs=0.001)
    with pytest.raises(ValueError, match="greater than 0"):
        zero_event_bound(0)
