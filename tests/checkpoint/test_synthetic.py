from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from bench import record
from bench.checkpoint import synthetic
from bench.checkpoint.base import Context
from bench.errors import BadInput
from bench.record import Recorder


@pytest.fixture
def now(monkeypatch):
    """A clock that moves only when somebody sleeps or looks: a look costs a microsecond."""
    state = SimpleNamespace(t=50.0)

    def look():
        state.t += 1e-6
        return state.t

    for module in (synthetic, record):
        monkeypatch.setattr(module, "clock", look)
    monkeypatch.setattr(record.time, "sleep", lambda seconds: setattr(state, "t", state.t + seconds))
    return state


@pytest.fixture
def make(tmp_path):
    recorder = Recorder(tmp_path, role="worker", node=0, local_rank=0)

    def make(**options):
        context = Context(tmp_path, 0, 1, 0, 0, "cpu", "this", recorder, tmp_path, {}, options=options)
        return synthetic.Synthetic(context)

    yield make
    recorder.close()


def durable(strategy):
    lines = strategy.context.recorder.path.read_text().splitlines()[1:]
    return [event for event in map(json.loads, lines) if event["name"] == "durable"]


def test_a_save_blocks_for_exactly_the_given_time(now, make):
    strategy = make(block_s=0.12, durable_s=0.46)
    before = now.t
    strategy.save(3, {}, 0)
    assert now.t - before == pytest.approx(0.12, abs=1e-4)


def test_durability_is_stamped_to_the_given_moment_and_not_on_record_before_it(now, make):
    strategy = make(block_s=0.12, durable_s=0.46)
    strategy.save(3, {}, 0)
    assert strategy.poll() is False
    assert durable(strategy) == []
    now.t += 0.40
    assert strategy.poll() is True
    assert strategy.poll() is True
    (event,) = durable(strategy)
    assert event["t"] - event["t_begin"] == pytest.approx(0.46, abs=1e-9)
    assert (event["save"], event["step"], event["bytes"]) == (0, 3, 0)


def test_a_save_that_comes_too_early_waits_for_the_previous_one(now, make, monkeypatch):
    strategy = make(block_s=0.1, durable_s=0.5)
    monkeypatch.setattr("bench.checkpoint.base.time.sleep", lambda seconds: setattr(now, "t", now.t + seconds))
    before = now.t
    strategy.save(1, {}, 0)
    phases = strategy.save(2, {}, 1)
    assert [name for name, _, _ in phases] == ["wait_previous", "write"]
    assert now.t - before == pytest.approx(0.6, abs=0.01)


def test_a_write_that_is_durable_within_the_save_is_synchronous(now, make):
    strategy = make(block_s=0.2, durable_s=0.1)
    assert strategy.background is False
    strategy.save(1, {}, 0)
    assert len(durable(strategy)) == 1


def test_the_slowdown_is_what_the_trainer_reads(make):
    assert make(block_s=0.1, durable_s=0.5).slowdown == 1.0
    assert make(block_s=0.1, durable_s=0.5, slowdown=1.25).slowdown == 1.25


WRONG = [{}, {"block_s": 1}, {"block_s": -1, "durable_s": 1}, {"block_s": 1, "durable_s": 1, "slowdown": 0.5}]


@pytest.mark.parametrize("options", WRONG)
def test_durations_that_are_missing_or_impossible_are_refused(make, options):
    with pytest.raises(BadInput, match=r"checkpoint\.synthetic"):
        make(**options)
