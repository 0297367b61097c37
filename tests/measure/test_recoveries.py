from __future__ import annotations

from pathlib import Path

import pytest

from bench.config import Fault as Given
from bench.faults.schedule import schedule
from bench.measure.episodes import Course
from bench.measure.recoveries import cadence, label, pairs, plain_step_s, recoveries
from bench.schema import Recovery
from tests.faults.made import run
from tests.measure.stories import (
    Delays,
    Setting,
    Story,
    in_new_processes,
    in_place,
    new_processes,
    started,
    twice_struck,
    twin,
)

DELAYS = Delays(detect=0.4, stop=0.3, restart=1.1)


def records(folder: Path, *stories: Story) -> list[Recovery]:
    return recoveries(pairs([story.write(folder) for story in stories]))


def test_a_record_says_all_that_is_known_of_a_recovery(tmp_path: Path) -> None:
    setting = Setting(check_s=0.05)
    (found,) = records(tmp_path, in_new_processes(setting, 6, 4, DELAYS), twin(setting))
    assert (found.launch, found.episode, found.block, found.arm, found.layer) == (1, 0, 0, "sync_local", "in_job")
    assert (found.fault, found.label, found.at, found.faults) == ("sigkill", "sigkill", "step", ["f0"])
    assert (found.node, found.local_rank, found.rank) == (0, 1, 1)
    assert (found.outcome, found.reason, found.layer_used, found.detected_by) == (
        "recovered",
        "",
        "in_job",
        "launcher_log",
    )
    assert (found.fault_step, found.resumed_step, found.lost_steps, found.attempts) == (6, 4, 2, 1)
    assert found.time_to_recover_s == pytest.approx(0.4 + 0.3 + 1.1 + 0.5 + 0.1)
    assert found.time_to_catch_up_s == pytest.approx(2.4 + 0.2)
    assert found.gpu_seconds_lost == pytest.approx(2 * (2.6 - 0.1))  # two slots; one step is not lost
    assert found.instrument_s == pytest.approx(0.05)
    assert (found.processes_kept, found.outlived) == (0.0, 0)
    assert (found.world_size_before, found.world_size_after) == (2, 2)
    assert (found.resume_exact, found.resume_consistent) == (True, True)
    assert found.points_s["first_step"] == pytest.approx(2.45)  # as the clock went, with the check


def test_the_parts_add_up_to_the_times(tmp_path: Path) -> None:
    for found in records(tmp_path, in_place(Setting(layer="in_process", check_s=0.05), 7, 4, DELAYS)):
        parts = (found.detect_s, found.stop_s, found.restart_s, found.load_s, found.first_step_s)
        assert sum(part for part in parts if part is not None) == pytest.approx(found.time_to_recover_s)
        assert found.time_to_recover_s is not None
        assert found.catch_up_s is not None
        assert found.time_to_recover_s + found.catch_up_s == pytest.approx(found.time_to_catch_up_s)


def test_idle_slots_are_paid_for_as_well(tmp_path: Path) -> None:
    setting = Setting(layer="in_process", ranks_per_node=3, reserve=1)
    (found,) = records(tmp_path, in_place(setting, 6, 4, DELAYS, victim=1))
    assert found.gpu_seconds_lost == pytest.approx(3 * (2.6 - 0.1))


def test_a_shrunk_world_is_told_and_not_called_exact(tmp_path: Path) -> None:
    setting = Setting(layer="in_process", ranks_per_node=3)
    (found,) = records(tmp_path, in_place(setting, 6, 4, DELAYS, victim=1), twin(setting))
    assert (found.world_size_before, found.world_size_after) == (3, 2)
    assert found.resume_exact is None


