"""Reading the event files of a launch: what is damaged is dropped and counted, never repaired.

The format is described in bench.schema. Steps, nearly all of a file, become arrays at once; other events stay dicts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bench.measure.clocks import Clocks, NodeClock
from bench.measure.order import Event, interrupted, problems
from bench.schema import ENDURING, EVENT_VERSION, Role

__all__ = ["Event", "LaunchRecord", "OpenSpan", "Steps", "Stream", "read_launch", "read_launches", "read_stream"]


@dataclass(frozen=True)
class Steps:
    """The finished steps of one file, in its order: arrays of one length. Times in s; -1: no such number."""

    step: NDArray[np.int64]
    t0: NDArray[np.float64]
    t1: NDArray[np.float64]
    cycle: NDArray[np.int64]
    segment: NDArray[np.int64]
    use: NDArray[np.str_]
    arm: NDArray[np.str_]  # "": the step belongs to no arm
    loss: NDArray[np.float64]  # of the job; NaN: not on record, or not finite

    def __len__(self) -> int:
        return len(self.step)

    @classmethod
    def of(cls, spans: Sequence[Event]) -> Steps:
        def number(name: str) -> NDArray[np.int64]:
            return np.array([-1 if (v := span.get(name)) is None else v for span in spans], dtype=np.int64)

        def time(name: str) -> NDArray[np.float64]:
            return np.array([span[name] for span in spans], dtype=np.float64)

        def text(name: str) -> NDArray[np.str_]:
            return np.array([span.get(name) or "" for span in spans], dtype=np.str_)

        loss = np.array([np.nan if (v := span.get("loss")) is None else v for span in spans], dtype=np.float64)
        numbers = (number("cycle"), number("segment"), text("use"), text("arm"))
        return cls(number("step"), time("t0"), time("t1"), *numbers, loss)

    def between(self, begin: float, end: float) -> Steps:
        """The steps that began in [begin, end)."""
        mask = (self.t0 >= begin) & (self.t0 < end)
        return Steps(**{column.name: getattr(self, column.name)[mask] for column in fields(self)})


@dataclass(frozen=True)
class OpenSpan:
    """A span that the process had entered and not left when its file ends."""

    name: str
    t: float


@dataclass(frozen=True)
class Stream:
    """One event file: one process incarnation. Times in seconds of the node's clock, or node 0's once aligned."""

    name: str
    meta: Event
    steps: Steps
    spans: list[Event]  # all finished spans but steps
    aborted: list[Event]  # spans, steps among them, that an exception left or that a restart cut off
    instants: list[Event]
    open_span: OpenSpan | None
    first_t: float
    last_t: float  # of the last event that is on record
    problems: dict[str, int]  # only what occurred; keys of bench.measure.order.PROBLEMS

    @property
    def node(self) -> int:
        return int(self.meta["node"])

    @property
    def slot(self) -> str:
        return f"{self.node}/{self.meta['local_rank']}"

    @property
    def rank(self) -> int:
        """-1 for a runner, which is no rank."""
        return int(self.meta.get("rank", -1))

    def named(self, name: str) -> list[Event]:
        return [event for event in self.instants if event["name"] == name]


# --- one file ---------------------------------------------------------------------------------------------------------
def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no measured value")


_decode = json.JSONDecoder(parse_constant=_refuse).decode
_NUMBER = (float, int)


def _well_formed(event: Any) -> bool:
    """Whether a line is an event with all that accounting relies on. Called for every line: kept free of loops."""
    if type(event) is not dict or type(event.get("seq")) is not int:
        return False
    kind = event.get("kind")
    if kind == "span":
        timed = type(event.get("t0")) in _NUMBER and type(event.get("t1")) in _NUMBER
        return timed and type(event.get("name")) is str and (event["name"] != "step" or type(event.get("step")) is int)
    if kind == "begin" or kind == "instant":
        return type(event.get("t")) in _NUMBER and type(event.get("name")) is str
    return kind == "meta" and type(event.get("mono")) in _NUMBER


def _parse(lines: Sequence[bytes]) -> list[Event]:
    """The well-formed events among `lines`, in order."""
    try:  # all lines as one array: a third faster, and right whenever it yields as many events as there are lines
        events = _decode((b"[" + b",".join(lines) + b"]").decode())
        if len(events) == len(lines) and all(map(_well_formed, events)):
            return list(events)
    except ValueError:
        pass
    parsed = (_parse_line(line) for line in lines)
    return [event for event in parsed if event is not None]


def _parse_line(line: bytes) -> Event | None:
    try:
        event = _decode(line.decode())
    except ValueError:
        return None
    return event if _well_formed(event) else None


def read_stream(path: Path) -> Stream | None:
    """Read one file; None if not even its first line (the identity of the process) is readable.

    Raises ValueError for an unknown event version.
    """
    *lines, rest = path.read_bytes().split(b"\n")
    events = _parse(lines)
    if not events or events[0]["kind"] != "meta":
        return None
    meta = events[0]
    if meta.get("version") != EVENT_VERSION:
        raise ValueError(
            f"{path.name}: event version {meta.get('version')!r} is unknown, this suite reads {EVENT_VERSION}; "
            "use the suite that wrote the result"
        )
    damaged = len(lines) - len(events)
    spans = [event for event in events if event["kind"] == "span"]
    instants = [event for event in events if event["kind"] == "instant"]
    finished = [span for span in spans if not span.get("aborted")]
    aborted = [span for span in spans if span.get("aborted")]
    if sum(instant["name"] == "attempt" for instant in instants) > 1:
        aborted = sorted(aborted + interrupted(events), key=lambda span: float(span["t0"]))
    return Stream(
        name=path.name,
        meta=meta,
        steps=Steps.of([span for span in finished if span["name"] == "step"]),
        spans=[span for span in finished if span["name"] != "step"],
        aborted=aborted,
        instants=instants,
        open_span=_open_span(events),
        first_t=float(meta["mono"]),
        last_t=max(map(_time, (meta, *spans[-1:], *instants, events[-1]))),  # an instant may be dated back
        problems=problems(events, damaged) | ({"torn": 1} if rest else {}),
    )


def _time(event: Event) -> float:
    kind = event["kind"]
    return float(event["t1"] if kind == "span" else event["mono"] if kind == "meta" else event["t"])


def _open_span(events: Sequence[Event]) -> OpenSpan | None:
    for event in reversed(events):
        if event["kind"] == "begin":
            return OpenSpan(event["name"], float(event["t"]))
        if event["kind"] == "span" or event.get("name") == "attempt":
            return None
    return None


# --- in node 0's time -------------------------------------------------------------------------------------------------
def _aligned(stream: Stream, clock: NodeClock | None) -> Stream:
    """The stream in node 0's time. Sub-phases keep the node's time: only their durations are used."""
    if clock is None or not any(clock.offset_s):
        return stream

    steps, open_span = stream.steps, stream.open_span
    return replace(
        stream,
        steps=replace(steps, t0=clock.align(steps.t0), t1=clock.align(steps.t1)),
        spans=[clock.moved(span) for span in stream.spans],
        aborted=[clock.moved(span) for span in stream.aborted],
        instants=[clock.moved(instant) for instant in stream.instants],
        open_span=replace(open_span, t=clock.align_one(open_span.t)) if open_span else None,
        first_t=clock.align_one(stream.first_t),
        last_t=clock.align_one(stream.last_t),
    )


# --- a launch ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LaunchRecord:
    """One launch as it is on disk; all times in node 0's clock."""

    launch: dict[str, Any]  # launch.json
    workers: list[Stream] = field(default_factory=list)  # by slot, then by start
    writers: list[Stream] = field(default_factory=list)
    runners: list[Stream] = field(default_factory=list)
    uncertainty_s: float | None = 0.0  # of times compared across nodes; None: a node's clock was never read
    unreadable: list[str] = field(default_factory=list)  # event files without a first line, damaged fault records
    faults: list[Event] = field(default_factory=list)  # records of faults that struck, by `t`, the moment before it

    @property
    def index(self) -> int:
        return int(self.launch["index"])

    @property
    def occasion(self) -> int:
        return int(self.launch["occasion"])

    @property
    def block(self) -> tuple[int, int]:
        """(occasion, block): launches of one block are paired."""
        return self.occasion, int(self.launch["block"])

    @property
    def kind(self) -> str:
        return str(self.launch["kind"])

    @property
    def world_size(self) -> int:
        """Ranks of the launch, by what its workers say; 0 if none ever said anything."""
        return max((int(worker.meta["world_size"]) for worker in self.workers), default=0)

    @property
    def skipped(self) -> bool:
        """Never started, because it no longer fitted into the budget."""
        return self.launch.get("status") == "skipped"

    @property
    def left_in_queue(self) -> bool:
        """The engine was asked to start the job again, and was not given the time, or did not do it."""
        relaunches = self.launch.get("relaunches") or []
        return bool(relaunches) and "back" not in relaunches[-1]

    @property
    def complete(self) -> bool:
        """Every rank came to the end of the measured part; after faults, every rank that there still was."""
        ended = {worker.slot for worker in self.workers if worker.named("measured_end")}
        if self.kind in ENDURING:
            return bool(ended) and self.launch.get("end") == "completed"
        return self.world_size > 0 and len(ended) == self.world_size

    def segment(self, index: int) -> dict[str, Any] | None:
        segments: Sequence[dict[str, Any]] = self.launch["segments"]
        return segments[index] if 0 <= index < len(segments) else None

    def slots(self) -> dict[str, list[Stream]]:
        """The incarnations of every slot, by start."""
        found: dict[str, list[Stream]] = {}
        for worker in self.workers:
            found.setdefault(worker.slot, []).append(worker)
        return found


