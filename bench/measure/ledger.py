"""The ledger: every second of every slot in exactly one category (metrics.md 2). Slot-seconds; GPU-seconds on CUDA."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.measure.episodes import Course
from bench.measure.events import LaunchRecord, Stream
from bench.measure.recoveries import is_recovery
from bench.measure.saves import CONTROL_ARM
from bench.measure.slots import all_slots, wall
from bench.measure.struck_ledger import struck_ledger
from bench.measure.timeline import Flight, flights, writers_of
from bench.schema import SPAN_CATEGORY, LedgerRow

Totals = defaultdict[tuple[str | None, str], float]  # (arm, category) -> seconds


def ledger(launches: Sequence[LaunchRecord]) -> list[LedgerRow]:
    """The rows of all launches, one per (launch, slot, arm, category) that occurs.

    A slot's rows add up to its wall time by its node runner's clock, `unattributed` included. A slot whose runner
    recorded no begin or end has no known wall time, and no rows (see slots.slots_without_wall). Launches with faults
    and their twins: see struck_ledger.
    """
    endured = [launch for launch in launches if is_recovery(launch)]
    launches = [launch for launch in launches if not is_recovery(launch)]
    writers = writers_of(launches)
    controls = {launch.block: _plain_step_s(launch) for launch in launches if _is_control(launch)}
    rows = [
        row
        for launch in launches
        for row in launch_ledger(launch, flights(launch, writers), controls.get(launch.block, {}))
    ]
    return rows + [row for launch in endured for row in struck_ledger(Course.of(launch))]


def launch_ledger(
    launch: LaunchRecord, in_flight: Sequence[Flight], control_step_s: Mapping[str, float]
) -> list[LedgerRow]:
    """The rows of one launch. `control_step_s`: by slot, from the block's launch without saves (full design only)."""
    rows = []
    slots = launch.slots()
    for name in all_slots(launch):
        bounds = wall(launch, name)
        if bounds is None:
            continue
        streams = slots.get(name, [])
        account = _Account(streams, *bounds, _measured_until(streams))
        control = control_step_s.get(name) if launch.kind == "full" else None
        totals = account.totals(in_flight, control)
        rows += [LedgerRow(launch.index, name, arm, category, s) for (arm, category), s in totals.items()]
    return rows


def _measured_until(streams: Sequence[Stream]) -> float | None:
    return max((float(event["t"]) for stream in streams for event in stream.named("measured_end")), default=None)


def _is_control(launch: LaunchRecord) -> bool:
    return launch.kind == "full" and list(launch.launch["arms"]) == [CONTROL_ARM]


def _plain_step_s(launch: LaunchRecord) -> dict[str, float]:
    """Mean seconds of a plain step span, by slot."""
    found = {}
    for name, streams in launch.slots().items():
        durations = np.concatenate([(s.steps.t1 - s.steps.t0)[s.steps.use == "plain"] for s in streams])
        if len(durations):
            found[name] = float(durations.mean())
    return found


# --- one slot ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _SlotSteps:
    """The steps of a slot over all its incarnations, before the measured end."""

    t0: NDArray[np.float64]
    t1: NDArray[np.float64]
    counts: NDArray[np.bool_]  # the last execution of its number; others are replay
    cycle: NDArray[np.int64]
    control: NDArray[np.bool_]
    arm: NDArray[np.str_]


