from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.measure.events import Stream, read_launch, read_launches, read_stream
from bench.measure.ledger import ledger
from bench.measure.saves import samples
from tests.measure.stories import Setting, in_place, loss_of, started
from tests.measure.streams import Event, File, Scenario, simulate, write_files, write_launch

SCENARIO = Scenario(cycles=3)


def worker_lines() -> list[str]:
    return simulate(SCENARIO).workers[0].text().splitlines(keepends=True)


def read(path: Path, content: str | bytes) -> Stream:
    file = path / "worker-n0-r0-1-1.jsonl"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    stream = read_stream(file)
    assert stream is not None
    return stream


def index_of_span(lines: list[str], name: str, skip: int = 0) -> int:
    found = [i for i, line in enumerate(lines) if '"kind":"span"' in line and f'"name":"{name}"' in line]
    return found[skip]


def test_a_whole_file_has_no_problems_and_keeps_every_event(tmp_path: Path) -> None:
    lines = worker_lines()
    stream = read(tmp_path, "".join(lines))
    assert stream.problems == {}
    assert stream.open_span is None
    spans = sum('"kind":"span"' in line for line in lines)
    assert len(stream.steps) + len(stream.spans) == spans
    assert len(stream.steps) > 20
    assert stream.steps.step.tolist() == list(range(1, len(stream.steps) + 1))


def test_a_torn_last_line_is_dropped_and_counted_even_if_it_is_whole_json(tmp_path: Path) -> None:
    text = "".join(worker_lines())
    for torn in (text[:-30], text[:-1]):
        stream = read(tmp_path, torn)
        assert stream.problems == {"torn": 1}


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 40,
        b"{}",
        b"[1,2]",
        b'{"kind":"span","name":"step"',
        b'{"kind":"span","seq":5,"t0":NaN,"t1":1,"name":"x"}',
    ],
)
def test_a_damaged_middle_line_is_dropped_and_counted_and_explains_its_missing_number(
    tmp_path: Path, garbage: bytes
) -> None:
    lines = [line.encode() for line in worker_lines()]
    at = index_of_span([line.decode() for line in lines], "step", 5)
    lines[at] = garbage + b"\n"
    stream = read(tmp_path, b"".join(lines))
    assert stream.problems == {"damaged": 1}


def test_two_damaged_lines_that_together_read_as_one_object_are_not_taken_for_an_event(tmp_path: Path) -> None:
    lines = worker_lines()
    at = index_of_span(lines, "step", 5)
    front, back = lines[at].split(',"t0"', 1)
    lines[at] = f'{front}\n"t0"{back}'
    assert read(tmp_path, "".join(lines)).problems["damaged"] == 2


def test_a_dropped_span_is_a_gap_and_leaves_its_begin_unclosed(tmp_path: Path) -> None:
    lines = worker_lines()
    del lines[index_of_span(lines, "save")]
    assert read(tmp_path, "".join(lines)).problems == {"gap": 1, "unclosed": 1}


def test_a_doubled_line_is_noticed(tmp_path: Path) -> None:
    lines = worker_lines()
    at = index_of_span(lines, "step", 3)
    lines.insert(at, lines[at])
    assert read(tmp_path, "".join(lines)).problems == {"doubled": 1}


def test_exchanged_lines_are_out_of_order(tmp_path: Path) -> None:
    lines = worker_lines()
    at = index_of_span(lines, "step", 3)
    lines[at], lines[at + 2] = lines[at + 2], lines[at]
    assert read(tmp_path, "".join(lines)).problems["out_of_order"] >= 1


def rewritten(change: Callable[[list[Event]], None]) -> str:
    """The worker's file with its events changed and numbered anew: problems that sequence numbers do not show."""
    events = [json.loads(line) for line in worker_lines()]
    change(events)
    return "".join(json.dumps(event | {"seq": number}) + "\n" for number, event in enumerate(events))


def steps_of(events: list[Event]) -> list[int]:
    return [i for i, event in enumerate(events) if event["kind"] == "span" and event["name"] == "step"]


def test_a_span_that_begins_inside_another_overlaps(tmp_path: Path) -> None:
    def lengthen(events: list[Event]) -> None:
        events[steps_of(events)[2]]["t1"] += 0.05

    assert read(tmp_path, rewritten(lengthen)).problems["overlap"] == 1


