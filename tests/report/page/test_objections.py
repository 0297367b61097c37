"""What a reviewer will say: every objection has an answer in numbers, or says that nothing was measured."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bench.measure.accounted import Accounted
from bench.report.figures import FIGURES
from bench.report.page.objections import objections, slope_share
from bench.schema import Check

TITLES = {kind.title for kind in FIGURES.values()}


def test_every_objection_has_numbers_and_names_where_they_stand(checkpoints):
    found = objections(checkpoints)
    words = " ".join(each.objection.lower() for each in found)
    for theme in ("page cache", "burst", "slow", "lucky", "neighbours", "first save", "slowest rank", "deleted"):
        assert theme in words
    for each in found:
        assert each.here
        assert each.shown_by
        named = re.findall("“(.+?)”", each.shown_by)
        assert set(named) <= TITLES, "a figure that is named exists"


def test_where_nothing_was_measured_the_answer_is_unknown_and_not_fine(checkpoints):
    empty = Accounted(checkpoints.run, [], replace(checkpoints.summary, arms=[], checks=[]), [], [])
    levels = {each.objection: each.level for each in objections(empty)}
    assert "ok" not in {levels[each] for each in levels if "slowest rank" not in each}


def test_the_level_is_that_of_the_worst_check_behind_it(checkpoints):
    checks = [Check("client_memory", "warn", "11 % were only in memory", "see that fsync works")]
    result = Accounted(checkpoints.run, [], replace(checkpoints.summary, checks=checks), checkpoints.samples, [])
    assert objections(result)[0].level == "warn"


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ([1.0, 1.0, 1.0, 1.0], 0.0),
        ([1.0, 1.1, 1.2, 1.3], 0.3 / 1.15),
        ([1.0, 1.1, 9.0, 1.3], 0.3 / 1.2),
        ([1.0, 2.0], None),
    ],
)
def test_the_slope_is_robust_against_a_single_wild_value(values, share):
    assert slope_share(values) == (None if share is None else pytest.approx(share, rel=0.2))


def test_writes_that_grow_over_the_result_are_noted(checkpoints):
    grown = [replace(save, write_s=0.1 + 0.001 * place) for place, save in enumerate(checkpoints.samples)]
    result = Accounted(checkpoints.run, checkpoints.launches, checkpoints.summary, grown, checkpoints.ledger)
    burst = objections(result)[1]
    assert burst.level in ("note", "warn")
    assert "+" in burst.here


def test_the_trainers_speed_is_told_as_tokens_and_utilisation(checkpoints):
    slow = next(each for each in objections(checkpoints) if "trainer" in each.objection)
    assert "a step takes 100 ms" in slow.here
    assert "2560 tokens/s; model FLOPs utilisation not stated" in slow.here
    assert "40 % is reached below 2.5 K, whatever a step takes: sync_local" in slow.here
