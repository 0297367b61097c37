"""The look: arms and categories can be told apart without colour, and axes speak as people do."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_rgb

from bench.checkpoint import STRATEGIES
from bench.measure.points import PARTS
from bench.report.figures.style import FILLS, LOOKS, applied, canvas, decades, look, plain_seconds
from bench.schema import CATEGORIES


def test_every_strategy_has_a_look_of_its_own_and_a_marker_that_no_other_has():
    assert set(STRATEGIES) - {"synthetic"} <= set(LOOKS)
    markers = [each.marker for each in LOOKS.values()]
    assert len(set(markers)) == len(markers)


def test_a_synced_twin_is_drawn_like_its_arm_with_another_line():
    plain, synced = look("nvrx_async"), look("nvrx_async+fsync")
    assert (plain.colour, plain.marker) == (synced.colour, synced.marker)
    assert plain.line != synced.line
    assert look("somebodys_own") == look("somebodys_own")


def test_every_category_and_part_has_a_fill_and_no_two_look_alike_in_grey():
    assert set(CATEGORIES) | set(PARTS) <= set(FILLS)
    greys = {}
    for name, fill in FILLS.items():
        red, green, blue = to_rgb(fill.colour)
        greys[name] = (round(0.299 * red + 0.587 * green + 0.114 * blue, 1), fill.hatch)
    alike = [(a, b) for a in greys for b in greys if a < b and greys[a] == greys[b]]
    assert alike == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (0.002, "2 ms"),
        (0.25, "250 ms"),
        (1, "1 s"),
        (90, "90 s"),
        (150, "2.5 min"),
        (7200, "2 h"),
        (3e5, "3.47 d"),
    ],
)
def test_seconds_on_an_axis_are_in_the_unit_that_a_person_would_say(value, text):
    assert plain_seconds(value) == text


def test_ticks_of_a_logarithmic_axis_are_round_numbers_within_its_range():
    assert decades(0.09, 6.0) == pytest.approx([0.1, 0.2, 0.5, 1, 2, 5])
    assert decades(0.005, 600.0) == pytest.approx([0.01, 0.1, 1, 10, 100])


def test_the_style_is_gone_afterwards():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    with applied():
        figure, _ = canvas(2.0)
        assert figure.get_figwidth() < 6
    assert dict(mpl.rcParams) == before
