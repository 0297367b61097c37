from __future__ import annotations

from pathlib import Path

import pytest

from bench.measure.attempts import attempts, generations
from tests.measure.stories import Setting, in_new_processes, in_place, started


def test_new_processes_and_restarts_in_place_are_attempts_alike(tmp_path: Path) -> None:
    in_job = attempts(in_new_processes(Setting(index=1), 6, 4).write(tmp_path))
    in_process = attempts(in_place(Setting(index=2, layer="in_process"), 6, 4).write(tmp_path))
    for found in (in_job, in_process):
        assert [(each.slot, len(each.steps), each.resumed_step) for each in found] == [
            ("0/0", 6, 0),
            ("0/0", 8, 4),
            ("0/1", 6, 0),
            ("0/1", 8, 4),
        ]
        assert all(first.end == second.begin for first, second in zip(found[::2], found[1::2], strict=True))
    assert len({each.process for each in in_job}) == 4
    assert len({each.process for each in in_process}) == 2
    assert [each.number for each in in_process] == [0, 1, 0, 1]


def test_what_an_abort_hook_tells_late_belongs_to_the_attempt_that_it_ended(tmp_path: Path) -> None:
    first, second, *_ = attempts(in_place(Setting(layer="in_process"), 6, 4).write(tmp_path))
    assert len(first.named("aborted")) == 1
    assert second.named("aborted") == []


def test_a_process_in_reserve_has_no_attempt_until_it_is_needed(tmp_path: Path) -> None:
    setting = Setting(layer="in_process", ranks_per_node=3, reserve=1)
    found = attempts(in_place(setting, 6, 4, victim=1).write(tmp_path))
    assert [(each.slot, each.rank, each.resumed_step) for each in found] == [
        ("0/0", 0, 0),
        ("0/0", 0, 4),
        ("0/1", 1, 0),
        ("0/2", 1, 4),
    ]


def test_of_several_loads_the_last_one_counts_and_the_first_one_is_when_it_was_ready(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(8)
    begin = story.t
    story.attempt([story.process(slot) for slot in story.slots], 8)  # found damaged ...
    for file in story.ranks:
        file.span("load", story.t, story.t + 0.7, arm="sync_local", step=4, resume=True)  # ... so this one
    story.t += 0.7
    story.step = 4
    story.steps(12)
    story.finish()
    later = [each for each in attempts(story.write(tmp_path)) if each.begin >= begin]
    for each in later:
        assert each.resumed_step == 4
        assert each.ready == pytest.approx(begin + 0.2)
        assert each.loaded == pytest.approx(begin + 0.2 + 0.5 + 0.7)


def test_generations_are_the_ranks_that_finished_a_first_step_together(tmp_path: Path) -> None:
    found = generations(attempts(in_new_processes(Setting(nodes=2), 6, 4).write(tmp_path)))
    assert [(g.world_size, g.resumed_step, int(g.ends[0][0]), int(g.ends[0][-1])) for g in found] == [
        (4, 0, 1, 6),
        (4, 4, 5, 12),
    ]
    assert found[0].end_of(6) is not None
    assert found[0].end_of(7) is None
    assert found[1].first_step_end == found[1].end_of(5)


def test_ranks_that_lost_one_of_them_in_their_first_step_are_no_generation(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(6)
    story.t += 1.0
    story.attempt([story.process(slot) for slot in story.slots], 4)
    survivor = story.ranks[0]
    survivor.span("step", story.t, story.t + 0.1, step=5, arm="a", cycle=0, segment=0, use="plain", loss=1.0)
    story.t += 1.0
    story.attempt([story.process(slot) for slot in story.slots], 4)
    story.steps(12)
    found = generations(attempts(story.write(tmp_path)))
    assert [g.resumed_step for g in found] == [0, 4]
    assert found[1].begin == pytest.approx(story.ranks[0].events[0]["mono"])


def test_after_a_shrink_the_slot_that_is_gone_is_in_no_later_generation(tmp_path: Path) -> None:
    setting = Setting(layer="in_process", ranks_per_node=3)
    found = generations(attempts(in_place(setting, 6, 4, victim=1).write(tmp_path)))
    assert [sorted(g.slots) for g in found] == [["0/0", "0/1", "0/2"], ["0/0", "0/2"]]


def test_an_offset_of_a_nodes_clock_tears_no_generation_apart(tmp_path: Path) -> None:
    setting = Setting(nodes=2, node_offset_s=(0.0, 77.5))
    launch = in_new_processes(setting, 6, 4).write(tmp_path)
    assert [g.world_size for g in generations(attempts(launch), launch.uncertainty_s or 0.0)] == [4, 4]
