"""Where a run stands, from what its runners have shipped so far."""

from __future__ import annotations

import json

import pytest

from bench import progress
from bench.config import Run
from bench.design import plan
from bench.progress import Watcher
from bench.results import ResultFolder

NOW = 1_000_000.0


@pytest.fixture
def folder(tmp_path, monkeypatch) -> ResultFolder:
    monkeypatch.setattr(progress.time, "time", lambda: NOW)
    return ResultFolder(tmp_path)


LAUNCHES = plan(Run(cycles=4, launches=2))


def started(folder: ResultFolder, index: int, **changes) -> None:
    folder.write_launch(index, LAUNCHES[index].to_json() | {"status": "running", "started": NOW - 10.0} | changes)


def worker_writes(folder: ResultFolder, index: int, *lines: str, name: str = "worker-n0-r0-7-7.jsonl") -> None:
    with open(folder.launch_dir(index) / "events" / name, "a") as file:
        file.writelines(lines)


def step(t1: float, arm: str = "none", cycle: int = 0) -> str:
    return json.dumps({"kind": "span", "name": "step", "t0": t1 - 0.1, "t1": t1, "arm": arm, "cycle": cycle}) + "\n"


SAVE = json.dumps({"kind": "span", "name": "save", "t0": 0.0, "t1": 1.0, "arm": "none"}) + "\n"


def test_nothing_is_under_way_before_the_first_launch(folder):
    assert Watcher(folder, [0, 1]).look() == (None, [])


def test_a_launch_that_starts_has_neither_arm_nor_rate_yet(folder):
    started(folder, 0)
    seen, ended = Watcher(folder, [0, 1, 2]).look()
    assert (seen.number, seen.of, seen.kind, seen.arm, seen.cycle, seen.saves) == (1, 3, "pilot", None, None, 0)
    assert (seen.steps_per_s, seen.left_s, ended) == (None, None, [])


def test_steps_saves_and_cycles_are_counted_from_the_first_rank(folder):
    started(folder, 1)
    worker_writes(folder, 1, step(1.0), step(1.5), step(2.0, "sync_local", 2), SAVE)
    worker_writes(folder, 1, SAVE, SAVE, name="worker-n0-r1-8-8.jsonl")
    seen, _ = Watcher(folder, [0, 1, 2]).look()
    assert (seen.arm, seen.cycle, seen.cycles, seen.saves, seen.steps_per_s) == ("sync_local", 3, 4, 1, 2.0)


def test_each_look_adds_only_what_is_new_and_a_torn_line_waits_for_its_end(folder):
    started(folder, 1)
    watcher = Watcher(folder, [0, 1, 2])
    worker_writes(folder, 1, SAVE, SAVE[:20])
    assert watcher.look()[0].saves == 1
    worker_writes(folder, 1, SAVE[20:], SAVE)
    assert watcher.look()[0].saves == 3
    assert watcher.look()[0].saves == 3


def test_a_new_launch_starts_from_nothing_and_the_ended_one_is_handed_over(folder):
    watcher = Watcher(folder, [0, 1, 2])
    started(folder, 0)
    worker_writes(folder, 0, step(1.0), SAVE)
    watcher.look()
    started(folder, 0, status="ok", ended=NOW)
    started(folder, 1)
    seen, ended = watcher.look()
    assert (seen.number, seen.saves, seen.arm) == (2, 0, None)
    assert [(record["index"], record["status"]) for record in ended] == [(0, "ok")]


def test_the_time_left_is_that_of_this_launch_and_of_those_after_it(folder):
    started(folder, 1, expected_s=30.0)
    assert Watcher(folder, [0, 1, 2]).look()[0].left_s == pytest.approx(20.0 + 30.0)
    started(folder, 2, expected_s=6.0)
    folder.write_launch(1, LAUNCHES[1].to_json() | {"status": "ok"})
    assert Watcher(folder, [0, 1, 2]).look()[0].left_s == 0.0


def test_skipped_launches_count_as_ended(folder):
    folder.write_launch(1, LAUNCHES[1].to_json() | {"status": "skipped", "reason": "the pilot launch failed"})
    _, ended = Watcher(folder, [0, 1, 2]).look()
    assert [record["reason"] for record in ended] == ["the pilot launch failed"]
