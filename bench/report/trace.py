"""A launch as a trace for Perfetto or chrome://tracing: slots as tracks, spans nested, faults as instants over all.

The JSON object form of the Trace Event Format: "X" complete events, "i" instants, "C" counters, "M" names; times in
microseconds since the first event. Written event by event, so a large launch needs no memory of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from bench.errors import BadInput, near
from bench.measure.accounted import Accounted
from bench.measure.events import LaunchRecord, Stream
from bench.report.data import measured_launches

TraceEvent = dict[str, Any]

WRITES, RUNNER = 1000, 999  # tracks of a node: ranks from 0 on, the runner, the writes of rank r from 1000 (r + 1) on
COUNTERS = {
    "memory": ("host_bytes", "shm_bytes", "device_bytes"),
    "gpu": ("utilization_share", "power_w", "sm_clock_mhz"),
}
HIDDEN = ("attempt", "clock", "telemetry")  # instants that are shown otherwise, or say nothing on a time line
INSTANTS_WITH_SPAN = ("durable", "deleted")  # they carry t_begin: a span on the track of the writes
PLAIN = (str, int, float, bool, type(None))


def write_trace(result: Accounted, folder: Path, launch: int | None = None) -> Path:
    """trace_launch_K.json in `folder`, which exists; of the first measured launch by default. Raises BadInput."""
    record = _chosen(result, launch)
    path = folder / f"trace_launch_{record.index}.json"
    try:
        with path.open("w") as file:
            _write(file, record, result)
    except OSError as error:
        raise BadInput(f"out: {path} cannot be written ({error.strerror}); give out=FOLDER") from None
    return path


def _chosen(result: Accounted, launch: int | None) -> LaunchRecord:
    known = {str(each.index): each for each in result.launches if each.workers or each.runners}
    if not known:
        raise BadInput(
            "trace: the events of this result were not kept, so there is no trace; give a result with events"
        )
    if launch is None:
        preferred = [each for each in measured_launches(result) if str(each.index) in known]
        return preferred[0] if preferred else next(iter(known.values()))
    if str(launch) not in known:
        raise BadInput(f"launch: this result has no launch {launch} with events; {near(str(launch), known)}")
    return known[str(launch)]


def _write(file: TextIO, record: LaunchRecord, result: Accounted) -> None:
    about = {"scenario": result.summary.scenario, "launch": record.index, "clock": "monotonic, of node 0"}
    file.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n')
    separator = ""
    for event in trace_events(record):
        file.write(separator + json.dumps(event, separators=(",", ":"), allow_nan=False))
        separator = ",\n"
    file.write("\n]}\n")


def trace_events(record: LaunchRecord) -> Iterator[TraceEvent]:
    """All events of a launch, node by node and track by track."""
    streams = [*record.workers, *record.writers, *record.runners]
    zero = min((stream.first_t for stream in streams), default=0.0)
    yield from _names(record)
    for stream in (*record.workers, *record.runners):
        for event in (*_spans(stream), *_instants(stream)):
            yield _on(event, stream, zero)
    yield from _writes(record, zero)
    for fault in record.faults:
        yield _fault(fault, zero)


# --- names of the tracks
def _names(record: LaunchRecord) -> Iterator[TraceEvent]:
    nodes = sorted({stream.node for stream in (*record.workers, *record.writers, *record.runners)})
    for node in nodes:
        yield {"ph": "M", "name": "process_name", "pid": node, "tid": 0, "args": {"name": f"node {node}"}}
        yield {"ph": "M", "name": "process_sort_index", "pid": node, "tid": 0, "args": {"sort_index": node}}
    for stream in {stream.slot: stream for stream in record.workers}.values():
        yield _thread(stream.node, _track(stream), f"rank {stream.rank} (slot {stream.slot})")
    for node in {stream.node for stream in record.runners}:
        yield _thread(node, RUNNER, "node runner")


def _thread(node: int, track: int, name: str) -> TraceEvent:
    return {"ph": "M", "name": "thread_name", "pid": node, "tid": track, "args": {"name": name}}


def _track(stream: Stream) -> int:
    return RUNNER if stream.meta["role"] == "runner" else int(stream.meta["local_rank"])


# --- spans and instants of one process
def _on(event: TraceEvent, stream: Stream, zero: float) -> TraceEvent:
    """Placed on its track, with times in microseconds."""
    event["ts"] = _micros(event["ts"] - zero)
    if "dur" in event:
        event["dur"] = _micros(event["dur"])
    return event | {"pid": stream.node, "tid": event.pop("tid", _track(stream))}


def _micros(seconds: float) -> float:
    return round(max(seconds, 0.0) * 1e6, 3)


def _spans(stream: Stream) -> Iterator[TraceEvent]:
    steps = stream.steps
    columns = (steps.step.tolist(), steps.t0.tolist(), steps.t1.tolist(), steps.arm.tolist(), steps.use.tolist())
    for number, t0, t1, arm, use in zip(*columns, strict=True):
        yield _complete(f"step {number}", "step", t0, t1, {"arm": arm, "use": use})
    for span in stream.spans:
        yield _complete(_name(span), span["name"], span["t0"], span["t1"], _arguments(span))
        yield from _phases(span)
    if stream.open_span is not None:
        begin, end = stream.open_span.t, max(stream.last_t, stream.open_span.t)
        yield _complete(
            f"{stream.open_span.name} (never left)", stream.open_span.name, begin, end, {"unfinished": True}
        )


def _name(span: TraceEvent) -> str:
    return f"{span['name']} {span['arm']}" if span.get("arm") else str(span["name"])


def _complete(name: str, category: str, t0: float, t1: float, arguments: TraceEvent) -> TraceEvent:
    return {"ph": "X", "name": name, "cat": category, "ts": t0, "dur": max(t1 - t0, 0.0), "args": arguments}


def _phases(span: TraceEvent) -> Iterator[TraceEvent]:
    """Sub-phases within their save. They are on record in the node's own time, and begin where the save begins."""
    phases: Sequence[Any] = span.get("phases") or []
    if not phases:
        return
    inside = span["t0"] <= phases[0][1] <= span["t1"]
    shift = 0.0 if inside else span["t0"] - phases[0][1]
    end = span["t0"]
    for name, t0, t1 in sorted(phases, key=lambda phase: float(phase[1])):
        begin = min(max(t0 + shift, end), span["t1"])  # never outside of the save, never into the one before
        end = min(max(t1 + shift, begin), span["t1"])
        yield _complete(name, "phase", begin, end, {})


