from __future__ import annotations

from pathlib import Path

from bench.measure.episodes import Course
from bench.measure.recoveries import pairs, recoveries
from tests.measure.stories import Delays, Setting, Story, in_new_processes, in_place, new_processes, started, twin


def course(story: Story, folder: Path) -> Course:
    return Course.of(story.write(folder))


def test_a_launch_without_faults_has_no_episode(tmp_path: Path) -> None:
    found = course(twin(Setting()), tmp_path)
    assert (found.episodes, found.unprovoked, found.false_alarms) == ([], [], 0)


def test_a_fault_that_a_layer_recovered_from(tmp_path: Path) -> None:
    (episode,) = course(in_new_processes(Setting(), 6, 4), tmp_path).episodes
    assert (episode.outcome, episode.attempts, episode.fault_step) == ("recovered", 1, 6)
    assert episode.after is not None
    assert episode.after.resumed_step == 4
    assert len(episode.started) == 2


def test_several_faults_of_a_launch_are_episodes_of_their_own(tmp_path: Path) -> None:
    story = started(Setting(saves=4))
    for at_step, resumed in ((6, 4), (11, 8)):
        story.steps(at_step)
        new_processes(story, resumed)
    story.steps(16)
    story.finish()
    first, second = course(story, tmp_path).episodes
    assert (first.fault_step, second.fault_step) == (6, 11)
    assert first.end == second.begin
    assert {first.outcome, second.outcome} == {"recovered"}
    assert first.after is second.before


def test_a_fault_before_the_first_step_after_another_belongs_to_its_episode(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(6)
    new_processes(story, 4)
    story.step = 0  # a fault in a recovery tells of an attempt that has no steps yet
    new_processes(story, 4)
    story.steps(12)
    story.finish()
    (episode,) = course(story, tmp_path).episodes
    assert [fault["id"] for fault in episode.faults] == ["f0", "f1"]
    assert (episode.outcome, episode.attempts, episode.fault_step) == ("recovered", 2, 6)


def test_a_fault_after_which_steps_went_on_is_tolerated(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(6)
    story.strike("slow_rank", story.ranks[0])
    story.steps(12)
    story.finish()
    (episode,) = course(story, tmp_path).episodes
    assert (episode.outcome, episode.attempts, episode.after) == ("tolerated", 0, None)


def test_a_tolerated_fault_does_not_swallow_the_next_one(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(5)
    story.strike("slow_rank", story.ranks[0])
    story.steps(7)
    new_processes(story, 4)
    story.steps(12)
    story.finish()
    found = course(story, tmp_path)
    assert [episode.outcome for episode in found.episodes] == ["tolerated", "recovered"]


def test_a_late_failure_after_some_more_steps_still_belongs_to_the_fault(tmp_path: Path) -> None:
    """The writer is killed, the rank finds out at the next save."""
    story = started(Setting())
    story.steps(5)
    story.strike("writer_killed", story.ranks[0])
    story.steps(7)
    story.t += 0.5
    story.log_line()
    story.attempt([story.process(slot) for slot in story.slots], 4)
    story.steps(12)
    story.finish()
    (episode,) = course(story, tmp_path).episodes
    assert (episode.outcome, episode.fault_step) == ("recovered", 5)


def test_a_fault_struck_while_draining_is_tolerated_if_the_job_ends_well(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(12)
    story.strike("writer_killed", story.ranks[0])
    story.t += 0.1
    story.finish()
    assert course(story, tmp_path).episodes[0].outcome == "tolerated"


def test_steps_that_went_on_in_a_job_that_did_not_come_to_its_end_are_no_tolerance(tmp_path: Path) -> None:
    story = started(Setting(layer="none"))
    story.steps(6)
    story.strike("storage_full", story.ranks[0])
    story.steps(7)
    story.end = "failed"
    story.over()
    assert course(story, tmp_path).episodes[0].outcome == "not_recovered"


def test_a_job_that_hangs_until_its_deadline_is_not_recovered(tmp_path: Path) -> None:
    story = started(Setting(layer="none"))
    story.steps(6)
    story.strike("collective_hang", story.ranks[1])
    story.hold(story.ranks, story.t, ended=False)
    story.end = "deadline"
    story.over(30.0)
    (episode,) = course(story, tmp_path).episodes
    assert (episode.outcome, episode.attempts) == ("not_recovered", 0)


def test_attempts_that_never_stepped_are_no_recovery(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(6)
    for _ in range(3):
        new_processes(story, 4)
    story.end = "failed"
    story.over()
    (episode,) = course(story, tmp_path).episodes
    assert (episode.outcome, len(episode.faults), episode.attempts) == ("not_recovered", 3, 3)


def test_a_job_struck_after_its_last_step_recovers_without_a_further_one(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(12)
    new_processes(story, 12)
    story.finish()
    (episode,) = course(story, tmp_path).episodes
    assert (episode.outcome, episode.after) == ("recovered", None)


def test_a_restart_that_no_fault_explains_is_a_false_alarm(tmp_path: Path) -> None:
    story = in_place(Setting(layer="in_process"), 6, 4)
    story.faults.clear()
    found = course(story, tmp_path)
    assert (found.episodes, found.false_alarms) == ([], 1)
    assert {attempt.slot for attempt in found.unprovoked} == {"0/0", "0/1"}


def test_a_restart_after_a_recovery_is_a_false_alarm_and_the_recovery_is_none(tmp_path: Path) -> None:
    story = started(Setting(saves=4))
    story.steps(6)
    new_processes(story, 4, Delays())
    story.steps(9)
    new_processes(story, 8)
    story.faults.pop()
    story.steps(16)
    story.finish()
    found = course(story, tmp_path)
    assert [episode.outcome for episode in found.episodes] == ["recovered"]
    assert found.false_alarms == 1


def test_a_job_that_fell_apart_has_not_recovered_though_its_groups_went_on(tmp_path: Path) -> None:
    """A link between two nodes is cut, and each of them goes on alone from the same checkpoint."""
    story = started(Setting(nodes=2, ranks_per_node=1, layer="in_process"))
    story.steps(6)
    halves, cut = list(story.ranks), story.t
    story.strike("network_partition", halves[1])
    for number, half in enumerate(halves):
        story.t = cut + 1.0 + number / 4
        half.instant("abort", story.t)
        half.instant("aborted", story.t)
        story.attempt([half], 4)
        story.steps(12)
        half.instant("measured_end", story.t)
    story.over()
    (episode,) = course(story, tmp_path).episodes
    assert (episode.split, episode.outcome, episode.after) == (True, "not_recovered", None)
    (record,) = recoveries(pairs([story.write(tmp_path)]))
    assert record.reason.startswith("the job fell apart")
    assert record.time_to_recover_s is None
