"""The ledger of a launch with faults, and of its twin: where each slot's time went (metrics.md 2).

Finished spans are what they are. The time between them belongs to the stretch that it lies in: before the first step,
in one of a recovery's parts, on a slot that has nothing to do, after the end. A slot's rows add up to its wall time
less the instrument's state checks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.measure.attempts import Attempt, Generation
from bench.measure.episodes import Course, Episode
from bench.measure.events import Event, Stream
from bench.measure.points import away_times, points, queues
from bench.measure.slots import all_slots, node_of, wall
from bench.measure.windows import Coverage, Label, Window, pieces, spans_of
from bench.schema import SPAN_CATEGORY, LedgerRow

_NEVER = float("inf")


def struck_ledger(course: Course) -> list[LedgerRow]:
    """The rows of one launch; a slot without a known wall time has none."""
    outages = _outages(course)
    rows = []
    for slot in all_slots(course.launch):
        bounds = wall(course.launch, slot)
        if bounds is not None:
            totals = _Slot(course, slot, outages, *bounds).totals()
            rows += [LedgerRow(course.launch.index, slot, *label, seconds) for label, seconds in totals.items()]
    return rows


# --- outages ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Outage:
    """A stretch in which the job did not go on: `begin` <= `detected` <= `stopped`, s; inf: it did not come to that."""

    begin: float
    detected: float
    stopped: float
    after: Generation | None  # what ended it
    tried: bool  # something was started anew

    def windows(self, slot: str) -> list[Window]:
        """Detect and stop, then restart until the slot's own first step; a slot that is left out idles instead."""
        first_step, rest = _NEVER, "restart" if self.tried else "shutdown"
        if self.after is not None:
            own = [each for each in self.after.attempts if each.slot == slot]
            first_step, rest = (float(own[0].steps.t0[0]), "restart") if own else (_NEVER, "idle")
        bounds = [self.begin, min(self.detected, first_step), min(self.stopped, first_step), first_step]
        categories = ("detect", "stop", rest)
        return [Window(a, b, (None, category)) for a, b, category in zip(bounds, bounds[1:], categories, strict=False)]


def _outages(course: Course) -> list[_Outage]:
    """Of faults that stopped the job, and of restarts that nothing explains; in order."""
    of_faults = [_of_episode(course, episode) for episode in course.episodes if episode.outcome != "tolerated"]
    unprovoked = set(map(id, course.unprovoked))
    alarms = [
        _of_alarm(earlier, later)
        for earlier, later in zip(course.generations, course.generations[1:], strict=False)
        if any(id(attempt) in unprovoked for attempt in later.attempts)
    ]
    return sorted(of_faults + alarms, key=lambda outage: outage.begin)


def _of_episode(course: Course, episode: Episode) -> _Outage:
    """A point without evidence lies where the next one with evidence does."""
    found = points(course, episode)
    started = min((attempt.begin for attempt in episode.started), default=_NEVER)
    stopped = found.stopped if found.stopped is not None else found.detected
    stopped = started if stopped is None else stopped
    detected = stopped if found.detected is None else found.detected
    return _Outage(episode.begin, detected, max(stopped, detected), episode.after, bool(episode.started))


def _of_alarm(earlier: Generation, later: Generation) -> _Outage:
    """From the last step that all ranks finished before it."""
    ends = earlier.ends[1]
    begin = float(ends[ends < later.begin].max(initial=earlier.first_step_end))
    return _Outage(begin, begin, begin, later, True)