def test_a_span_recorded_twice_with_numbers_of_its_own_is_doubled(tmp_path: Path) -> None:
    def repeat(events: list[Event]) -> None:
        at = steps_of(events)[2]
        events.insert(at, dict(events[at]))

    assert read(tmp_path, rewritten(repeat)).problems == {"doubled": 1}


def test_a_span_that_ends_before_it_begins_is_out_of_order(tmp_path: Path) -> None:
    def turn(events: list[Event]) -> None:
        step = events[steps_of(events)[2]]
        step["t0"], step["t1"] = step["t1"], step["t0"]

    assert read(tmp_path, rewritten(turn)).problems["out_of_order"] >= 1


def test_a_begin_without_its_end_in_the_middle_is_unclosed(tmp_path: Path) -> None:
    def drop(events: list[Event]) -> None:
        del events[steps_of(events)[2]]

    assert read(tmp_path, rewritten(drop)).problems == {"unclosed": 1}


def test_a_begin_at_the_end_of_a_killed_process_is_an_open_span_and_no_problem(tmp_path: Path) -> None:
    lines = worker_lines()
    at = index_of_span(lines, "step", 7)
    begin = json.loads(lines[at - 1])
    stream = read(tmp_path, "".join(lines[:at]))
    assert stream.problems == {}
    assert stream.open_span is not None
    assert (stream.open_span.name, stream.open_span.t) == ("step", begin["t"])


def test_an_instant_may_be_dated_back(tmp_path: Path) -> None:
    lines = worker_lines()
    seq = json.loads(lines[-1])["seq"] + 1
    late = {"kind": "instant", "name": "durable", "t": 1001.0, "seq": seq}
    stream = read(tmp_path, "".join([*lines, json.dumps(late) + "\n"]))
    assert stream.problems == {}
    assert stream.last_t > 1001.0


def test_an_unknown_event_version_is_refused_with_a_clear_text(tmp_path: Path) -> None:
    lines = worker_lines()
    lines[0] = lines[0].replace('"version":1', '"version":99')
    with pytest.raises(ValueError, match="event version 99 is unknown"):
        read(tmp_path, "".join(lines))


@pytest.mark.parametrize("content", ["", "{", '{"kind":"me\n', '{"kind":"instant","name":"x","t":1,"seq":0}\n'])
def test_a_file_without_a_readable_first_line_is_no_stream(tmp_path: Path, content: str) -> None:
    path = tmp_path / "worker-n0-r0-1-1.jsonl"
    path.write_text(content)
    assert read_stream(path) is None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(["double", "drop", "swap", "tear"]))
def test_any_doubled_dropped_exchanged_or_torn_line_is_noticed(tmp_path: Path, data: st.DataObject, kind: str) -> None:
    lines = worker_lines()
    at = data.draw(st.integers(1, len(lines) - 3))  # the first line is the identity, the last line has no successor
    if kind == "double":
        lines.insert(at, lines[at])
    elif kind == "drop":
        del lines[at]
    elif kind == "swap":
        lines[at], lines[at + 1] = lines[at + 1], lines[at]
    else:
        lines = [*lines[:at], lines[at][: data.draw(st.integers(1, len(lines[at]) - 1))]]
    expected = {"double": "doubled", "drop": "gap", "swap": "out_of_order", "tear": "torn"}[kind]
    assert expected in read(tmp_path, "".join(lines)).problems


# --- launches ---------------------------------------------------------------------------------------------------------
def test_a_launch_is_read_by_role_with_one_stream_a_process(tmp_path: Path) -> None:
    write_launch(tmp_path / "7", replace(SCENARIO, nodes=2, index=7))
    launch = read_launch(tmp_path / "7")
    assert (len(launch.workers), len(launch.writers), len(launch.runners)) == (4, 4, 2)
    assert list(launch.slots()) == ["0/0", "0/1", "1/0", "1/1"]
    assert launch.world_size == 4
    assert launch.complete
    assert launch.segment(-1) is None


def test_launches_are_read_in_the_order_of_their_index(tmp_path: Path) -> None:
    for index in (10, 2):
        write_launch(tmp_path / str(index), replace(SCENARIO, index=index))
    assert [launch.index for launch in read_launches(tmp_path)] == [2, 10]


