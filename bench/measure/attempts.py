"""Attempts and generations: who ran together, in which call of the training function.

An attempt is one call of the training function in one process; a process has several where a layer restarts it in
place. A generation is the attempts, one a rank, that ran the job together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bench.measure.events import Event, LaunchRecord, Steps, Stream

Process = tuple[int, int, int]  # node, pid and start time name a process


def process_of(stream: Stream) -> Process:
    return stream.node, int(stream.meta["pid"]), int(stream.meta["pid_start"])


@dataclass(frozen=True)
class Attempt:
    """One call of the training function in one process. Times in s, of node 0's clock."""

    worker: Stream  # the whole process
    number: int  # of the calls in this process, from 0
    rank: int
    world_size: int
    begin: float  # entry
    end: float  # when the slot's next attempt begins; inf: there is none
    steps: Steps
    spans: tuple[Event, ...]  # finished ones, steps excepted
    instants: tuple[Event, ...]

    @property
    def slot(self) -> str:
        return self.worker.slot

    @property
    def process(self) -> Process:
        return process_of(self.worker)

    def named(self, name: str) -> list[Event]:
        return [event for event in self.instants if event["name"] == name]

    @property
    def loads(self) -> list[Event]:
        """Its loads of a checkpoint to resume from: the last one was it, those before it were found damaged."""
        return [span for span in self.spans if span["name"] == "load" and span.get("resume")]

    @property
    def ready(self) -> float | None:
        """The begin of its first load, or where it resumes from nothing when it had joined the others, s."""
        if self.loads:
            return float(self.loads[0]["t0"])
        joined = self.named("joined")
        return float(joined[0]["t"]) if joined else None

    @property
    def loaded(self) -> float | None:
        """The end of its last load, s; where there was nothing to load, when it was ready."""
        if self.loads:
            return float(self.loads[-1]["t1"])
        return self.ready if self.resumed_step == 0 else None

    @property
    def resumed_step(self) -> int | None:
        """Steps in the state it went on from; None if that is not on record."""
        if self.loads:
            return int(self.loads[-1]["step"])
        return 0 if len(self.steps) and self.steps.step[0] == 1 else None


def attempts(launch: LaunchRecord) -> list[Attempt]:
    """All attempts of the launch by slot and begin. A process that never entered the function has none."""
    found = []
    for streams in launch.slots().values():
        of_slot = sorted((each for stream in streams for each in _cut(stream)), key=lambda each: each.begin)
        ends = [*(each.begin for each in of_slot[1:]), np.inf]
        found += [replace(each, end=end) for each, end in zip(of_slot, ends, strict=False)]
    return found


def _cut(stream: Stream) -> list[Attempt]:
    """The stream's events by attempt; what an exception made an attempt leave belongs to the stream alone."""
    entries = stream.named("attempt")
    found = []
    for entry, following in zip(entries, [*entries[1:], None], strict=False):
        # Other events by their place in the file: what an abort hook tells is dated back, and written before this.
        first, after = int(entry["seq"]), np.inf if following is None else int(following["seq"])
        begin, end = float(entry["t"]), np.inf if following is None else float(following["t"])
        found.append(
            Attempt(
                worker=stream,
                number=int(entry["number"]),
                rank=int(entry["rank"]),
                world_size=int(entry["world_size"]),
                begin=begin,
                end=end,
                steps=stream.steps.between(begin, end),
                spans=tuple(span for span in stream.spans if first <= span["seq"] < after),
                instants=tuple(instant for instant in stream.instants if first <= instant["seq"] < after),
            )
        )
    return found


# --- generations ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Generation:
    """The attempts of all ranks that finished a first step together, by rank."""

    attempts: tuple[Attempt, ...]

    @cached_property
    def begin(self) -> float:
        """When the first of its attempts began, s."""
        return min(each.begin for each in self.attempts)

    @cached_property
    def first_step_end(self) -> float:
        """When the last rank had finished its first step, s."""
        return max(float(each.steps.t1[0]) for each in self.attempts)

    @property
    def world_size(self) -> int:
        return len(self.attempts)

    @property
    def slots(self) -> frozenset[str]:
        return frozenset(each.slot for each in self.attempts)

    @property
    def processes(self) -> frozenset[Process]:
        return frozenset(each.process for each in self.attempts)

    @property
    def resumed_step(self) -> int | None:
        """Steps in the state that it went on from; None if unknown, or if ranks differ."""
        told = {each.resumed_step for each in self.attempts}
        return told.pop() if len(told) == 1 else None

    @cached_property
    def ends(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The numbers of the steps that every rank finished, ascending, and when the last rank had, s."""
        number = np.concatenate([each.steps.step for each in self.attempts])
        t1 = np.concatenate([each.steps.t1 for each in self.attempts])
        step, position, count = np.unique(number, return_inverse=True, return_counts=True)
        end = np.full(len(step), -np.inf)
        np.maximum.at(end, position, t1)
        everywhere = count == self.world_size
        return step[everywhere], end[everywhere]

    def end_of(self, number: int) -> float | None:
        """When the last rank had finished that step, s; None: it did not come to it."""
        step, end = self.ends
        found = end[step == number]
        return float(found[0]) if len(found) else None


def generations(found: Iterable[Attempt], slack_s: float = 0.0) -> list[Generation]:
    """The generations among attempts, in order of their first steps.

    Ranks of one generation finish their first step in a collective, so these spans overlap, have one number, and their
    ranks are 0 ... world size - 1. A set that lacks a rank is no generation: that rank was lost before its first step's
    end. Nothing here rests on how a layer counts restarts. `slack_s`: how far apart clocks of nodes may be.
    """
    stepped = sorted((each for each in found if len(each.steps)), key=lambda each: float(each.steps.t1[0]))
    groups: list[list[Attempt]] = []
    for attempt in stepped:
        for group in reversed(groups):
            if _together(group, attempt, slack_s):
                group.append(attempt)
                break
        else:
            groups.append([attempt])
    whole = [group for group in groups if len(group) == group[0].world_size]
    return sorted(
        (Generation(tuple(sorted(group, key=lambda each: each.rank))) for group in whole),
        key=lambda generation: generation.first_step_end,
    )


def _together(group: Sequence[Attempt], attempt: Attempt, slack_s: float) -> bool:
    one = group[0]
    alike = attempt.world_size == one.world_size and attempt.steps.step[0] == one.steps.step[0]
    last_in = max(float(each.steps.t0[0]) for each in (*group, attempt))
    first_out = min(float(each.steps.t1[0]) for each in (*group, attempt))
    return alike and attempt.rank not in {each.rank for each in group} and last_in <= first_out + slack_s