def test_a_tolerated_fault_cost_no_step_and_has_no_recovery(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(6)
    story.strike("slow_rank", story.ranks[0])
    story.steps(12)
    story.finish()
    (found,) = records(tmp_path, story)
    assert (found.outcome, found.lost_steps, found.attempts) == ("tolerated", 0, 0)
    assert {found.time_to_recover_s, found.detect_s, found.layer_used, found.resumed_step} == {None}
    assert found.gpu_seconds_lost is None


def test_a_launch_that_hung_until_its_deadline_is_on_record_as_not_recovered(tmp_path: Path) -> None:
    story = started(Setting(layer="none"))
    story.steps(6)
    story.strike("collective_hang", story.ranks[1], interruptible=False)
    story.end, story.given_up = "deadline", "ended at its deadline of 30 s"
    story.over(30.0)
    (found,) = records(tmp_path, story)
    assert found.reason == "ended at its deadline of 30 s"
    assert (found.outcome, found.label) == ("not_recovered", "collective_hang, not interruptible")
    assert {found.detect_s, found.time_to_recover_s, found.lost_steps} == {None}


def test_planned_faults_that_did_not_strike_say_so_and_why(tmp_path: Path) -> None:
    story = in_new_processes(Setting(), 6, 4)
    story.plan("sigterm", (0, 0))
    story.plan("oom_host", (0, 1), "write")
    story.unavailable["f2"] = "no memory cgroup can be made here"
    struck, silent, missing = records(tmp_path, story)
    assert struck.outcome == "recovered"
    assert (silent.outcome, silent.episode, silent.fault) == ("not_fired", None, "sigterm")
    assert "ended before" in silent.reason
    assert (missing.outcome, missing.label, missing.reason) == (
        "unavailable",
        "oom_host, at write",
        "no memory cgroup can be made here",
    )


@pytest.mark.parametrize(
    ("details", "outcome", "reason"),
    [
        ({"oom_kill": 1}, "recovered", ""),
        ({"oom_kill": 0}, "not_fired", "f0: the kernel killed nobody"),
        ({"oom_kill": None}, "not_fired", "not on record"),
        ({"left": "busy"}, "not_fired", "not on record"),
        (None, "not_fired", "not on record"),
    ],
)
def test_a_kill_by_the_kernel_is_one_only_where_the_kernel_counted_it(
    tmp_path: Path, details: dict[str, object] | None, outcome: str, reason: str
) -> None:
    story = in_new_processes(Setting(), 6, 4, kind="oom_host")
    story.faults[0] |= {} if details is None else {"details": details}
    (found,) = records(tmp_path, story)
    assert (found.outcome, found.label, found.faults) == (outcome, "oom_host", ["f0"])
    assert reason in found.reason
    assert (found.episode is None, found.time_to_recover_s is None) == (outcome == "not_fired",) * 2


def test_a_cascade_in_which_the_kernel_did_not_kill_is_not_the_planned_one(tmp_path: Path) -> None:
    found = records(tmp_path, cascade(Setting(), 1, kind="oom_host"))
    assert [(record.outcome, record.faults) for record in found] == [("not_fired", ["f0", "f1"])]
    assert "f1: " in found[0].reason


def test_faults_of_one_episode_share_a_record(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(6)
    new_processes(story, 4, DELAYS, "exception")
    new_processes(story, 4, DELAYS)
    story.steps(12)
    story.finish()
    (found,) = records(tmp_path, story)
    assert (found.fault, found.faults, found.attempts) == ("exception", ["f0", "f1"], 2)
    assert found.restart_s == pytest.approx(1.1 + 0.5 + 0.4 + 0.3 + 1.1)


def test_after_the_last_step_there_is_nothing_to_catch_up_with(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(12)
    story.step = 11  # the last save was struck, so the one before is loaded
    story.strike("sigkill", story.ranks[1], "commit")
    story.faults[-1]["step"] = 12
    story.t += 1.0
    story.attempt([story.process(slot) for slot in story.slots], 8)
    story.steps(12)
    story.finish()
    (found,) = records(tmp_path, story)
    assert (found.fault_step, found.resumed_step, found.lost_steps) == (12, 8, 4)
    assert found.time_to_catch_up_s == pytest.approx(1.0 + 0.2 + 0.5 + 4 * 0.1)
    assert found.gpu_seconds_lost == pytest.approx(2 * 2.1)


def test_launches_that_were_skipped_have_no_record(tmp_path: Path) -> None:
    launch = Story(Setting()).write(tmp_path)
    launch.launch["status"] = "skipped"
    assert recoveries(pairs([launch])) == []


def test_a_twin_that_did_not_come_to_its_end_is_none(tmp_path: Path) -> None:
    broken, other_block = twin(Setting()), twin(Setting(index=5, block=1))
    broken.end = "failed"
    struck = in_new_processes(Setting(), 6, 4)
    (pair,) = pairs([story.write(tmp_path) for story in (struck, broken, other_block)])
    assert pair.twin is None
    (pair,) = pairs([story.write(tmp_path) for story in (struck, twin(Setting(index=9)))])
    assert pair.twin is not None


def test_the_step_time_leaves_out_saves_and_what_came_after_the_fault(tmp_path: Path) -> None:
    course = Course.of(in_new_processes(Setting(), 7, 4).write(tmp_path))
    assert sorted(cadence(course)) == [2, 3, 4, 6, 7]
    assert sorted(cadence(course, course.episodes[0].begin)) == [2, 3, 4, 6, 7]
    assert plain_step_s(course) == pytest.approx(0.1)
    assert plain_step_s(course, 0.0) is None


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"kind": "sigkill", "at": "step", "options": {}}, "sigkill"),
        ({"kind": "sigkill", "at": "commit", "options": {}}, "sigkill, at commit"),
        (
            {"kind": "collective_hang", "at": "step", "options": {"interruptible": True}},
            "collective_hang",
        ),
        ({"kind": "corrupt", "at": "step", "options": {"how": "flip", "deep": False}}, "corrupt, not deep, flip"),
        ({"kind": "slow_rank", "at": "step", "options": {"seconds": 3.0}}, "slow_rank"),
        ({"kind": "sigkill", "at": "step"}, "sigkill"),
        ({"kind": "sigkill", "at": "step", "local_rank": 0}, "sigkill, rank 0"),
        ({"kind": "sigkill", "at": "step", "node": 1, "local_rank": 0}, "sigkill"),
    ],
)
def test_a_fault_is_labelled_by_what_makes_it_another_fault(fault: dict[str, object], text: str) -> None:
    assert label({"node": 0, "local_rank": 1} | fault) == text