def test_a_launch_that_was_skipped_has_no_streams(tmp_path: Path) -> None:
    write_files(tmp_path, SCENARIO.launch() | {"status": "skipped", "reason": "budget"}, [])
    launch = read_launch(tmp_path)
    assert launch.skipped
    assert not launch.complete
    assert launch.world_size == 0


def test_times_of_another_node_are_moved_to_node_0s_clock(tmp_path: Path) -> None:
    scenario = replace(SCENARIO, nodes=2, ranks_per_node=1)
    write_launch(tmp_path / "a", scenario)
    write_launch(tmp_path / "b", replace(scenario, node_offset_s=(0.0, -5000.25)))
    same, shifted = read_launch(tmp_path / "a"), read_launch(tmp_path / "b")
    raw = read_stream(tmp_path / "b" / "events" / shifted.workers[1].name)
    assert raw is not None
    assert raw.steps.t0[0] - shifted.workers[1].steps.t0[0] == pytest.approx(5000.25)
    assert shifted.workers[1].steps.t1 == pytest.approx(same.workers[1].steps.t1, abs=1e-9)
    for before, after in zip(same.workers[1].spans, shifted.workers[1].spans, strict=True):
        assert (before["t0"], before["t1"]) == pytest.approx((after["t0"], after["t1"]), abs=1e-9)
    durable = [stream.named("durable")[0]["t_begin"] for stream in (same.writers[1], shifted.writers[1])]
    assert durable[0] == pytest.approx(durable[1], abs=1e-9)


def test_the_offset_is_interpolated_and_its_drift_adds_to_the_uncertainty(tmp_path: Path) -> None:
    scenario = replace(SCENARIO, nodes=2, ranks_per_node=1, node_offset_s=(0.0, 10.0), node_drift_s=0.002)
    write_launch(tmp_path, scenario)
    launch = read_launch(tmp_path)
    readings = launch.runners[1].named("clock")
    middle = simulate(scenario).workers[1].events[-1]["t"]  # measured_end, on node 1's own clock
    before, after = (reading["t"] for reading in readings)  # aligned: own time + offset
    own_before, own_after = before - 10.0, after - 10.002
    expected = 10.0 + 0.002 * (middle - own_before) / (own_after - own_before)
    assert launch.workers[1].named("measured_end")[0]["t"] - middle == pytest.approx(expected, abs=1e-9)
    assert launch.uncertainty_s == pytest.approx(1e-5 + 0.002)


def test_a_node_whose_clock_was_never_read_makes_the_uncertainty_unknown(tmp_path: Path) -> None:
    scenario = replace(SCENARIO, nodes=2, ranks_per_node=1)
    job = simulate(scenario)
    for runner in job.runners:
        runner.events = [e for e in runner.events if e.get("name") != "clock"]
    write_files(tmp_path, scenario.launch(), job.files)
    assert read_launch(tmp_path).uncertainty_s is None


def big_launch(folder: Path, slots: int, cycles: int) -> int:
    """A launch with steps by the thousand; returns its number of events."""
    scenario = Scenario(
        nodes=8, ranks_per_node=slots // 8, cycles=cycles, control_steps=60, after_steps=60, settle_steps=2
    )
    job = write_launch(folder, scenario)
    return sum(len(file.events) for file in job.files)


def account(folder: Path) -> float:
    start = time.process_time()
    launches = [read_launch(folder)]
    assert samples(launches)
    assert ledger(launches)
    return time.process_time() - start


def test_reading_and_accounting_takes_a_few_microseconds_an_event(tmp_path: Path) -> None:
    """64 slots x 20,000 events are to take less than 10 s, so 7.8 microseconds each; here a smaller launch, twice."""
    events = big_launch(tmp_path, 16, 6)
    assert events > 50_000
    assert min(account(tmp_path) for _ in range(2)) / events < 7.8e-6


def test_files_keep_to_the_recorders_format() -> None:
    """The generator's first line has what bench.record writes."""
    file = File("worker", SCENARIO, 0, 1, 1.0)
    needed = {"kind", "version", "role", "launch", "node", "local_rank", "rank", "world_size", "pid", "mono", "wall"}
    assert needed <= file.events[0].keys()


