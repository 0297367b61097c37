"""Every figure on every kind of result: a whole picture with caption and message, or a reason why there is none."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from bench.measure.accounted import Accounted
from bench.report.figures import FIGURES, draw

OF_FAULTS = {"waterfall", "matrix", "ranks"}
OF_EVENTS = {"step_trace", "memory", "ranks"}


@pytest.mark.parametrize("name", sorted(FIGURES.keys() - OF_FAULTS - {"memory", "gpus"}))
def test_a_figure_of_saves_is_a_picture_with_caption_and_message(name, checkpoints):
    drawing = draw(name, checkpoints)
    assert drawing.gap == ""
    assert ET.fromstring(drawing.svg).tag.endswith("svg")
    assert re.search(r"n = \d|no interval", drawing.caption)
    assert re.search(r"[Ss]econds|Share|share|MB|K / P", drawing.caption), "the unit is named"
    assert re.search(r"\d", drawing.says), "a message has numbers"


@pytest.mark.parametrize("name", sorted(OF_FAULTS | {"gpu_time"}))
def test_a_figure_of_faults_is_a_picture_with_caption_and_message(name, recoveries):
    drawing = draw(name, recoveries)
    assert drawing.gap == ""
    assert ET.fromstring(drawing.svg).tag.endswith("svg")
    assert re.search(r"\d", drawing.says)


@pytest.mark.parametrize("name", sorted(OF_FAULTS))
def test_a_result_without_faults_says_so_in_the_place_of_the_figure(name, checkpoints):
    drawing = draw(name, checkpoints)
    assert (drawing.svg, drawing.caption) == (None, "")
    assert "no fault struck" in drawing.gap


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_a_result_in_which_nothing_was_measured_has_gaps_and_no_error(name, checkpoints):
    arms = [type(arm)(arm.name, arm.strategy, 0, 0) for arm in checkpoints.summary.arms]
    empty = Accounted(checkpoints.run, [], replace(checkpoints.summary, arms=arms), [], [])
    assert draw(name, empty).gap != ""


@pytest.mark.parametrize("name", sorted(OF_EVENTS))
def test_where_events_were_not_kept_the_figures_that_need_them_say_so(name, checkpoints, recoveries):
    result = recoveries if name == "ranks" else checkpoints
    kept = Accounted(result.run, [], result.summary, result.samples, result.ledger)
    assert re.search(r"not kept|in this result", draw(name, kept).gap)


def test_the_same_result_gives_the_same_file_and_a_file_names_no_place_or_date(checkpoints):
    first, second = (draw("share_period", checkpoints).svg for _ in range(2))
    assert first == second
    assert "<metadata>" not in first
    assert re.findall(r"https?://(?!www\.w3\.org/)", first) == []
