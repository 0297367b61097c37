"""Episodes: a fault, those that struck before the job stepped again, and what came of it (metrics.md 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np

from bench.measure.attempts import Attempt, Generation, attempts, generations
from bench.measure.events import Event, LaunchRecord
from bench.schema import RecoveryOutcome


@dataclass(frozen=True)
class Episode:
    """Times in s. It lasts from its first fault to the next episode's, or to the end of the launch."""

    number: int  # in the launch, from 0
    faults: tuple[Event, ...]  # records, in order; at least one
    begin: float  # the first fault strikes
    end: float  # the next episode begins; inf: there is none
    before: Generation | None  # the generation that was struck; None: no step had been finished
    after: Generation | None  # the first one that began after the fault and finished a step
    started: tuple[Attempt, ...]  # attempts that began after the fault and before `after` had finished its first step
    fault_step: int  # steps that the job had finished when it was struck
    finished: bool  # the job came to its last step after the fault, with all ranks that it had then
    went_on: bool  # the generation that was struck finished a further step, or the job's last one
    split: bool = False  # groups went on by themselves, each as a job of its own, so that none of them is `after`

    @property
    def outcome(self) -> RecoveryOutcome:
        if self.split:
            return "not_recovered"
        if self.after is not None:
            return "recovered"
        if self.started:
            return "recovered" if self.finished else "not_recovered"
        lasted = self.finished or not np.isinf(self.end)
        return "tolerated" if self.went_on and lasted else "not_recovered"

    @cached_property
    def until(self) -> float:
        """When the job stepped again; the episode's end if it did not, s."""
        return self.end if self.after is None else self.after.first_step_end

    @property
    def attempts(self) -> int:
        """How many times the job was started anew, by the slot that began most often."""
        by_slot: dict[str, int] = {}
        for attempt in self.started:
            by_slot[attempt.slot] = by_slot.get(attempt.slot, 0) + 1
        return max(by_slot.values(), default=0)


@dataclass(frozen=True)
class Course:
    """How a launch went."""

    launch: LaunchRecord
    attempts: list[Attempt]
    generations: list[Generation]
    episodes: list[Episode]

    @classmethod
    def of(cls, launch: LaunchRecord) -> Course:
        found = attempts(launch)
        formed = generations(found, launch.uncertainty_s or 0.0)
        return cls(launch, found, formed, _episodes(launch.faults, found, formed))

    @cached_property
    def unprovoked(self) -> list[Attempt]:
        """Attempts in place of others that no fault explains: a layer that restarted a healthy job."""
        first: dict[str, float] = {}
        for each in self.attempts:  # of a slot by begin
            first.setdefault(each.slot, each.begin)
        return [
            attempt
            for attempt in self.attempts
            if attempt.begin > first[attempt.slot]
            and not any(episode.begin < attempt.begin <= episode.until for episode in self.episodes)
        ]

    @property
    def false_alarms(self) -> int:
        """Restarts without a fault, by the slot that had most."""
        slots = [attempt.slot for attempt in self.unprovoked if not self._regrows(attempt)]
        return max(map(slots.count, slots), default=0)

    def _regrows(self, attempt: Attempt) -> bool:
        """Takes back in what a recovery had gone on without: the end of that fault's story, and no alarm."""
        before = [g for g in self.generations if g.begin < attempt.begin and not any(a is attempt for a in g.attempts)]
        return bool(before) and attempt.world_size > before[-1].world_size


def _episodes(faults: Sequence[Event], found: Sequence[Attempt], formed: Sequence[Generation]) -> list[Episode]:
    groups: list[list[Event]] = []
    for fault in faults:
        if groups and not _stepped_again(groups[-1], float(fault["t"]), found, formed):
            groups[-1].append(fault)
        else:
            groups.append([fault])
    begins = [float(group[0]["t"]) for group in groups]
    return [
        _episode(number, group, end, found, formed)
        for number, (group, (_, end)) in enumerate(zip(groups, pairwise([*begins, np.inf]), strict=True))
    ]


def _stepped_again(group: Sequence[Event], t: float, found: Sequence[Attempt], formed: Sequence[Generation]) -> bool:
    """Whether the job finished a step between the last fault of `group` and `t`, on what it had started by then."""
    first, last = float(group[0]["t"]), float(group[-1]["t"])
    if any(first < attempt.begin < t for attempt in found):
        return any(last < generation.first_step_end < t for generation in formed if generation.begin > first)
    before = _before(first, formed)
    return before is not None and _further_step(before, _told(group, before), last, t)


def _before(t: float, formed: Sequence[Generation]) -> Generation | None:
    earlier = [generation for generation in formed if generation.first_step_end <= t]
    return earlier[-1] if earlier else None


def _further_step(generation: Generation, number: int, begin: float, end: float) -> bool:
    """Whether all its ranks finished a step above `number` between two moments."""
    step, t1 = generation.ends
    return bool(((step > number) & (t1 > begin) & (t1 < end)).any())


def _episode(
    number: int, group: Sequence[Event], end: float, found: Sequence[Attempt], formed: Sequence[Generation]
) -> Episode:
    begin, last = float(group[0]["t"]), float(group[-1]["t"])
    before = _before(begin, formed)
    after = next((g for g in formed if g.begin > begin and last < g.first_step_end < end), None)
    until = end if after is None else after.first_step_end
    started = tuple(attempt for attempt in found if begin < attempt.begin < until)
    struck = before.attempts if before is not None else ()
    told = _told(group, before)
    ended = bool(struck) and all(_measured_end(attempt) > begin for attempt in struck)
    went_on = ended or (before is not None and _further_step(before, told, begin, end))
    finished = _finished(started or struck, begin) if after is None else _finished(after.attempts, begin)
    split = after is not None and _fell_apart([g for g in formed if begin < g.begin and g.first_step_end < end])
    after = None if split else after
    return Episode(number, tuple(group), begin, end, before, after, started, told, finished, went_on, split)


def _fell_apart(formed: Sequence[Generation]) -> bool:
    """Whether two of the generations that one fault gave rise to share no slot."""
    return any(one.slots.isdisjoint(other.slots) for one, other in combinations(formed, 2))


def _told(group: Sequence[Event], before: Generation | None) -> int:
    """Steps finished when the first fault struck: as victims told, and as the steps show.

    A fault in a recovery tells of the steps of its own attempt, and one that strikes a node from outside comes later
    than its rank asked for it.
    """
    told = max(int(fault["step"]) for fault in group)
    if before is None:
        return told
    step, end = before.ends
    return int(max([told, *step[end <= float(group[0]["t"])].tolist()]))


def _finished(of: Sequence[Attempt], begin: float) -> bool:
    """Whether attempts of all ranks came to the job's last step after `begin`."""
    ended = [attempt for attempt in of if _measured_end(attempt) > begin]
    ranks = {attempt.rank for attempt in ended}
    return bool(ended) and ranks == set(range(ended[-1].world_size))


def _measured_end(attempt: Attempt) -> float:
    """When it had come to its last step and drained, s; -inf: it did not."""
    return max((float(event["t"]) for event in attempt.named("measured_end")), default=-np.inf)