# --- restarts and faults
def test_losses_come_with_the_steps_exactly_and_a_missing_one_is_no_number(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(4)
    worker = story.ranks[0]
    worker.span("step", story.t, story.t + 0.1, step=5, arm="a", cycle=0, segment=0, use="plain", loss=None)
    stream = story.write(tmp_path).workers[0]
    assert stream.steps.loss[:4].tolist() == [loss_of(step) for step in (1, 2, 3, 4)]
    assert np.isnan(stream.steps.loss[4])


def test_a_step_that_an_exception_left_is_no_step(tmp_path: Path) -> None:
    launch = in_place(Setting(layer="in_process"), 6, 4).write(tmp_path)
    for worker in launch.workers:
        assert worker.steps.step.tolist() == [1, 2, 3, 4, 5, 6, 5, 6, 7, 8, 9, 10, 11, 12]
        (aborted,) = worker.aborted
        assert (aborted["name"], aborted["step"]) == ("step", 7)
        assert worker.problems == {}


def test_a_save_that_an_exception_left_is_no_save(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(4)
    story.ranks[0].span("save", story.t, story.t + 0.2, arm="a", save=1, step=4, aborted=True)
    stream = story.write(tmp_path).workers[0]
    assert [span["save"] for span in stream.spans if span["name"] == "save"] == [0]
    assert [span["name"] for span in stream.aborted] == ["save"]


def test_a_span_that_a_restart_in_place_cut_off_lasts_until_that_restart_and_is_no_problem(tmp_path: Path) -> None:
    """An asynchronous exception may come before the span's end could be written."""
    story = started(Setting(layer="in_process"))
    story.steps(6)
    begin = story.t
    for file in story.ranks:
        file.begin("step", begin)
    story.t += 1.5
    story.attempt(story.ranks, 4)
    story.steps(8)
    for worker in story.write(tmp_path).workers:
        assert worker.problems == {}
        assert [(s["name"], s["t0"], s["t1"]) for s in worker.aborted] == [("step", begin, begin + 1.5)]
        assert worker.open_span is None


def test_a_span_without_an_end_is_a_problem_where_nothing_was_restarted(tmp_path: Path) -> None:
    story = started(Setting())
    story.ranks[0].begin("step", story.t)
    story.steps(2)
    assert story.write(tmp_path).workers[0].problems == {"unclosed": 1}


def test_faults_are_read_in_order_and_in_node_0s_time(tmp_path: Path) -> None:
    story = started(Setting(nodes=2, node_offset_s=(0.0, 77.5)))
    struck = []
    for victim in (story.ranks[3], story.ranks[0]):
        story.t += 1.0
        struck.append(story.t)
        story.strike("exception", victim)
    launch = story.write(tmp_path)
    assert [fault["id"] for fault in launch.faults] == ["f0", "f1"]
    assert [fault["t"] for fault in launch.faults] == pytest.approx(struck)
    assert launch.faults[0]["mono"] == pytest.approx(struck[0] - 77.5)


LATE = '{"id": "f9", "kind": "x", "at": "step", "node": 0, "mono": "a", "step": 1}'


@pytest.mark.parametrize("text", ["", "{", '{"id": "f9"}', "[]", LATE])
def test_a_damaged_record_of_a_fault_is_named(tmp_path: Path, text: str) -> None:
    started(Setting()).write(tmp_path)
    (tmp_path / "1" / "faults" / "f9.json").write_text(text)
    launch = read_launch(tmp_path / "1")
    assert (launch.faults, launch.unreadable) == ([], ["faults/f9.json"])


def test_processes_of_a_slot_come_by_start_whatever_ranks_they_had(tmp_path: Path) -> None:
    """An elastic agent may number ranks anew when it restarts them."""
    story = started(Setting(nodes=2))
    story.steps(6)
    story.t += 1
    files = [story.process(slot) for slot in story.slots]
    for file, rank in zip(files, (2, 3, 0, 1), strict=True):
        file.events[0]["rank"] = rank
    story.attempt(files, 4)
    for streams in story.write(tmp_path).slots().values():
        assert [stream.first_t for stream in streams] == sorted(stream.first_t for stream in streams)
        assert len(streams) == 2


def test_a_launch_with_faults_is_complete_when_those_who_were_left_came_to_the_end(tmp_path: Path) -> None:
    shrunk = in_place(Setting(layer="in_process", ranks_per_node=3), 6, 4, victim=1)
    assert shrunk.write(tmp_path).complete
    shrunk.end = "deadline"
    assert not shrunk.write(tmp_path).complete
