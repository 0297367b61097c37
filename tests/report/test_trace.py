"""A trace: valid against the format, spans nested on every track, faults over all."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from bench.errors import BadInput
from bench.measure.accounted import Accounted
from bench.report.data import read_result
from bench.report.trace import trace_events, write_trace
from tests.measure.results import BASE, replace
from tests.report.made import checkpoint_result, references

PHASES = {"X": {"ts", "dur"}, "i": {"ts", "s"}, "C": {"ts", "args"}, "M": {"args"}}
MICROSECOND = 0.01  # times are rounded to nanoseconds


def check(trace: dict) -> None:
    """Raises AssertionError where the Trace Event Format (JSON object form) is violated."""
    assert isinstance(trace["traceEvents"], list)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        assert event["ph"] in PHASES, event
        assert {"name", "ph", "pid", "tid"} <= event.keys(), event
        assert PHASES[event["ph"]] <= event.keys(), event
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        for key in ("ts", "dur"):
            assert event.get(key, 0) >= 0, event
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())


def check_nesting(events: list[dict]) -> None:
    """On a track, of two spans that overlap one holds the other."""
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        open_until: list[float] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin + MICROSECOND:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + MICROSECOND
            open_until.append(end)


def load(path) -> dict:
    return json.loads(path.read_text())


def test_a_trace_of_saves_is_valid_and_its_spans_are_nested(checkpoints, tmp_path):
    path = write_trace(checkpoints, tmp_path)
    assert path.name == "trace_launch_1.json"
    trace = load(path)
    check(trace)
    check_nesting(trace["traceEvents"])
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M" and "name" in event["args"]}
    assert {"node 0", "rank 0 (slot 0/0)", "rank 1 (slot 0/1)", "node runner", "writes of rank 0"} <= names


def test_every_step_and_save_and_its_phases_are_on_the_track_of_their_slot(checkpoints, tmp_path):
    events = load(write_trace(checkpoints, tmp_path, 2))["traceEvents"]
    launch = next(launch for launch in checkpoints.launches if launch.index == 2)
    for worker in launch.workers:
        mine = [event for event in events if event["ph"] == "X" and event["tid"] == worker.rank]
        assert sum(event["cat"] == "step" for event in mine) == len(worker.steps)
        saves = [event for event in mine if event["cat"] == "save"]
        assert len(saves) == sum(span["name"] == "save" for span in worker.spans)
        assert [event["name"] for event in mine if event["cat"] == "phase"].count("write") == len(saves)


def test_a_background_write_lasts_beyond_its_save_on_a_track_of_its_own(checkpoints, tmp_path):
    events = load(write_trace(checkpoints, tmp_path))["traceEvents"]
    writes = [event for event in events if event["name"] == "write nvrx_async"]
    saves = [event for event in events if event["name"] == "save nvrx_async" and event["tid"] == 0]
    assert len(writes) == 2 * len(saves)
    assert all(write["tid"] >= 1000 for write in writes)
    first = min(writes, key=lambda event: event["ts"])
    assert first["dur"] > saves[0]["dur"]


def test_faults_are_instants_over_all_tracks_and_open_spans_are_named(recoveries, tmp_path):
    launch = next(launch for launch in recoveries.launches if launch.faults)
    trace = load(write_trace(recoveries, tmp_path, launch.index))
    check(trace)
    check_nesting(trace["traceEvents"])
    (fault,) = [event for event in trace["traceEvents"] if event.get("cat") == "fault"]
    assert (fault["name"], fault["s"]) == ("FAULT exception", "g")
    begin = min(stream.first_t for stream in (*launch.workers, *launch.writers, *launch.runners))
    assert fault["ts"] == pytest.approx(1e6 * (launch.faults[0]["t"] - begin), abs=1)


def test_nodes_are_processes_and_phases_in_another_nodes_time_stay_within_their_save(tmp_path):
    two = replace(BASE, nodes=2, node_offset_s=(0.0, 500.0))
    result = read_result(checkpoint_result(tmp_path / "two", two, launches=1), "run")
    events = list(trace_events(result.launches[0]))
    check_nesting(events)
    phases = [event for event in events if event.get("cat") == "phase" and event["pid"] == 1]
    saves = [event for event in events if event.get("cat") == "save" and event["pid"] == 1]
    assert {event["pid"] for event in events} == {0, 1}
    assert sum(event["dur"] for event in phases) == pytest.approx(sum(event["dur"] for event in saves), rel=0.02)


@pytest.mark.parametrize("scenario", sorted(references()))
def test_traces_of_the_reference_results_are_valid(scenario, tmp_path):
    trace = load(write_trace(read_result(references()[scenario], "run"), tmp_path))
    check(trace)
    check_nesting(trace["traceEvents"])
    counters = [(event["pid"], event["name"], event["ts"]) for event in trace["traceEvents"] if event["ph"] == "C"]
    for track in {counter[:2] for counter in counters}:
        assert all(a <= b for a, b in pairwise([ts for *of, ts in counters if tuple(of) == track]))


def test_a_launch_that_is_not_there_is_refused_with_what_there_is(checkpoints, tmp_path):
    with pytest.raises(BadInput, match=r"launch: this result has no launch 9 with events; known: 1, 2, 3"):
        write_trace(checkpoints, tmp_path, 9)
    kept = Accounted(checkpoints.run, [], checkpoints.summary, [], [])
    with pytest.raises(BadInput, match="events of this result were not kept"):
        write_trace(kept, tmp_path)
    assert list(tmp_path.iterdir()) == []
