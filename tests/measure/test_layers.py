from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.measure.layers import layer_figures, recovery_figure
from bench.measure.ledger import ledger
from bench.measure.recoveries import pairs, recoveries
from bench.schema import LayerFigures
from tests.measure.made import recovery
from tests.measure.stories import Delays, Setting, Story, in_new_processes, in_place, started, twin


def figures(folder: Path, *stories: Story) -> dict[str, LayerFigures]:
    launches = [story.write(folder) for story in stories]
    found = pairs(launches)
    return {layer.layer: layer for layer in layer_figures(found, recoveries(found), ledger(launches))}


def test_the_price_of_a_layer_is_what_steps_take_longer_than_the_twins_before_the_fault(tmp_path: Path) -> None:
    stories = []
    for block, step_s in enumerate((0.100, 0.102, 0.104)):
        struck = Setting(index=block + 1, block=block, step_s=step_s)
        stories += [in_new_processes(struck, 7, 4), twin(replace(struck, step_s=0.1))]
    found = figures(tmp_path, *stories)["in_job"]
    assert found.launches == 3
    assert found.overhead_share is not None
    assert (found.overhead_share.n, found.overhead_share.interval) == (3, "range")
    assert found.overhead_share.median == pytest.approx(1 - 0.1 / 0.102)
    assert found.overhead_share.low == pytest.approx(0, abs=1e-9)
    assert found.overhead_share.high == pytest.approx(1 - 0.1 / 0.104)


def test_the_price_is_unknown_without_twins_and_with_too_few_of_them_or_common_steps(tmp_path: Path) -> None:
    alone = figures(tmp_path / "a", in_new_processes(Setting(), 6, 4))["in_job"]
    early, few = [], []
    for block in range(3):
        at_once = Setting(index=block + 1, block=block, interval=3)
        early += [in_new_processes(at_once, 3, 3), twin(at_once)]
        few += [
            in_new_processes(Setting(index=block + 1, block=block), 6, 4),
            twin(Setting(index=block + 1, block=block)),
        ]
    for folder, stories in (("early", early), ("few", few[:4])):
        assert figures(tmp_path / folder, *stories)["in_job"].overhead_share is None
    assert alone.overhead_share is None
    assert figures(tmp_path / "enough", *few)["in_job"].overhead_share is not None


def test_goodput_is_useful_time_over_all_slots_of_its_launches(tmp_path: Path) -> None:
    story = in_new_processes(Setting(), 6, 4)
    found = figures(tmp_path, story, twin(Setting()))["in_job"]
    assert found.goodput == pytest.approx(1.2 / (story.t - 1000.0))


def test_false_alarms_are_counted_over_launches(tmp_path: Path) -> None:
    stories = [in_place(Setting(layer="in_process", index=index), 6, 4) for index in (1, 2, 3)]
    for story in stories[1:]:
        story.faults.clear()
    assert figures(tmp_path, *stories)["in_process"].false_alarms == 2


def test_each_fault_has_its_outcomes_and_its_times(tmp_path: Path) -> None:
    stories = [
        in_new_processes(Setting(index=i, block=i), 6, 4, Delays(detect=detect), "exception")
        for i, detect in enumerate((0.2, 0.4, 0.9), 1)
    ]
    hung = started(Setting(index=4))
    hung.steps(6)
    hung.strike("os_hang", hung.ranks[1])
    hung.over(9.0)
    hung.plan("gpu_error", (0, 1))
    hung.unavailable["f1"] = "no GPU here"
    found = {fault.fault: fault for fault in figures(tmp_path, *stories, hung)["in_job"].faults}
    assert list(found) == ["exception", "gpu_error", "os_hang"]
    exception = found["exception"]
    assert (exception.episodes, exception.outcomes, exception.layers_used) == (3, {"recovered": 3}, {"in_job": 3})
    assert exception.exact == {"unknown": 3}
    assert exception.time_to_recover_s is not None
    assert exception.time_to_recover_s.median == pytest.approx(2.4)
    assert (exception.time_to_recover_s.low, exception.time_to_recover_s.high) == pytest.approx((2.2, 2.9))
    detect = exception.parts["detect_s"]
    assert detect is not None
    assert (detect.median, detect.n) == (pytest.approx(0.4), 3)
    assert exception.lost_steps is not None
    assert exception.lost_steps.median == 2
    assert (found["os_hang"].outcomes, found["os_hang"].time_to_recover_s) == ({"not_recovered": 1}, None)
    assert (found["gpu_error"].episodes, found["gpu_error"].outcomes) == (0, {"unavailable": 1})


def test_times_have_no_negative_ends_and_lost_steps_are_counted_as_they_are() -> None:
    """Three launches of which one is slow: in values t(2) would take the low end far below 0."""
    seconds = [[1.0, 1.1, 1.2], [1.1, 1.2, 1.3], [30.0, 31.0, 32.0]]
    records = [
        recovery(seconds=each, launch=launch, lost_steps=round(each))
        for launch, episodes in enumerate(seconds)
        for each in episodes
    ]
    for name in ("time_to_recover_s", "time_to_catch_up_s", "gpu_seconds_lost", "restart_s", "first_step_s"):
        found = recovery_figure(records, name)
        assert found is not None
        assert (found.interval, found.low > 0) == ("ci95", True), name
    steps = recovery_figure(records, "lost_steps")
    assert steps is not None
    assert (steps.median, steps.low < 0) == (1, True)
