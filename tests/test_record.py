"""The instrument inside workers and writers: what it leaves behind is complete, in order and unique to a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from bench.record import Recorder, clock, process_start_ticks, wait_until
from bench.schema import EVENT_VERSION

META = {"role": "worker", "launch": 0, "node": 1, "local_rank": 2, "rank": 6, "world_size": 8, "incarnation": 0}

KILLED_IN_A_SPAN = """
import json, os, signal, sys
from bench.record import Recorder
recorder = Recorder(sys.argv[1], **json.loads(sys.argv[2]))
with recorder.span("step", step=1):
    pass
with recorder.span("save", save=0):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def recorder(tmp_path):
    made = Recorder(tmp_path, **META)
    yield made
    made.close()


def events(recorder: Recorder) -> list[dict]:
    return [json.loads(line) for line in recorder.path.read_text().splitlines()]


def test_the_first_line_says_who_writes_and_pairs_the_two_clocks(recorder):
    (meta,) = events(recorder)
    assert meta["kind"] == "meta"
    assert META.items() <= meta.items()
    assert (meta["version"], meta["pid"]) == (EVENT_VERSION, os.getpid())
    assert meta["pid_start"] == process_start_ticks()
    assert 0 <= clock() - meta["mono"] < 60


def test_the_name_of_the_file_belongs_to_one_process_for_good(recorder):
    assert recorder.path.name == f"worker-n1-r2-{os.getpid()}-{process_start_ticks()}.jsonl"


def test_events_are_numbered_without_gaps_in_the_order_in_which_they_were_written(recorder):
    recorder.instant("dirty", dirty_bytes=5)
    with recorder.span("step", step=1):
        recorder.begin("poll", 1.0)
    assert [event["seq"] for event in events(recorder)] == list(range(5))
    assert [event["kind"] for event in events(recorder)] == ["meta", "instant", "begin", "begin", "span"]


def test_a_span_holds_its_times_and_what_the_block_found_out(recorder):
    before = clock()
    with recorder.span("step", step=4) as record:
        record["loss"] = 1.5
    after = clock()
    begin, span = events(recorder)[1:]
    assert (span["step"], span["loss"]) == (4, 1.5)
    assert before <= span["t0"] <= span["t1"] <= after
    assert begin["t"] == span["t0"]


def test_a_span_is_recorded_also_when_its_block_fails(recorder):
    with pytest.raises(KeyError), recorder.span("save", save=0):
        raise KeyError("disk")
    assert events(recorder)[-1]["name"] == "save"


def test_an_instant_can_be_dated_by_its_caller(recorder):
    recorder.instant("durable", t=12.25, rank=0)
    assert events(recorder)[-1]["t"] == 12.25


def test_closing_twice_is_no_offence(recorder):
    recorder.close()
    recorder.close()
    assert len(events(recorder)) == 1


def test_a_killed_process_leaves_every_finished_event_and_the_one_it_died_in(tmp_path):
    command = [sys.executable, "-c", KILLED_IN_A_SPAN, str(tmp_path), json.dumps(META)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    (path,) = tmp_path.iterdir()
    left = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(event["kind"], event.get("name")) for event in left] == [
        ("meta", None),
        ("begin", "step"),
        ("span", "step"),
        ("begin", "save"),
    ]


def test_the_start_time_of_a_process_is_the_kernels():
    started = psutil.boot_time() + process_start_ticks() / os.sysconf("SC_CLK_TCK")
    assert started == pytest.approx(psutil.Process().create_time(), abs=1.0)


def test_waiting_on_the_real_clock_never_ends_early():
    t = clock() + 0.01
    wait_until(t)
    assert clock() >= t
