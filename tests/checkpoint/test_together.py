from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch.distributed as dist

from bench.checkpoint import together
from bench.checkpoint.base import CheckpointError
from bench.checkpoint.together import DEAD, FIT, RENEW, Later, OwnGroup, Together


class Writes(Together):
    """One rank; the others speak through `others`, the smallest of their words."""

    name = "writes"

    def __init__(self, context, others=FIT):
        super().__init__(replace(context, agree_min=lambda own: min(own, self.others)))
        self.others, self.died, self.ended = others, None, 0
        self.outcome = True  # of a poll: True, False or a reason

    def _save(self, step, tree, save):
        self._begin_together()
        self._handed_over(step)

    def poll(self):
        if isinstance(self.outcome, str):
            target, reason, self.outcome = self._in_flight, self.outcome, True
            raise self._give_up(target, reason)
        self._in_flight = None if self.outcome else self._in_flight
        return self.outcome

    def _end_writer(self):
        self.ended += 1
        self.died = None

    def _death(self):
        return self.died

    def _failure(self, target, reason):
        return CheckpointError(f"step {target}: {reason}")


def test_fit_writers_are_kept(context):
    strategy = Writes(context)
    strategy.save(1, {}, 0)
    strategy.save(2, {}, 1)
    assert strategy.ended == 0


def test_a_writer_that_died_between_saves_is_told_and_replaced(context):
    strategy = Writes(context)
    strategy.died = "it is dead"
    with pytest.raises(CheckpointError, match="between saves: it is dead"):
        strategy.save(1, {}, 0)
    assert strategy.ended == 1
    strategy.save(1, {}, 0)


def test_another_rank_s_dead_writer_stops_this_one_too(context):
    strategy = Writes(context, others=DEAD)
    with pytest.raises(CheckpointError, match="the writer of another rank is dead"):
        strategy.save(1, {}, 0)
    assert strategy.ended == 1


def test_after_another_rank_s_failure_a_new_writer_is_started_in_silence(context):
    strategy = Writes(context, others=RENEW)
    strategy.save(1, {}, 0)
    assert strategy.ended == 1


def test_a_failure_is_told_once_and_the_next_save_renews_on_all_ranks(context):
    strategy = Writes(context)
    strategy.save(1, {}, 0)
    strategy.outcome = "the disk is full"
    with pytest.raises(CheckpointError, match="step 1: the disk is full"):
        strategy.poll()
    said = []
    strategy.context = replace(strategy.context, agree_min=lambda own: said.append(own) or own)
    strategy.save(2, {}, 1)
    strategy.save(3, {}, 2)
    assert said == [RENEW, FIT]


def test_a_failure_that_shows_at_the_next_save_still_takes_part_in_the_agreement(context):
    strategy = Writes(context)
    strategy.save(1, {}, 0)
    strategy.outcome = "the disk is full"
    said = []
    strategy.context = replace(strategy.context, agree_min=lambda own: said.append(own) or own)
    with pytest.raises(CheckpointError, match="step 1: the disk is full"):
        strategy.save(2, {}, 1)
    assert said == [DEAD], "the other ranks are waiting for this word"


def test_a_closed_strategy_saves_no_more(context):
    strategy = Writes(context)
    strategy.close()
    with pytest.raises(CheckpointError, match="closed"):
        strategy.save(1, {}, 0)


def test_the_deadline_counts_from_the_hand_over(context, monkeypatch):
    strategy = Writes(context)
    now = [100.0]
    monkeypatch.setattr(together, "clock", lambda: now[0])
    strategy._handed_over(1)
    now[0] += context.deadline_s
    assert strategy._overdue() is None
    now[0] += 0.1
    assert "did not finish within 120.0 s" in strategy._overdue()


def test_events_of_a_thread_reach_the_file_with_their_own_times(context):
    later = Later()
    later.instant("durable", t=3.0, bytes=1)
    later.instant("deleted", bytes=2)
    later.reach(context.recorder)
    later.reach(context.recorder)
    events = [json.loads(line) for line in context.recorder.path.read_text().splitlines()[1:]]
    assert [(event["name"], event["bytes"]) for event in events] == [("durable", 1), ("deleted", 2)]
    assert events[0]["t"] == 3.0


def test_a_group_is_made_once_and_anew_when_it_was_forgotten(alone):
    group = OwnGroup(5.0)
    first = group.get()
    assert group.get() is first
    group.forget()
    assert group.get() is not first
    group.close()
    assert dist.is_initialized()


def test_without_torch_distributed_there_is_no_group():
    assert OwnGroup(5.0).get() is None
