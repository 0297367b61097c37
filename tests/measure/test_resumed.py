from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.measure.episodes import Course
from bench.measure.resumed import (
    device_bytes_after_stop,
    job_state,
    layer_used,
    processes_kept,
    resume_consistent,
    resume_exact,
)
from tests.measure.stories import Setting, Story, in_new_processes, in_place, new_processes, started, twin

Tell = Callable[[Setting, int, int], Story]


def course(story: Story, folder: Path) -> Course:
    return Course.of(story.write(folder))


# --- by whom
@pytest.mark.parametrize(
    ("layer", "tell", "kept"),
    [
        ("in_process", in_place, 1.0),
        ("in_job", in_new_processes, 0.0),
        ("torchrun", in_new_processes, 0.0),
        ("pod_restart", in_new_processes, 0.0),
        ("requeue", in_new_processes, 0.0),
    ],
)
def test_processes_tell_which_layer_it_was(tmp_path: Path, layer: str, tell: Tell, kept: float) -> None:
    found = course(tell(Setting(layer=layer), 6, 4), tmp_path)
    assert layer_used(found, found.episodes[0]) == layer
    assert processes_kept(found.episodes[0]) == kept


@pytest.mark.parametrize(("tell", "used"), [(in_place, "in_process"), (in_new_processes, "in_job")])
def test_of_two_nested_layers_the_one_is_named_that_acted(tmp_path: Path, tell: Tell, used: str) -> None:
    found = course(tell(Setting(layer="nested"), 6, 4), tmp_path)
    assert layer_used(found, found.episodes[0]) == used


def test_a_spare_that_was_there_before_the_fault_is_in_place(tmp_path: Path) -> None:
    setting = Setting(layer="in_process", ranks_per_node=3, reserve=1)
    found = course(in_place(setting, 6, 4, victim=1), tmp_path)
    assert layer_used(found, found.episodes[0]) == "in_process"
    assert processes_kept(found.episodes[0]) == 0.5


def test_an_agent_that_was_lost_with_its_only_node_did_not_do_it(tmp_path: Path) -> None:
    story = started(Setting(layer="in_job"))
    story.steps(6)
    story.strike("node_loss", story.ranks[0])
    story.runners[0].instant("away", story.t, fault="f0")
    story.t += 3
    story.runners[0].instant("back", story.t)
    story.runners[0].instant("restart", story.t, attempt=1, backoff_s=0.0, scope="node")
    story.attempt([story.process(slot) for slot in story.slots], 4)
    story.steps(12)
    story.finish()
    found = course(story, tmp_path)
    assert layer_used(found, found.episodes[0]) == "pod_restart"


def test_without_evidence_no_layer_is_named(tmp_path: Path) -> None:
    story = in_new_processes(Setting(), 6, 4)
    story.runners[0].events = [e for e in story.runners[0].events if e.get("name") != "started"]
    found = course(story, tmp_path)
    assert layer_used(found, found.episodes[0]) is None


def test_nothing_is_said_of_a_recovery_that_was_none(tmp_path: Path) -> None:
    story = started(Setting(layer="none"))
    story.steps(6)
    story.strike("sigkill", story.ranks[0])
    story.over(1.0)
    found = course(story, tmp_path)
    (episode,) = found.episodes
    assert layer_used(found, episode) is None
    assert processes_kept(episode) is None
    assert resume_exact(episode, None) is None
    assert resume_consistent(found, episode) is None


def test_device_memory_after_the_abort_is_that_of_the_worst_rank(tmp_path: Path) -> None:
    story = in_place(Setting(layer="in_process"), 6, 4)
    aborted = [event for worker in story.workers for event in worker.events if event.get("name") == "aborted"]
    assert len(aborted) == 2
    for size, event in enumerate(aborted, 7):
        event["device_bytes"] = size
    assert device_bytes_after_stop(course(story, tmp_path).episodes[0]) == 8


# --- the same state
def state(rank: int, total: str, world_size: int = 2, position: int = 400) -> dict[str, object]:
    return {"rank": rank, "world_size": world_size, "position": position, "sum": total, "digest": f"d{rank}"}


def test_checksums_of_ranks_are_added_modulo_two_to_the_64() -> None:
    found = job_state([state(1, "ffffffffffffffff"), state(0, "3")])
    assert found is not None
    assert (found.total, found.position, found.digests) == (2, 400, ("d0", "d1"))


def test_a_state_that_a_rank_did_not_tell_or_told_otherwise_is_none() -> None:
    assert job_state([]) is None
    assert job_state([state(0, "1")]) is None
    assert job_state([state(0, "1"), state(1, "1", position=500)]) is None
    assert job_state([state(0, "1"), state(1, "1", world_size=3)]) is None


def test_what_was_loaded_is_what_was_saved(tmp_path: Path) -> None:
    found = course(in_new_processes(Setting(), 6, 4), tmp_path)
    assert resume_consistent(found, found.episodes[0]) is True


