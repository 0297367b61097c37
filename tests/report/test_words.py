"""Quantities in words: three digits, one unit, no false precision."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.report.words import digits, duration, percent, seconds, size, span, with_interval
from bench.schema import Figure


def figure(median: float, low: float, high: float) -> Figure:
    return Figure(median, low, high, 10, "ci95")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (1.234, "1.23"), (123.4, "123"), (12345.6, "12346"), (0, "0"), (-0.5, "-0.500")],
)
def test_numbers_have_three_significant_digits_and_no_exponent(value, text):
    assert digits(value) == text


@given(st.floats(1e-4, 1e9))
def test_a_printed_number_is_within_half_a_percent_of_its_value(value):
    assert float(digits(value)) == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123, "12.3 ms"), (1.5, "1.50 s"), (-0.02, "-20.0 ms"), (None, "-"), (0.0, "0 ms")]
)
def test_seconds_turn_into_milliseconds_below_one(value, text):
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(45.2, "45 s"), (59.7, "1 min 00 s"), (130, "2 min 10 s"), (12_000, "3 h 20 min"), (None, "unknown"), (0, "0 s")],
)
def test_durations_are_coarse(value, text):
    assert duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(137e6, "137 MB"), (96.4e9, "96.4 GB"), (999, "999 B"), (1e12, "1.00 TB"), (None, "-"), (0, "0 B")],
)
def test_sizes_are_decimal(value, text):
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.4, "40.0 %"), (0.0123, "1.23 %"), (-0.0056, "-0.56 %"), (0.0996, "10.0 %"), (None, "-")]
)
def test_small_shares_have_a_digit_more(value, text):
    assert percent(value) == text


@pytest.mark.parametrize(
    ("given_figure", "form", "text"),
    [
        (figure(0.125, 0.074, 1.76), seconds, "125 ms [74, 1760]"),
        (figure(2.5, 0.5, 3.25), seconds, "2.50 s [0.50, 3.25]"),
        (figure(0.05, -0.01, 0.08), percent, "5.00 % [-1.00, 8.00]"),
        (figure(0.05, 0.04, 0.12), percent, "5.0 % [4.0, 12.0]"),
        (figure(-0.00867, -0.01357, -0.00377), seconds, "-8.67 ms [-13.57, -3.77]"),
    ],
)
def test_an_interval_is_in_the_unit_of_its_median(given_figure, form, text):
    assert with_interval(given_figure, form) == text


def test_an_interval_alone_is_in_words():
    assert span(figure(0.1, 0.05, 0.2)) == "5.00 % to 20.0 %"
    assert span(None) == "-"
