from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.measure.events import LaunchRecord
from bench.measure.summary import summarise
from bench.measure.validity import RECOVERY_CHECKS
from bench.schema import Check, Summary
from tests.measure.stories import ARM, Setting, in_new_processes, in_place, new_processes, started, twin
from tests.measure.streams import run_json

TIMEOUTS = {"rank_heartbeat_s": 5.0, "soft_s": 5.0, "hard_s": 10.0, "barrier_s": 20.0, "collective_s": 60.0}
PLAIN = Setting()
TIMED = Setting(timeouts=TIMEOUTS)


def run_of(setting: Setting, **config: Any) -> dict[str, Any]:
    recovery = {"checkpoint": {"arms": [ARM], "interval": setting.interval}, "recovery": {"layers": [setting.layer]}}
    return run_json(setting.scenario, **{"design": {"name": "recovery", "warmup_saves": 2}, **recovery, **config})


def sound(folder: Path, setting: Setting = TIMED, blocks: int = 3) -> list[LaunchRecord]:
    launches = []
    for block in range(blocks):
        each = replace(setting, index=10 + block, block=block)
        tell = in_place if setting.layer == "in_process" else in_new_processes
        launches += [tell(each, 6, 4).write(folder), twin(each).write(folder)]
    return launches


def summary_of(launches: list[LaunchRecord], setting: Setting = PLAIN) -> Summary:
    return summarise(run_of(setting), launches)[0]


def check(name: str, launches: list[LaunchRecord], setting: Setting = PLAIN) -> Check:
    return next(check for check in summary_of(launches, setting).checks if check.name == name)


@pytest.mark.parametrize("layer", ["in_job", "in_process", "requeue"])
def test_a_sound_result_passes_every_check(tmp_path: Path, layer: str) -> None:
    setting = Setting(layer=layer, timeouts=TIMEOUTS, check_s=0.05)
    summary = summary_of(sound(tmp_path, setting), setting)
    assert {c.name: c.level for c in summary.checks} == dict.fromkeys([c.name for c in summary.checks], "ok")
    assert len(summary.checks) == len(RECOVERY_CHECKS)
    assert summary.status == "valid"


def test_a_recovery_run_is_not_asked_for_the_saves_of_a_checkpoint_run(tmp_path: Path) -> None:
    names = {check.name for check in summary_of(sound(tmp_path, blocks=1)).checks}
    assert names.isdisjoint({"enough_saves", "arms_present", "warmup", "content", "cold_loads", "client_memory"})


def test_every_doubt_comes_with_a_reason_and_a_remedy_on_one_line(tmp_path: Path) -> None:
    story = in_place(Setting(layer="in_process", ranks_per_node=3), 6, 4, victim=1)
    story.plan("sigterm", (0, 0))
    for each in summary_of([story.write(tmp_path)]).checks:
        assert each.reason
        assert "\n" not in each.reason + each.remedy
        assert bool(each.remedy) == (each.level != "ok")


def test_a_launch_that_its_fault_ended_is_a_result_and_no_failure(tmp_path: Path) -> None:
    story = started(Setting(layer="none"))
    story.steps(6)
    story.strike("sigkill", story.ranks[1])
    story.end = "failed"
    story.over(1.0)
    assert check("launches", [story.write(tmp_path)]).level == "ok"


def test_a_launch_that_failed_without_a_fault_is_a_failure(tmp_path: Path) -> None:
    story = started(Setting(index=3))
    story.steps(6)
    story.plan("sigkill", (0, 1))
    story.end = "failed"
    story.over(1.0)
    found = check("launches", [story.write(tmp_path), *sound(tmp_path)])
    assert (found.level, "3 (ok)" in found.reason) == ("warn", True)
    assert check("launches", [story.write(tmp_path)]).level == "invalid"


def test_a_fault_that_did_not_strike_is_a_warning_and_an_unavailable_one_a_note(tmp_path: Path) -> None:
    story = in_new_processes(Setting(), 6, 4)
    story.plan("oom_host", (0, 1))
    story.unavailable["f1"] = "no memory cgroup"
    found = check("faults_fired", [story.write(tmp_path)])
    assert (found.level, found.reason) == ("note", "unavailable here: oom_host (no memory cgroup)")
    story.plan("sigterm", (0, 1))
    found = check("faults_fired", [story.write(tmp_path)])
    assert found.level == "warn"
    assert "did not strike: sigterm under in_job, launch 1" in found.reason


