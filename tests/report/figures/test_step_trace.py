"""Steps around a save: at the right moment, of the right length."""

from __future__ import annotations

import pytest

from bench.report.figures.step_trace import AFTER, BEFORE, traces


def test_a_trace_has_the_save_its_write_and_the_steps_that_the_write_slowed(checkpoints):
    found = {trace.arm: trace for trace in traces(checkpoints)}
    assert list(found) == ["none", "sync_local", "nvrx_async"]
    slow, sync = found["nvrx_async"], found["sync_local"]
    assert slow.durable_s > slow.out_s > 0
    assert slow.longer == pytest.approx(0.25, abs=0.01)  # as the made result has it
    assert sync.longer is None, "the write was over before the save was"
    assert sync.out_s == pytest.approx(0.25, rel=0.1)
    assert slow.control_s == pytest.approx(0.1)


def test_the_steps_before_the_save_end_with_it_and_those_after_begin_when_it_is_over(checkpoints):
    for trace in traces(checkpoints):
        before = trace.begin < -1e-9
        assert before.sum() <= BEFORE
        assert max(trace.end[before]) <= 1e-9
        assert min(trace.begin[~before]) == pytest.approx(trace.out_s)
        assert (~before).sum() >= AFTER
