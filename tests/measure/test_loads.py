from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.measure.events import LaunchRecord, read_launch
from bench.measure.loads import Load, load_figure, loads
from bench.measure.summary import summarise
from tests.measure.streams import Scenario, run_json, simulate, write_files, write_launch

SCENARIO = Scenario(cycles=3, load_s=(0.5, 0.125), cached_share=0.05, ranks_per_node=2, nodes=2, skew_s=0.004)


def read(folder: Path, scenario: Scenario = SCENARIO) -> LaunchRecord:
    write_launch(folder, scenario)
    return read_launch(folder)


def test_a_load_lasts_from_the_last_rank_in_to_the_last_rank_out(tmp_path: Path) -> None:
    found = loads([read(tmp_path)])
    assert [(load.arm, load.cold) for load in found] == [
        (arm, cold) for arm in ("sync_local", "nvrx_async") for cold in (True, False)
    ]
    assert [load.seconds for load in found] == pytest.approx([0.5, 0.125] * 2)
    assert [load.cached_share for load in found] == [0.05, None] * 2


def test_a_load_that_a_rank_did_not_finish_has_no_duration(tmp_path: Path) -> None:
    job = simulate(SCENARIO)
    worker = job.workers[3]
    worker.events = [event for event in worker.events if not (event.get("name") == "load" and event.get("cold"))]
    write_files(tmp_path, SCENARIO.launch(), job.files)
    found = loads([read_launch(tmp_path)])
    assert [load.seconds for load in found if load.cold] == [None, None]
    assert load_figure(found, "sync_local", cold=True) is None


def test_the_loads_of_a_launch_that_failed_say_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, SCENARIO.launch() | {"status": "failed"}, simulate(SCENARIO).files)
    assert loads([read_launch(tmp_path)]) == []


def test_the_load_of_a_restart_is_not_a_timed_one(tmp_path: Path) -> None:
    job = simulate(replace(SCENARIO, load_s=None))
    for worker in job.workers:
        worker.span("load", job.t, job.t + 1)
    write_files(tmp_path, SCENARIO.launch(), job.files)
    assert loads([read_launch(tmp_path)]) == []


def test_figures_of_an_arm_are_over_launches_and_without_the_pilot(tmp_path: Path) -> None:
    pilot = read(tmp_path / "0", replace(SCENARIO, index=0, kind="pilot", load_s=(9.0, 9.0)))
    others = [read(tmp_path / str(i), replace(SCENARIO, index=i, load_s=(0.5 * i, 0.1))) for i in (1, 2, 3)]
    summary, _, _ = summarise(run_json(SCENARIO), [pilot, *others])
    arm = next(arm for arm in summary.arms if arm.name == "nvrx_async")
    assert arm.load_cold_s is not None
    assert arm.load_warm_s is not None
    assert (arm.load_cold_s.median, arm.load_cold_s.low, arm.load_cold_s.high) == pytest.approx((1.0, 0.5, 1.5))
    assert (arm.load_cold_s.n, arm.load_cold_s.interval) == (3, "range")
    assert arm.load_warm_s.median == pytest.approx(0.1)
    assert next(arm for arm in summary.arms if arm.name == "none").load_cold_s is None


def test_figures_take_only_what_is_known() -> None:
    found = [Load(1, "a", True, None, 0.0), Load(2, "a", True, 2.0, 0.0), Load(2, "b", True, 7.0, 0.0)]
    figure = load_figure(found, "a", cold=True)
    assert figure is not None
    assert (figure.median, figure.n) == (2.0, 1)


@pytest.mark.parametrize(("share", "level"), [(0.05, "ok"), (0.4, "warn")])
def test_a_cold_load_from_the_page_cache_is_a_warning(tmp_path: Path, share: float, level: str) -> None:
    record = read(tmp_path, replace(SCENARIO, cached_share=share))
    summary, _, _ = summarise(run_json(SCENARIO), [record])
    check = next(check for check in summary.checks if check.name == "cold_loads")
    assert check.level == level
    assert ("nvrx_async 40%" in check.reason) == (level == "warn")


def test_without_a_cold_load_nothing_is_said_to_be_cold(tmp_path: Path) -> None:
    summary, _, _ = summarise(run_json(SCENARIO), [read(tmp_path, replace(SCENARIO, load_s=None))])
    assert next(check for check in summary.checks if check.name == "cold_loads").level == "note"