@dataclass
class _Account:
    """The account of one slot: its incarnations by start, its wall time, the end of its measured part (None: none)."""

    streams: Sequence[Stream]
    begin: float
    end: float
    measured_end: float | None
    _totals: Totals = field(default_factory=lambda: defaultdict(float))

    def totals(self, in_flight: Sequence[Flight], control_step_s: float | None) -> Totals:
        steps = self._steps()
        self._add_steps(steps)
        self._add_spans()
        shutdown_begin = self._add_starts()
        if shutdown_begin is not None:
            self._add(None, "shutdown", self.end - shutdown_begin)
        self._move_interference(steps, in_flight, control_step_s)
        self._add(None, "unattributed", self.end - self.begin - float(np.sum(list(self._totals.values()))))
        return self._totals

    def _add(self, arm: str | None, category: str, seconds: float) -> None:
        self._totals[arm or None, category] += seconds

    @property
    def _cut(self) -> float:
        """What begins here or later is shutdown."""
        return np.inf if self.measured_end is None else self.measured_end

    def _steps(self) -> _SlotSteps:
        def joined(name: str) -> NDArray[Any]:
            parts = [getattr(stream.steps, name) for stream in self.streams]
            return np.concatenate(parts) if parts else np.zeros(0)

        number, t0 = joined("step"), joined("t0")
        inside = t0 < self._cut
        _, last = np.unique(number[inside][::-1], return_index=True)
        counts = np.zeros(int(inside.sum()), dtype=np.bool_)
        counts[len(counts) - 1 - last] = True
        columns = (joined("cycle")[inside], joined("use")[inside] == "control", joined("arm")[inside])
        return _SlotSteps(t0[inside], joined("t1")[inside], counts, *columns)

    def _add_steps(self, steps: _SlotSteps) -> None:
        duration = steps.t1 - steps.t0
        for arm in np.unique(steps.arm):
            for category, mask in (("useful", steps.counts), ("replay", ~steps.counts)):
                chosen = mask & (steps.arm == arm)
                if chosen.any():
                    self._add(str(arm), category, float(duration[chosen].sum()))

    def _add_spans(self) -> None:
        for stream in self.streams:
            for span in stream.spans:
                if span["t0"] < self._cut and span["name"] in SPAN_CATEGORY:
                    self._add(span.get("arm"), SPAN_CATEGORY[span["name"]], span["t1"] - span["t0"])
            for span in stream.aborted:
                category = "aborted_step" if span["name"] == "step" else SPAN_CATEGORY.get(span["name"])
                if span["t0"] < self._cut and category is not None:
                    self._add(span.get("arm"), category, span["t1"] - span["t0"])

    def _add_starts(self) -> float | None:
        """Account for what lies before each incarnation's first step, and for spans that stayed open at its end.

        Returns where the shutdown begins; None: the slot never recorded an event.
        """
        if not self.streams:
            return None
        previous = self.begin
        ends = [*(stream.first_t for stream in self.streams[1:]), self.end]
        for stream, following in zip(self.streams, ends, strict=True):
            if stream.first_t >= self._cut:
                break
            self._add_start(stream, previous, "startup" if stream is self.streams[0] else "restart")
            previous = self._end_of(stream, min(following, self.end, self._cut))
        return previous if self.measured_end is None else self.measured_end

    def _add_start(self, stream: Stream, begin: float, category: str) -> None:
        """From `begin` to the first step (or to the last event, if there was none), less the spans within."""
        first_step = float(stream.steps.t0[0]) if len(stream.steps) else stream.last_t
        if stream.open_span is not None and not len(stream.steps):
            first_step = stream.open_span.t
        first_step = min(first_step, self._cut)
        spans = (*stream.spans, *stream.aborted)
        inside = [s["t1"] - s["t0"] for s in spans if s["t0"] < first_step and s["name"] in SPAN_CATEGORY]
        self._add(None, category, first_step - begin - float(sum(inside)))

    def _end_of(self, stream: Stream, following: float) -> float:
        """Where the incarnation's own time ends; a span that stayed open lasts until `following` begins."""
        open_span = stream.open_span
        if open_span is None or open_span.t >= self._cut:
            return stream.last_t
        category = "aborted_step" if open_span.name == "step" else SPAN_CATEGORY.get(open_span.name)
        if category is not None:
            self._add(None, category, following - open_span.t)
        return following

    def _move_interference(self, steps: _SlotSteps, in_flight: Sequence[Flight], control_step_s: float | None) -> None:
        """Move the extra time of steps during a write from useful to interference, where a control step is known.

        Steps stand in the order of time, so those that a write may touch are found by bisection.
        """
        duration, controls = steps.t1 - steps.t0, self._controls(steps)
        left = steps.counts.copy()  # no step is moved twice, even if two writes were in flight
        for flight in in_flight:
            control_s = controls.get(flight.cycle) if control_step_s is None else control_step_s
            first, last = np.searchsorted(steps.t1, flight.begin, "right"), np.searchsorted(steps.t0, flight.end)
            near = slice(int(first), int(last))
            during = left[near] & (steps.arm[near] == flight.arm)
            if control_s is None or not during.any():
                continue
            left[near] &= ~during
            extra_s = float((duration[near][during] - control_s).sum())
            self._add(flight.arm, "useful", -extra_s)
            self._add(flight.arm, "interference", extra_s)

    def _controls(self, steps: _SlotSteps) -> dict[int, float]:
        """The slot's mean control step of each cycle, s: the span alone, as `useful` counts spans alone."""
        cycle, duration = steps.cycle[steps.control], (steps.t1 - steps.t0)[steps.control]
        names, index = np.unique(cycle, return_inverse=True)
        means = np.bincount(index, duration, len(names)) / np.maximum(np.bincount(index, minlength=len(names)), 1)
        return dict(zip(names.tolist(), means.tolist(), strict=True))
