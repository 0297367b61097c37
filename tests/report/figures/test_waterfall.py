"""The waterfall: every episode a point, and a message that does not drown in them."""

from __future__ import annotations

from dataclasses import replace

from bench.measure.accounted import Accounted
from bench.report.figures import draw
from tests.measure.made import recovery


def of(result: Accounted, *episodes) -> Accounted:
    return Accounted(result.run, [], replace(result.summary, recoveries=list(episodes)), [], [])


def test_the_message_gives_the_ends_and_the_part_that_is_longest_most_often(recoveries):
    many = [recovery(layer=f"layer{n}", seconds=float(n)) for n in range(1, 7)]
    says = draw("waterfall", of(recoveries, *many)).says
    assert "sigkill by layer1: first new step after 1.00 s; sigkill by layer6: first new step after 6.00 s" in says
    assert "Longest part: restart in 6 of 6 bars." in says
    assert "layer3" not in says


def test_what_was_not_recovered_from_is_counted_and_left_to_the_matrix(recoveries):
    caption = draw("waterfall", of(recoveries, recovery(), recovery(seconds=None))).caption
    assert "1 episode without a recovery: see the matrix." in caption
    assert "n = 1 episodes a bar" in caption


def test_without_any_recovery_there_is_no_waterfall(recoveries):
    assert "no episode was recovered from" in draw("waterfall", of(recoveries, recovery(seconds=None))).gap
