"""Beyond the measured sizes there are bands, and fits recover what made the points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.plan.scaling import Point, barrier_quantile, scaled, scaled_recovery

GB = 1e9


def stored(units: float, total_bytes: float, fixed_s=2.0, store=40 * GB, unit=4 * GB) -> Point:
    return Point(fixed_s + total_bytes / min(store, units * unit), units, total_bytes)


def test_the_measured_size_itself_is_not_extrapolated():
    band = scaled([Point(3.0, 8, 100 * GB), Point(3.4, 8, 100 * GB)], 8, 100.5 * GB)
    assert (band.low, band.high, band.extrapolated) == (3.0, 3.4, False)


def test_one_size_gives_the_bounds_of_perfect_scaling_and_none():
    band = scaled([Point(10.0, 2, 100 * GB)], 64, 800 * GB)
    assert band.extrapolated
    assert (band.low, band.high) == (pytest.approx(10 * 8 * 2 / 64), pytest.approx(80))
    assert band.low < band.typical_s < band.high
    assert "perfect scaling and none" in band.basis


def test_fewer_than_four_sizes_are_not_fitted():
    points = [stored(units, 100 * GB) for units in (2, 4, 8)]
    assert "bounds from 3 measured sizes" in scaled(points, 64, 100 * GB).basis
    assert "fitted on 4 measured sizes" in scaled([*points, stored(16, 100 * GB)], 64, 100 * GB).basis


def test_four_samples_of_one_size_are_still_one_size():
    band = scaled([Point(10.0, 2, GB)] * 4, 4, GB)
    assert band.basis.startswith("bounds")


def test_a_fit_finds_the_stores_ceiling_and_the_fixed_part():
    points = [stored(units, 200 * GB) for units in (2, 4, 8, 16, 32)]
    truth = stored(64, 200 * GB).seconds
    band = scaled(points, 64, 200 * GB)
    assert band.low <= truth <= band.high
    assert band.high / band.low < 1.2


def test_a_fit_over_sizes_in_bytes_holds_at_more_bytes():
    points = [stored(8, size * GB) for size in (10, 20, 40, 80)]
    band = scaled(points, 8, 400 * GB)
    assert band.low <= stored(8, 400 * GB).seconds <= band.high


def test_a_fit_that_met_no_ceiling_allows_for_one_right_behind_its_last_point():
    points = [stored(units, 200 * GB, store=1e15) for units in (2, 4, 8, 16)]
    band = scaled(points, 128, 200 * GB)
    assert band.low <= stored(128, 200 * GB, store=1e15).seconds
    assert band.high >= points[-1].seconds


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.sampled_from([1, 2, 4, 8, 16])), min_size=1, max_size=6),
    st.sampled_from([32, 64, 1000]),
    st.floats(2, 1000),
)
def test_no_size_beyond_the_measured_ones_gets_a_bare_point(made, units, growth):
    points = [Point(seconds, each, each * GB) for seconds, each in made]
    total = growth * 16 * GB
    band = scaled(points, units, total)
    assert band.extrapolated
    assert 0 <= band.low < band.high
    recovery = scaled_recovery(points, units)
    assert recovery.extrapolated
    assert 0 <= recovery.low < recovery.high


def test_recovery_lies_between_as_measured_and_in_proportion_to_the_nodes():
    band = scaled_recovery([Point(12.0, 2, 1.0)], 64)
    assert (band.low, band.high) == (12.0, 12.0 * 32)
    assert not scaled_recovery([Point(12.0, 2, 1.0)], 2).extrapolated


def test_recovery_over_four_sizes_is_fitted_with_a_line():
    points = [Point(10 + 0.5 * nodes, nodes, 1.0) for nodes in (2, 4, 8, 16)]
    band = scaled_recovery(points, 32)
    assert band.low <= 26.0 <= band.high
    assert "fitted" in band.basis


@pytest.mark.parametrize(
    "call",
    [
        lambda: scaled([], 8, GB),
        lambda: scaled([Point(1.0, 8, GB)], 0, GB),
        lambda: scaled([Point(1.0, 8, 0.0)], 8, GB),
        lambda: scaled([Point(-1.0, 8, GB)], 8, GB),
        lambda: scaled_recovery([], 8),
    ],
)
def test_sizes_that_are_none_are_refused(call):
    with pytest.raises(ValueError, match=r"at least one|greater than 0"):
        call()


# --- barriers
def test_the_slowest_of_more_ranks_has_the_distribution_to_the_power_of_the_growth():
    rng = np.random.default_rng(1)
    samples = rng.exponential(size=200_000)
    truth = float(np.median(rng.exponential(size=(200_000, 8)).max(axis=1)))
    assert barrier_quantile(list(samples), 8) == pytest.approx(truth, rel=0.02)
    assert barrier_quantile([1.0, 2.0, 3.0], 1) == 2.0


def test_few_samples_say_nothing_about_the_slowest_of_many_ranks():
    samples = list(range(1, 13))
    assert barrier_quantile(samples, 4) is not None
    assert barrier_quantile(samples, 32) is None


@pytest.mark.parametrize(("samples", "growth", "quantile"), [([], 2, 0.5), ([1.0], 0.5, 0.5), ([1.0], 2, 1.0)])
def test_a_barrier_needs_samples_growth_and_a_quantile(samples, growth, quantile):
    with pytest.raises(ValueError, match="needs"):
        barrier_quantile(samples, growth, quantile)