# --- one slot ---------------------------------------------------------------------------------------------------------
class _Slot:
    """The account of one slot between `begin` and `end`, s."""

    def __init__(self, course: Course, slot: str, outages: Sequence[_Outage], begin: float, end: float) -> None:
        self.course, self.slot, self.outages = course, slot, outages
        self.begin, self.end = begin, end
        self.streams: list[Stream] = course.launch.slots().get(slot, [])
        self.attempts = [attempt for attempt in course.attempts if attempt.slot == slot]
        self.cut = self._cut()

    def totals(self) -> dict[Label, float]:
        totals: defaultdict[Label, float] = defaultdict(float)
        for label, seconds in self._finished():
            totals[label] += seconds
        checks = [span for stream in self.streams for span in stream.spans if span["name"] == "check"]
        coverage = self._coverage(checks)
        for piece in pieces(self._windows(), self.begin, self.end):
            totals[piece.label] += coverage.free(piece.begin, piece.end)
        check_s = sum(float(span["t1"] - span["t0"]) for span in checks)
        explained_s = float(np.sum(list(totals.values())))
        totals[None, "unattributed"] += self.end - self.begin - check_s - explained_s
        return dict(totals)

    def _cut(self) -> float:
        """What begins here or later is shutdown: the slot's own measured end, or the job's; inf: it did not come."""
        ends = {
            worker.slot: float(event["t"])
            for worker in self.course.launch.workers
            for event in worker.named("measured_end")
        }
        return ends.get(self.slot, max(ends.values(), default=_NEVER))

    # --- spans
    def _finished(self) -> Iterator[tuple[Label, float]]:
        for stream in self.streams:
            for span in self._counted(stream):
                yield (span.get("arm"), SPAN_CATEGORY[span["name"]]), float(span["t1"] - span["t0"])
        for attempt in self.attempts:
            steps = attempt.steps.between(-np.inf, self.cut)
            duration, kept = steps.t1 - steps.t0, steps.step <= self._kept(attempt)
            for arm in np.unique(steps.arm):
                for category, mask in (("useful", kept), ("replay", ~kept)):
                    chosen = mask & (steps.arm == arm)
                    if chosen.any():
                        yield (str(arm) or None, category), float(duration[chosen].sum())

    def _counted(self, stream: Stream) -> list[Event]:
        return [span for span in stream.spans if span["t0"] < self.cut and span["name"] in SPAN_CATEGORY]

    def _kept(self, attempt: Attempt) -> float:
        """The last of an attempt's steps that no later generation's rollback made worthless."""
        later = [generation for generation in self.course.generations if generation.begin > attempt.begin]
        resumed = [generation.resumed_step for generation in later]
        return min((step for step in resumed if step is not None), default=_NEVER)

    def _coverage(self, checks: Sequence[Event]) -> Coverage:
        t0, t1 = spans_of([*checks, *(span for stream in self.streams for span in self._counted(stream))])
        steps = [attempt.steps.between(-np.inf, self.cut) for attempt in self.attempts]
        return Coverage(
            np.concatenate([t0, *(each.t0 for each in steps)]), np.concatenate([t1, *(each.t1 for each in steps)])
        )

    # --- the time between them
    def _windows(self) -> Iterator[Window]:
        """In order of precedence."""
        yield Window(self.cut, _NEVER, (None, "shutdown"))
        yield from self._idle()
        for outage in self.outages:
            yield from outage.windows(self.slot)
        yield from self._aborted()
        yield from self._slowed()
        yield Window(self.begin, self._first_work(), (None, "startup"))
        yield Window(self._last_sign(), _NEVER, (None, "shutdown"))

    def _idle(self) -> Iterator[Window]:
        """The node away, or the job in a queue, or the process in reserve, or left out since a recovery."""
        yield from (Window(t0, t1, (None, "idle")) for t0, t1 in queues(self.course.launch))
        for runner in self.course.launch.runners:
            if runner.node == node_of(self.slot):
                yield from (Window(t0, t1, (None, "idle")) for t0, t1 in away_times(runner))
        for stream in self.streams:
            for event in stream.named("reserve"):
                yield Window(float(event["t"]), self._next_attempt(float(event["t"])), (None, "idle"))
        for outage in self.outages:
            if outage.after is not None and self.slot not in outage.after.slots:
                left_out = max(outage.stopped, outage.begin)
                yield Window(left_out, self._next_attempt(left_out), (None, "idle"))

    def _next_attempt(self, t: float) -> float:
        return min((attempt.begin for attempt in self.attempts if attempt.begin > t), default=_NEVER)

    def _slowed(self) -> Iterator[Window]:
        """What slow_rank adds before a step of its victim is part of that step, as it is for those who wait in it."""
        for fault in self.course.launch.faults:
            if fault["kind"] == "slow_rank" and f"{fault['node']}/{fault['local_rank']}" == self.slot:
                begin = float(fault["t"])
                yield Window(begin, self._next_attempt(begin), (None, "useful"))

    def _aborted(self) -> Iterator[Window]:
        """Spans that were left without their end. Of one in a process that was killed only its begin is on record."""
        for stream in self.streams:
            for span in stream.aborted:
                yield Window(float(span["t0"]), float(span["t1"]), _aborted_label(span["name"], span.get("arm")))
            if stream.open_span is not None:
                begin = stream.open_span.t
                yield Window(begin, self._next_attempt(begin), _aborted_label(stream.open_span.name, None))

    def _first_work(self) -> float:
        """When the first step that the slot finished began; of none the first that it began, or its last sign."""
        finished = [float(attempt.steps.t0[0]) for attempt in self.attempts if len(attempt.steps)]
        if finished:
            return min(finished)
        begun = [float(span["t0"]) for s in self.streams for span in s.aborted if span["name"] == "step"]
        begun += [s.open_span.t for s in self.streams if s.open_span is not None and s.open_span.name == "step"]
        return min(begun, default=self._last_sign() if self.streams else self.begin)

    def _last_sign(self) -> float:
        return max((stream.last_t for stream in self.streams), default=_NEVER)


def _aborted_label(name: str, arm: str | None) -> Label:
    return (arm or None, "aborted_step" if name == "step" else SPAN_CATEGORY.get(name, "unattributed"))
