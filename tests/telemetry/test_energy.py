"""Energy within stretches of time, from a counter that is read now and then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.telemetry.energy import energy_j

SAMPLES = [{"t": float(t), "energy_j": 1000.0 + joules} for t, joules in ((0, 0), (1, 300), (2, 1000), (4, 1200))]


@pytest.mark.parametrize(
    ("spans", "joules"),
    [
        ([(0.0, 4.0)], 1200),
        ([(1.0, 2.0)], 700),
        ([(0.5, 1.5)], 150 + 350),
        ([(0.0, 1.0), (2.0, 3.0)], 300 + 100),
        ([], 0),
    ],
)
def test_energy_is_the_counters_difference_between_looks_and_linear_within_them(spans, joules):
    assert energy_j(SAMPLES, spans) == pytest.approx(joules)


@pytest.mark.parametrize("spans", [[(-0.1, 1.0)], [(3.0, 4.1)]])
def test_what_the_samples_do_not_cover_is_unknown(spans):
    assert energy_j(SAMPLES, spans) is None


def test_without_a_counter_or_with_one_that_went_back_nothing_is_known():
    assert energy_j([{"t": 0.0, "energy_j": None}, {"t": 1.0, "energy_j": None}], [(0.0, 1.0)]) is None
    assert energy_j(SAMPLES[:1], [(0.0, 0.0)]) is None
    assert energy_j([*SAMPLES, {"t": 5.0, "energy_j": 3.0}], [(0.0, 1.0)]) is None


@given(st.floats(0, 4), st.floats(0, 4))
def test_parts_of_a_stretch_add_up_to_the_whole(a, b):
    low, high = sorted((a, b))
    parts = energy_j(SAMPLES, [(0.0, low), (low, high), (high, 4.0)])
    assert parts == pytest.approx(1200)