@pytest.mark.parametrize("key", ["sum", "position"])
def test_a_load_of_another_state_is_noticed(tmp_path: Path, key: str) -> None:
    story = in_new_processes(Setting(), 6, 4)
    for event in story.ranks[0].events:
        if event.get("name") == "state" and event["at"] == "restored":
            event[key] = "7" if key == "sum" else 7
    if key == "position":
        for event in story.ranks[1].events:
            if event.get("name") == "state" and event["at"] == "restored":
                event[key] = 7
    found = course(story, tmp_path)
    assert resume_consistent(found, found.episodes[0]) is False


def test_a_checksum_holds_at_another_world_size_where_exactness_cannot_be_judged(tmp_path: Path) -> None:
    """The last rank died; its part of the sum is loaded by the others."""
    setting = Setting(layer="in_process", ranks_per_node=3)
    story = in_place(setting, 6, 4, victim=2)
    total = 0
    for event in (e for worker in story.workers for e in worker.events if e.get("name") == "state"):
        if event["at"] == "saved" and event["step"] == 4 and event["world_size"] == 3:
            total += int(event["sum"], 16)
    for rank, file in enumerate(story.ranks):
        for event in file.events:
            if event.get("name") == "state" and event["at"] == "restored":
                event["sum"] = f"{total % (1 << 64):x}" if rank == 0 else "0"
    found, without = course(story, tmp_path), course(twin(setting), tmp_path)
    assert resume_consistent(found, found.episodes[0]) is True
    assert resume_exact(found.episodes[0], without) is None


def test_of_a_step_that_more_ranks_had_saved_before_the_last_save_counts(tmp_path: Path) -> None:
    story = started(Setting(layer="in_process", ranks_per_node=3))
    story.steps(9)
    *living, victim = story.ranks
    story.strike("sigkill", victim)
    story.gone(victim)
    story.t += 1.0
    story.attempt(living, 4)
    story.steps(9)  # and so step 8 is saved once more, by two ranks
    story.strike("exception", living[0])
    story.t += 1.0
    story.attempt(living, 8)
    story.steps(12)
    story.finish()
    found = course(story, tmp_path)
    assert resume_consistent(found, found.episodes[1]) is True


# --- as if nothing had happened
def test_a_job_that_went_on_as_its_twin_is_exact(tmp_path: Path) -> None:
    found, without = (course(story, tmp_path) for story in (in_new_processes(Setting(), 6, 4), twin(Setting())))
    assert resume_exact(found.episodes[0], without) is True
    assert resume_exact(found.episodes[0], None) is None


def test_one_loss_that_differs_in_its_last_digits_is_not_exact(tmp_path: Path) -> None:
    story = in_new_processes(Setting(), 6, 4)
    last = [event for event in story.ranks[0].events if event.get("name") == "step" and "loss" in event][-1]
    last["loss"] += 1e-12
    found, without = course(story, tmp_path), course(twin(Setting()), tmp_path)
    assert resume_exact(found.episodes[0], without) is False


def test_a_digest_that_differs_at_the_end_is_not_exact(tmp_path: Path) -> None:
    story = in_new_processes(Setting(), 6, 4)
    (end,) = [e for e in story.ranks[1].events if e.get("name") == "state" and e["at"] == "end"]
    end["digest"] = "other"
    found, without = course(story, tmp_path), course(twin(Setting()), tmp_path)
    assert resume_exact(found.episodes[0], without) is False


def test_fewer_than_three_losses_or_no_digest_at_the_end_decide_nothing(tmp_path: Path) -> None:
    late = course(in_new_processes(Setting(interval=2, saves=3), 5, 4), tmp_path)
    without = course(twin(Setting(interval=2, saves=3)), tmp_path)
    assert len(late.episodes[0].after.attempts[0].steps) == 2  # type: ignore[union-attr]
    assert resume_exact(late.episodes[0], without) is None
    cut = started(Setting(index=3))
    cut.steps(6)
    new_processes(cut, 4)
    cut.steps(11)
    cut.end = "failed"
    cut.over()
    unfinished = course(cut, tmp_path)
    assert resume_exact(unfinished.episodes[0], course(twin(Setting(index=4)), tmp_path)) is None


def test_losses_that_nobody_recorded_are_no_evidence(tmp_path: Path) -> None:
    stories = [in_new_processes(Setting(), 6, 4), twin(Setting())]
    for story in stories:
        for event in (event for worker in story.workers for event in worker.events):
            event.pop("loss", None)
    found, without = (course(story, tmp_path) for story in stories)
    assert resume_exact(found.episodes[0], without) is None


def test_an_inexact_recovery_after_an_exact_one_does_not_taint_it(tmp_path: Path) -> None:
    setting = Setting(saves=4)
    story = started(setting)
    story.steps(6)
    new_processes(story, 4)
    story.steps(10)
    story.exact = False
    new_processes(story, 8)
    story.steps(16)
    story.finish()
    found, without = course(story, tmp_path), course(twin(setting), tmp_path)
    assert [resume_exact(episode, without) for episode in found.episodes] == [True, False]