def test_a_result_in_which_nothing_struck_is_invalid(tmp_path: Path) -> None:
    story = twin(Setting())
    story.setting = replace(story.setting, kind="recovery")
    story.plan("sigterm", (0, 1))
    found = check("faults_fired", [story.write(tmp_path)])
    assert (found.level, found.reason.startswith("no fault struck")) == ("invalid", True)


@pytest.mark.parametrize(
    ("layer", "changes", "text"),
    [
        ("in_job", {"rank_heartbeat_s": 0.25}, "rank_heartbeat_s 0.25 s is shorter than a load of 0.5 s"),
        ("in_process", {"hard_s": 4.0}, "soft_s 5 s is not below hard_s 4 s"),
        ("in_process", {"collective_s": 9.0}, "hard_s 10 s is not below collective_s 9 s"),
        ("requeue", {"collective_s": 0.4}, "collective_s 0.4 s is shorter than a load of 0.5 s"),
    ],
)
def test_timeouts_out_of_order_are_a_warning(tmp_path: Path, layer: str, changes: dict[str, float], text: str) -> None:
    setting = Setting(layer=layer, timeouts=TIMEOUTS | changes)
    found = check("timeouts", sound(tmp_path, setting, blocks=1), setting)
    assert found.level == "warn"
    assert text in found.reason


def test_a_timeout_that_the_library_does_not_use_is_a_warning(tmp_path: Path) -> None:
    story = in_new_processes(Setting(timeouts=TIMEOUTS), 6, 4)
    story.ranks[0].instant("effective", story.t, rank_heartbeat_s=5.01, collective_s=1800.0)
    found = check("timeouts", [story.write(tmp_path)])
    assert found.level == "warn"
    assert "collective_s is 1.8e+03 s in effect and 60 s as configured" in found.reason
    assert "rank_heartbeat_s" not in found.reason


def test_timeouts_that_are_not_on_record_are_noted(tmp_path: Path) -> None:
    assert check("timeouts", sound(tmp_path, Setting(), 1)).level == "note"


def test_false_alarms_are_named(tmp_path: Path) -> None:
    story = in_place(Setting(layer="in_process"), 6, 4)
    story.faults.clear()
    found = check("false_alarms", [story.write(tmp_path)])
    assert (found.level, "in_process (1)" in found.reason) == ("warn", True)
    healthy = started(Setting(index=7, kind="twin", layer="none"))
    healthy.steps(6)
    new_processes(healthy, 4)
    healthy.faults.clear()
    healthy.steps(12)
    healthy.finish()
    assert "the twin of launch 7" in check("false_alarms", [healthy.write(tmp_path)]).reason


def test_a_state_that_is_not_the_saved_one_is_invalid_and_one_that_differs_later_a_warning(tmp_path: Path) -> None:
    wrong, inexact = in_new_processes(Setting(), 6, 4), in_new_processes(Setting(index=2), 6, 4)
    for event in wrong.ranks[0].events:
        if event.get("name") == "state" and event["at"] == "restored":
            event["sum"] = "5"
    for event in inexact.ranks[0].events:
        if event.get("name") == "step" and "loss" in event:
            event["loss"] += 1e-9
    without = twin(Setting(index=9)).write(tmp_path)
    found = check("resumed_state", [wrong.write(tmp_path), without])
    assert (found.level, "loaded another state than was saved" in found.reason) == ("invalid", True)
    found = check("resumed_state", [inexact.write(tmp_path), without])
    assert (found.level, "not exactly as the twin" in found.reason) == ("warn", True)
    alone = in_new_processes(Setting(index=4), 6, 4).write(tmp_path)
    assert check("resumed_state", [alone]).level == "note"


def test_parts_without_evidence_are_named(tmp_path: Path) -> None:
    story = in_new_processes(Setting(), 6, 4)
    runner = story.runners[0]
    runner.events = [event for event in runner.events if event.get("name") != "gone"]
    for seq, event in enumerate(runner.events):
        event["seq"] = seq
    found = check("recovery_points", [story.write(tmp_path)])
    assert (found.level, "sigkill under in_job, launch 1 (stop, restart)" in found.reason) == ("warn", True)


def test_fewer_than_three_episodes_of_a_cell_are_noted(tmp_path: Path) -> None:
    found = check("enough_episodes", sound(tmp_path, blocks=2))
    assert (found.level, "sigkill under in_job (2)" in found.reason) == ("note", True)


def test_a_process_that_outlived_its_fault_is_a_warning(tmp_path: Path) -> None:
    story = started(Setting())
    writer = story.process((0, 0), "writer")
    story.steps(6)
    new_processes(story, 4)
    story.gone(writer, story.t + 60, "writer")
    story.steps(12)
    story.finish()
    assert check("outlived", [story.write(tmp_path)]).level == "warn"