def _instants(stream: Stream) -> Iterator[TraceEvent]:
    for event in stream.instants:
        name = str(event["name"])
        if name in COUNTERS:
            readings = {kind: event[kind] for kind in COUNTERS[name] if isinstance(event.get(kind), int | float)}
            if readings:
                title = f"GPU {event['index']}" if name == "gpu" else name
                yield {"ph": "C", "name": title, "ts": float(event["t"]), "args": readings}
        elif name not in HIDDEN and not (name in INSTANTS_WITH_SPAN and "t_begin" in event):
            yield {"ph": "i", "s": "t", "name": name, "ts": float(event["t"]), "args": _arguments(event)}


def _arguments(event: TraceEvent) -> TraceEvent:
    left_out = ("kind", "name", "seq", "t", "t0", "t1", "t_begin", "phases")
    return {key: value for key, value in event.items() if key not in left_out and isinstance(value, PLAIN)}


# --- writes, which outlast their save
def _writes(record: LaunchRecord, zero: float) -> Iterator[TraceEvent]:
    """Writing and deleting, by rank, wherever it ran; writes at the same time get a track each."""
    by_slot: dict[tuple[int, int, int], list[TraceEvent]] = {}
    for stream in (*record.workers, *record.writers):
        key = (stream.node, int(stream.meta["local_rank"]), stream.rank)
        by_slot.setdefault(key, []).extend(_write_spans(stream))
    for (node, local_rank, rank), spans in by_slot.items():
        for lane, mine in enumerate(_lanes(spans)):
            track = WRITES * (1 + local_rank) + lane
            yield _thread(node, track, f"writes of rank {rank}{f' ({lane + 1})' if lane else ''}")
            for event in mine:
                moved = event | {"ts": _micros(event["ts"] - zero), "dur": _micros(event["dur"])}
                yield moved | {"pid": node, "tid": track}


def _write_spans(stream: Stream) -> Iterator[TraceEvent]:
    for event in stream.instants:
        if event["name"] in INSTANTS_WITH_SPAN and "t_begin" in event:
            name = "write" if event["name"] == "durable" else "delete"
            title = f"{name} {event.get('arm', '')}".strip()
            yield _complete(title, name, float(event["t_begin"]), float(event["t"]), _arguments(event))


def _lanes(spans: Iterable[TraceEvent]) -> list[list[TraceEvent]]:
    """Spans dealt out so that none begins before the one before it on its lane has ended."""
    lanes: list[list[TraceEvent]] = []
    for span in sorted(spans, key=lambda each: float(each["ts"])):
        free = next((lane for lane in lanes if lane[-1]["ts"] + lane[-1]["dur"] <= span["ts"]), None)
        if free is None:
            free = []
            lanes.append(free)
        free.append(span)
    return lanes


# --- faults
def _fault(fault: TraceEvent, zero: float) -> TraceEvent:
    node = int(fault.get("node") or 0)
    track = int(fault["local_rank"]) if fault.get("local_rank") is not None else RUNNER
    name = f"FAULT {fault['kind']}"
    about = _arguments(fault)
    place = {"pid": node, "tid": track, "ts": _micros(float(fault["t"]) - zero)}
    return {"ph": "i", "s": "g", "name": name, "cat": "fault", "args": about} | place
