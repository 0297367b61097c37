"""The trigger: strikes what is due exactly once, in the attempt it is meant for, and else costs next to nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import timeit
from dataclasses import replace

import pytest

from bench.config import MOMENTS
from bench.faults.base import InjectedFault
from bench.faults.claim import claimed
from bench.faults.trigger import Nothing, Trigger, trigger_for
from tests.faults.made import ended, planned, rank, record, scene, until


@pytest.fixture
def naps(monkeypatch):
    """Seconds that faults would have slept."""
    taken = []
    monkeypatch.setattr("time.sleep", taken.append)
    return taken


def test_a_fault_strikes_before_the_first_step_after_its_step_and_is_on_record(tmp_path):
    trigger = Trigger([planned("exception", step=5)], scene(tmp_path))
    trigger.reach("step", 4)
    with pytest.raises(InjectedFault, match="0-exception on rank 3"):
        trigger.reach("step", 5)
    found = record(tmp_path, "0-exception")
    assert (found["step"], found["rank"], found["actor"]) == (5, 3, "rank")


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_fault_strikes_at_its_own_moment_only(tmp_path, moment):
    trigger = Trigger([planned("exception", at=moment)], scene(tmp_path))
    for other in set(MOMENTS) - {moment}:
        trigger.reach(other, 100)
    with pytest.raises(InjectedFault):
        trigger.reach(moment, 100)


def test_a_fault_that_has_struck_does_not_strike_again_when_its_step_runs_again(tmp_path):
    faults = [planned("exception")]
    trigger = Trigger(faults, scene(tmp_path))
    with pytest.raises(InjectedFault):
        trigger.reach("step", 5)
    first = record(tmp_path, "0-exception")
    for attempt in (trigger, Trigger(faults, scene(tmp_path))):
        for step in (3, 4, 5, 6):
            attempt.reach("step", step)
    assert record(tmp_path, "0-exception") == first


def test_of_two_attempts_that_overlap_one_is_struck(tmp_path):
    faults = [planned("exception")]
    one, other = Trigger(faults, scene(tmp_path)), Trigger(faults, scene(tmp_path))
    with pytest.raises(InjectedFault):
        one.reach("step", 5)
    other.reach("step", 5)


def test_several_faults_of_a_slot_strike_one_after_the_other(tmp_path):
    faults = [planned("exception", f"{n}-exception", step=step) for n, step in enumerate((5, 9))]
    with pytest.raises(InjectedFault):
        Trigger(faults, scene(tmp_path)).reach("step", 5)
    trigger = Trigger(faults, scene(tmp_path))
    trigger.reach("step", 5)
    with pytest.raises(InjectedFault):
        trigger.reach("step", 9)
    assert claimed(tmp_path / "faults") == {"0-exception", "1-exception"}


@pytest.mark.parametrize("moment", ["recovery", "load"])
def test_a_fault_in_a_recovery_strikes_in_attempts_that_the_fault_before_it_brought_about(tmp_path, moment):
    faults = [planned("exception"), planned("exception", "1-exception", at=moment, after="0-exception")]
    first = Trigger(faults, scene(tmp_path))
    first.reach(moment, 0)  # the start of the launch is no recovery
    with pytest.raises(InjectedFault):
        first.reach("step", 5)
    first.reach(moment, 0)
    with pytest.raises(InjectedFault, match="1-exception"):
        Trigger(faults, scene(tmp_path)).reach(moment, 0)
    Trigger(faults, scene(tmp_path)).reach(moment, 0)


def test_a_slow_rank_is_late_for_so_many_steps_and_then_never_again(tmp_path, naps):
    trigger = Trigger([planned("slow_rank", options={"seconds": 0.5, "steps": 3})], scene(tmp_path))
    for step, slept in ((4, 0), (5, 1), (6, 2), (7, 3), (8, 3), (9, 3)):
        trigger.reach("step", step)
        assert naps == [0.5] * slept
    trigger.reach("write", 9)
    assert len(naps) == 3


def test_another_fault_strikes_while_a_rank_is_slow(tmp_path, naps):
    faults = [planned("slow_rank", options={"seconds": 0.5, "steps": 9}), planned("exception", step=7)]
    trigger = Trigger(faults, scene(tmp_path))
    for step in (5, 6):
        trigger.reach("step", step)
    with pytest.raises(InjectedFault):
        trigger.reach("step", 7)
    assert len(naps) == 3


def test_a_fault_without_a_victim_waits_for_one_and_is_not_claimed(tmp_path):
    trigger = Trigger([planned("writer_killed")], scene(tmp_path))
    trigger.reach("write", 5)
    assert claimed(tmp_path / "faults") == set()


def test_a_fault_that_misses_its_victim_is_not_on_record_and_strikes_the_next_one(tmp_path):
    process = rank(tmp_path, [planned("os_hang")])
    until((tmp_path / "faults" / "0-os_hang.json").exists)
    victims = iter(([os.getpid()], [process.pid]))  # the first carries another token
    trigger = Trigger([planned("writer_killed")], scene(tmp_path, children=lambda: next(victims)))
    trigger.reach("write", 5)
    assert "0-writer_killed" not in claimed(tmp_path / "faults")
    trigger.reach("write", 6)
    assert ended(process)[0] == -signal.SIGKILL
    assert record(tmp_path, "0-writer_killed")["step"] == 6


def test_a_fault_of_a_node_is_asked_for_and_training_goes_on(tmp_path):
    fault = planned("node_loss", options={"x": 1})
    trigger = Trigger([fault], scene(tmp_path))
    trigger.reach("step", 5)
    (path,) = (tmp_path / "requests").iterdir()
    wish = json.loads(path.read_text())
    assert wish["planned"] == fault.to_json()
    assert (wish["step"], wish["rank"]) == (5, 3)
    path.unlink()
    trigger.reach("step", 6)
    assert list((tmp_path / "requests").iterdir()) == []
    assert claimed(tmp_path / "faults") == set()


def test_where_nothing_is_due_no_file_is_touched_and_it_costs_less_than_a_microsecond(tmp_path):
    trigger = Trigger([planned("exception", step=10**6), planned("sigkill", at="write", step=10**6)], scene(tmp_path))
    shutil.rmtree(tmp_path / "faults")
    for idle in (trigger, Nothing()):
        seconds = min(timeit.repeat(lambda idle=idle: idle.reach("step", 7), number=1000, repeat=50)) / 1000
        assert seconds < 1e-6


def test_a_slot_takes_its_own_faults_only(tmp_path):
    there = planned("exception", node=1, local_rank=2)
    assert isinstance(trigger_for([there], scene(tmp_path, node=1, local_rank=1)), Nothing)
    with pytest.raises(InjectedFault):
        trigger_for([there], scene(tmp_path, node=1, local_rank=2)).reach("step", 5)


def test_the_same_step_run_again_by_a_new_process_is_not_struck(tmp_path):
    fault = planned("sigkill")
    assert ended(rank(tmp_path, [fault]))[0] == -9
    found = record(tmp_path, "0-sigkill")
    assert ended(rank(tmp_path, [fault]))[:2] == (0, "went on\n")
    assert ended(rank(tmp_path, [replace(fault, id="another")]))[0] == -9
    assert record(tmp_path, "0-sigkill") == found
