from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.measure.events import LaunchRecord, read_launch
from bench.measure.summary import summarise
from bench.schema import Arm, Summary
from tests.measure.streams import ArmSpec, Scenario, run_json, write_launch

BACKGROUND = ArmSpec(block_s=0.05, durable_s=0.75, slowdown=1.0)
BASE = Scenario(kind="full", saves=6)
STEP_S, BLOCKS = 0.1, 3


def sweep(folder: Path, intervals: list[int], spec: ArmSpec = BACKGROUND) -> tuple[Scenario, list[LaunchRecord]]:
    """Blocks of a control and a background arm at each interval."""
    found: list[LaunchRecord] = []
    for block in range(BLOCKS * len(intervals)):
        for arm, each in {"none": ArmSpec(), "nvrx_async": spec}.items():
            index, interval = len(found), intervals[block % len(intervals)]
            scenario = replace(BASE, arms={arm: each}, interval=interval, index=index, block=block)
            write_launch(folder / str(index), scenario)
            found.append(read_launch(folder / str(index)))
    return replace(BASE, arms={"none": ArmSpec(), "nvrx_async": spec}, interval=intervals[0]), found


def account(folder: Path, intervals: list[int], spec: ArmSpec = BACKGROUND) -> Summary:
    scenario, launches = sweep(folder, intervals, spec)
    run = run_json(scenario, design={"name": "sweep", "warmup_saves": 2})
    return summarise(run, launches)[0]


def background(summary: Summary) -> Arm:
    return next(arm for arm in summary.arms if arm.name == "nvrx_async")


def test_the_arms_figures_rest_on_the_longest_interval(tmp_path: Path) -> None:
    arm = background(account(tmp_path, [2, 20]))
    assert arm.period_s == pytest.approx(20 * STEP_S + 0.05)
    assert arm.cost_s is not None
    assert (arm.cost_s.median, arm.cost_s.n) == (pytest.approx(0.05), 3 * BLOCKS)
    assert (arm.launches, arm.saturated) == (BLOCKS, False)
    assert arm.goodput is not None


def test_every_interval_is_listed_with_its_measured_and_its_predicted_share(tmp_path: Path) -> None:
    summary = account(tmp_path, [2, 10, 20])
    assert [(point["arm"], point["interval_steps"]) for point in summary.sweep] == [
        ("nvrx_async", i) for i in (2, 10, 20)
    ]
    short, middle, long = summary.sweep
    assert [point["compute_s"] for point in summary.sweep] == pytest.approx([0.2, 1.0, 2.0])
    assert [point["saturated"] for point in summary.sweep] == [True, False, False]
    assert middle["share"]["median"] == pytest.approx(0.05 / 1.05)
    assert middle["predicted_share"]["median"] == pytest.approx(0.05 / 1.05)
    assert short["predicted_share"]["median"] == pytest.approx(1 - 0.2 / 0.75)  # P = L: saves wait for each other
    assert short["period_s"] == pytest.approx(0.75, abs=0.01)
    assert (long["predicted_share"], long["agree"]) == (None, None)


def test_a_prediction_that_misses_is_a_warning_that_names_the_point(tmp_path: Path) -> None:
    good = account(tmp_path / "good", [5, 10, 20])
    assert next(check for check in good.checks if check.name == "sweep_agrees").level == "ok"
    scenario, launches = sweep(tmp_path / "bad", [10, 20])
    dear = replace(BACKGROUND, block_s=0.4)
    for number, launch in enumerate(launches):  # at 10 steps a save costs more than at 20
        if launch.launch["segments"][0]["interval"] == 10 and launch.launch["arms"] == ["nvrx_async"]:
            block = launch.launch["block"]
            each = replace(BASE, arms={"nvrx_async": dear}, interval=10, index=launch.index, block=block)
            write_launch(tmp_path / "bad" / str(launch.index), each)
            launches[number] = read_launch(tmp_path / "bad" / str(launch.index))
    summary, _, _ = summarise(run_json(scenario, design={"name": "sweep", "warmup_saves": 2}), launches)
    check = next(check for check in summary.checks if check.name == "sweep_agrees")
    assert (check.level, summary.sweep[0]["agree"]) == ("warn", False)
    assert "nvrx_async every 10 steps" in check.reason


def test_a_sweep_of_which_one_interval_alone_was_measured_warns_that_nothing_was_predicted(tmp_path: Path) -> None:
    summary = account(tmp_path, [10])
    assert summary.sweep == []
    assert {verdict.claim for verdict in summary.verdicts} == {"sync_share_40", "async_efficiency_99"}
    check = next(check for check in summary.checks if check.name == "sweep_agrees")
    assert (check.level, "resume=" in check.remedy) == ("warn", True)


def test_a_full_design_keeps_every_occasion_also_where_each_settled_an_interval_of_its_own(tmp_path: Path) -> None:
    scenario, launches = sweep(tmp_path, [8, 10])
    summary, _, _ = summarise(run_json(scenario, design={"name": "full", "warmup_saves": 2}), launches)
    assert background(summary).launches == 2 * BLOCKS
    assert summary.sweep == []
    check = next(check for check in summary.checks if check.name == "sweep_agrees")
    assert (check.level, check.reason) == ("ok", "not a sweep: there is no other interval to predict")


@pytest.mark.parametrize(
    ("intervals", "outcome", "word"),
    [
        ([6, 8, 20], "holds", "within a factor 1.5"),
        ([2, 20], "not_decided", "measure intervals in between"),
        ([10, 20], "not_measured", "add shorter intervals"),
        ([2, 3], "not_measured", "add longer intervals"),
    ],
)
def test_the_crossover_lies_between_the_intervals_that_saturate_and_those_that_do_not(
    tmp_path: Path, intervals: list[int], outcome: str, word: str
) -> None:
    found = next(v for v in account(tmp_path, intervals).verdicts if v.claim == "crossover")
    assert found.outcome == outcome
    assert word in found.text