def test_a_launch_that_was_left_in_the_engines_queue_says_nothing_of_its_fault(tmp_path: Path) -> None:
    story = started(Setting(layer="requeue"))
    story.steps(6)
    story.strike("sigkill", story.ranks[1])
    story.over()
    launch = story.write(tmp_path)
    launch.launch.update(status="interrupted", relaunches=[{"asked": 1.0, "start": 1, "job": "7"}])
    assert recoveries(pairs([launch])) == []
    launch.launch["relaunches"][0]["back"] = 2.0
    assert [record.outcome for record in recoveries(pairs([launch]))] == ["not_recovered"]


def test_a_job_that_never_came_back_names_the_last_error_of_its_own(tmp_path: Path) -> None:
    story = started(Setting(layer="in_process"))
    story.steps(6)
    story.strike("sigkill", story.ranks[1])
    survivor, story.t = story.ranks[0], story.t + 1
    for error in ("WrongWorldSize: written by 2 ranks", "RestartAbort: max_iterations"):
        story.t += 1
        story.attempt([survivor], None)
        survivor.instant("caught", story.t, error=error)
    story.end, story.given_up = "failed", "the last line of a log"
    story.over()
    (found,) = records(tmp_path, story)
    assert (found.outcome, found.reason) == ("not_recovered", "WrongWorldSize: written by 2 ranks")


def cascade(setting: Setting, further: int, struck: int = 1, kind: str = "sigkill") -> Story:
    """A sigkill and so many planned faults of `kind` in its recovery, of which the first `struck` come to strike."""
    story = started(setting)
    story.steps(6)
    new_processes(story, 4, DELAYS)
    for number in range(struck):
        new_processes(story, 4, DELAYS, kind)
        story.planned[-1] |= {"at": "recovery", "after": f"f{number}"}
    for number in range(struck, further):
        story.plan(kind, (0, 1), "recovery")["after"] = f"f{number}"
    story.steps(12)
    story.finish()
    return story


def test_a_cascade_is_labelled_by_what_was_planned_so_that_its_episodes_pool(tmp_path: Path) -> None:
    found = records(tmp_path, cascade(Setting(), 3), cascade(Setting(index=2), 3, struck=3))
    cascades = [record for record in found if record.episode is not None]
    assert [(record.label, record.further_faults) for record in cascades] == [("sigkill, 3 more in recovery", 3)] * 2
    assert [len(record.faults) for record in cascades] == [2, 4]
    assert not any(record.single for record in cascades)
    silent = [record.label for record in found if record.episode is None]
    assert silent == ["sigkill, at recovery"] * 2, "those that did not strike are the rest of a cascade, and no cascade"


def test_cascades_of_other_length_or_other_faults_are_others(tmp_path: Path) -> None:
    stories = [cascade(Setting(index=1), 1), cascade(Setting(index=2), 1, kind="exception")]
    alone = in_new_processes(Setting(index=3), 6, 4)
    unavailable = cascade(Setting(index=4), 1, struck=0)
    unavailable.unavailable["f1"] = "not here"
    found = [record for record in records(tmp_path, *stories, alone, unavailable) if record.episode is not None]
    assert [record.label for record in found] == [
        "sigkill, 1 more in recovery",
        "sigkill, 1 more in recovery (exception)",
        "sigkill",
        "sigkill",
    ]
    assert [record.single for record in found] == [False, False, True, True]


def test_a_later_fault_of_the_launch_is_none_of_the_recovery_before_it(tmp_path: Path) -> None:
    story = twice_struck(DELAYS)
    assert [(record.label, record.single) for record in records(tmp_path, story)] == [("sigkill", True)] * 2


def test_a_schedules_copies_and_faults_within_the_recovery_are_counted(tmp_path: Path) -> None:
    given = [
        Given("sigkill", rank=1, options={"again": 2}),
        Given("exception", at="load", rank=1),
        Given("exception", rank=1),
    ]
    (planned,) = schedule(run(*given))
    story = in_new_processes(Setting(), 6, 4)
    story.planned = [fault.to_json() for fault in planned]
    story.faults[0]["id"] = planned[0].id
    found = records(tmp_path, story)
    assert [(record.label, record.further_faults) for record in found] == [
        ("sigkill, 3 more in recovery (sigkill and exception at load)", 3),
        ("sigkill, at recovery", 0),
        ("sigkill, at recovery", 0),
        ("exception, at load", 0),
        ("exception", 0),
    ]