def read_launch(folder: Path) -> LaunchRecord:
    """Read launch.json, events/*.jsonl and faults/*.json of a launch. Raises ValueError (unknown version), OSError."""
    launch = json.loads((folder / "launch.json").read_text())
    streams: dict[Role, list[Stream]] = {"worker": [], "writer": [], "runner": []}
    unreadable = []
    for path in sorted((folder / "events").glob("*.jsonl")):
        stream = read_stream(path)
        if stream is None:
            unreadable.append(path.name)
        else:
            streams[stream.meta["role"]].append(stream)
    clocks = Clocks.of([runner.meta | {"clock": runner.named("clock")} for runner in streams["runner"]])
    by_start = {
        role: sorted((_aligned(s, clocks.at(s.node, s.meta["wall"])) for s in found), key=_by_slot)
        for role, found in streams.items()
    }
    faults, damaged = _read_faults(folder / "faults", clocks)
    uncertainty_s = clocks.uncertainty_s({stream.node for found in streams.values() for stream in found})
    found = (by_start["worker"], by_start["writer"], by_start["runner"])
    return LaunchRecord(launch, *found, uncertainty_s, unreadable + damaged, faults)


def _by_slot(stream: Stream) -> tuple[int, int, float]:
    return stream.node, int(stream.meta["local_rank"]), stream.first_t


def _read_faults(folder: Path, clocks: Clocks) -> tuple[list[Event], list[str]]:
    """The records of faults, each with `t` in node 0's time, in order; and the names of those that cannot be read."""
    found, damaged = [], []
    for path in sorted(folder.glob("*.json")):
        fault = _parse_fault(path)
        if fault is None:
            damaged.append(f"faults/{path.name}")
            continue
        clock, t = clocks.at(int(fault["node"]), fault.get("wall")), float(fault["mono"])
        found.append(fault | {"t": t if clock is None else clock.align_one(t)})
    return sorted(found, key=lambda fault: float(fault["t"])), damaged


def _parse_fault(path: Path) -> Event | None:
    try:
        fault = _decode(path.read_text())
    except ValueError:
        return None
    whole = type(fault) is dict and {"id", "kind", "at", "node", "mono", "step"} <= fault.keys()
    return dict(fault) if whole and type(fault["mono"]) in _NUMBER else None


def read_launches(folder: Path) -> list[LaunchRecord]:
    """All launches of a result's `launches` folder, by index."""
    return sorted((read_launch(path.parent) for path in folder.glob("*/launch.json")), key=lambda record: record.index)
