"""Monte Carlo of a job that saves, fails and recovers: the reference where the closed forms break.

What it has that they have not: gaps between failures of any kind, classes of failures with their own recovery and their
own newest usable checkpoint, recoveries that fail and fall back, spare nodes that run out. Writes are in flight while
the job computes, and a failure loses the one it meets.

Vectorised over replicates: one pass of the loop takes every replicate from the start of its running time to its next
failure, however many saves lie between. A pass takes about 0.2 ms for 1,000 replicates and memory
is some MB.
Times are wall seconds from the job's start, work is seconds of useful work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import gamma, inf

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BLOCK = 128  # failures whose gaps and classes are drawn at once: 2 MB for 1,000 replicates


@dataclass(frozen=True)
class Gaps:
    """Time between failures of the whole job, scaled to its MTBF: a renewal process that begins with the job.

    `shape` 1: exponential (without memory); else Weibull. `trace`: gaps in any unit, resampled with replacement.
    """

    shape: float = 1.0
    trace: tuple[float, ...] = ()

    def draw(self, rng: np.random.Generator, mtbf_s: float, size: tuple[int, int]) -> Floats:
        drawn: Floats
        if self.trace:
            drawn = rng.choice(np.asarray(self.trace) / np.mean(self.trace), size=size)
        elif self.shape == 1.0:
            drawn = rng.standard_exponential(size)
        else:
            drawn = rng.weibull(self.shape, size) / gamma(1 + 1 / self.shape)
        return drawn * mtbf_s


@dataclass(frozen=True)
class FailureClass:
    """Failures that are recovered from in one way. The last class of a job is what failed recoveries fall back on."""

    name: str
    share: float  # of all failures
    recovery_s: tuple[float, ...]  # samples, one drawn for each failure: from it to the first new step
    every: int = 1  # every so-many-th save is usable: node-local copies do not survive their node
    latency_s: float | None = None  # from the call of a save until this class can load it; None: the job's latency_s
    needs_node: bool = False  # another node has to take the place of the failed one
    fails_share: float = 0.0  # recoveries that fail, after their time, and are followed by the last class's


@dataclass(frozen=True)
class JobModel:
    """What is simulated. Seconds; every share in 0 ... 1. Saves come after each `work_s` of useful work."""

    work_s: float  # tau
    blocking_s: float  # delta
    cost_s: float  # C, at least blocking_s: work lost by a save, blocked or slowed
    latency_s: float  # L, at least cost_s: the write ends, and the next one may begin
    mtbf_s: float
    classes: tuple[FailureClass, ...]
    gaps: Gaps = field(default_factory=Gaps)
    can_fail: bool = True  # failures strike during recovery as well, which then begins anew
    spares: int | None = None  # None: a replacement is at hand at once
    repair_s: float = 0.0  # a failed node comes back as a spare after so long

    def __post_init__(self) -> None:
        if not 0 <= self.blocking_s <= self.cost_s <= self.latency_s:
            raise ValueError(f"needs 0 <= blocking_s <= cost_s <= latency_s, got {self}")
        if self.work_s <= 0 or self.mtbf_s <= 0 or abs(sum(each.share for each in self.classes) - 1) > 1e-9:
            raise ValueError("needs work_s and mtbf_s above 0 and shares of classes that add up to 1")

    @property
    def period_s(self) -> float:
        """P: a save that would begin before the last write has ended waits for it."""
        return max(self.work_s + self.cost_s, self.latency_s)


# Where wall time goes, in the terms of METHOD.md's ledger; `recovery` is detect + stop + restart + load, `idle` is
# waiting for a node. `replay` includes the step that the failure aborted.
PARTS = ("useful", "replay", "ckpt_stall", "interference", "recovery", "idle")


@dataclass(frozen=True)
class Simulated:
    """One value a replicate: wall seconds, failures, and seconds of each of `PARTS` (they add up to the wall time)."""

    wall_s: Floats
    failures: Floats
    parts: dict[str, Floats]

    @property
    def goodputs(self) -> Floats:
        return self.parts["useful"] / self.wall_s

    @property
    def goodput(self) -> float:
        return float(self.goodputs.mean())

    @property
    def standard_error(self) -> float:
        return float(self.goodputs.std(ddof=1) / len(self.wall_s) ** 0.5)

    def share(self, part: str) -> Floats:
        return self.parts[part] / self.wall_s


def simulate(job: JobModel, horizon_s: float, replicates: int, seed: int) -> Simulated:
    """Run the job for `horizon_s` of wall time; work done but not saved at the end counts as useful."""
    if horizon_s <= 0 or replicates < 2:
        raise ValueError("needs a horizon above 0 and at least 2 replicates")
    return _run(job, horizon_s, None, replicates, seed)


def simulate_work(job: JobModel, saves: int, replicates: int, seed: int) -> Simulated:
    """Run the job until its save number `saves` is complete: a fixed amount of work, `saves` x work_s."""
    if saves < 1 or replicates < 2:
        raise ValueError("needs at least 1 save and 2 replicates")
    return _run(job, inf, saves, replicates, seed)


def _run(job: JobModel, horizon_s: float, target: int | None, replicates: int, seed: int) -> Simulated:
    fleet = _Fleet(job, horizon_s, target, replicates)
    for gap_s, dice, class_dice in _draws(job, replicates, np.random.default_rng(seed)):
        if not fleet.advance(gap_s, dice, class_dice):
            return fleet.result()
    raise AssertionError("the stream of draws has no end")


def _draws(
    job: JobModel, replicates: int, rng: np.random.Generator
) -> Iterator[tuple[Floats, Floats, NDArray[np.intp]]]:
    """For every pass: a gap, uniform numbers, and the class of the failure that ends the gap, for each replicate."""
    bounds = np.cumsum([each.share for each in job.classes])[:-1]
    while True:
        gaps = job.gaps.draw(rng, job.mtbf_s, (BLOCK, replicates))
        classes = np.searchsorted(bounds, rng.random((BLOCK, replicates)), side="right")
        yield from zip(gaps, rng.random((BLOCK, replicates)), classes, strict=True)


class _Fleet:
    """All replicates of a job, each at a failure (or at the start), as arrays with one entry a replicate."""

    def __init__(self, job: JobModel, horizon_s: float, target: int | None, replicates: int) -> None:
        self.job, self.target = job, target
        self.rows = np.arange(replicates)
        zeros = np.zeros(replicates)
        self.failed_at = zeros.copy()  # wall time of the last failure
        self.start = zeros.copy()  # wall time at which the job runs (again)
        self.idle = zeros.copy()  # seconds of the present recovery that wait for a node; they come first
        self.saves = zeros.copy()  # index of the save that the job resumed from
        self.newest = np.zeros((len(job.classes), replicates))  # index of the newest save that each class can load
        self.end = np.full(replicates, horizon_s)
        self.alive = np.ones(replicates, dtype=bool)
        self.failures = zeros.copy()
        self.parts = {part: zeros.copy() for part in PARTS}
        self.spares = np.zeros((max(job.spares or 0, 1), replicates))  # wall time at which each spare can be used
        self.next_spare = np.zeros(replicates, dtype=np.intp)
        self.samples = _Recoveries(job.classes)

    def advance(self, gap_s: Floats, dice: Floats, classes: NDArray[np.intp]) -> bool:
        """Recover and run every replicate to its next failure. False: all have reached their end."""
        next_failure = (self.failed_at if self.job.can_fail else self.start) + gap_s
        if self.target is not None:
            self._set_end_of_work()
        until = np.minimum(next_failure, self.end)
        ran_s = np.maximum(until - self.start, 0.0)
        work_s, started = self._account(until, ran_s)
        ending = self.alive & (next_failure >= self.end)
        if ending.any():
            self.parts["useful"][ending] = (self.saves * self.job.work_s + work_s)[ending]
            self.alive &= ~ending
            if not self.alive.any():
                return False
        self.failures += self.alive
        self._fall_back(ran_s, started, dice, classes)
        self._recover(until, dice, classes)
        return True

    def _set_end_of_work(self) -> None:
        """The job ends when the target save is complete, unless a failure comes first."""
        assert self.target is not None
        left = self.target - self.saves
        end = self.start + self.job.work_s + (left - 1) * self.job.period_s + self.job.latency_s
        self.end = np.where(self.alive, end, self.end)

    def _account(self, until: Floats, ran_s: Floats) -> tuple[Floats, Floats]:
        """Add what happened up to `until`; returns the work done in this running time, and the saves begun in it."""
        job = self.job
        after_work = ran_s - job.work_s
        begun = np.maximum(np.floor(after_work / job.period_s) + 1, 0.0)
        in_period = np.where(begun > 0, after_work - (begun - 1) * job.period_s, 0.0)  # since the last save's call
        progress = self._progress(in_period)
        work_s = np.where(begun > 0, begun * job.work_s + progress, ran_s)
        waited_s = job.period_s - job.work_s - job.cost_s  # a saturated writer holds the next save up
        stalled = np.maximum(begun - 1, 0.0) * (job.blocking_s + waited_s)
        stalled += np.where(begun > 0, np.minimum(in_period, job.blocking_s), 0.0)
        stalled += np.where(begun > 0, np.maximum(in_period - job.work_s - job.cost_s, 0.0), 0.0)
        recovering = np.minimum(self.start, until) - self.failed_at
        idle = np.minimum(self.idle, recovering)
        for part, seconds in (
            ("replay", work_s),  # what turns out to have counted is taken out in the end
            ("ckpt_stall", stalled),
            ("interference", ran_s - work_s - stalled),
            ("idle", idle),
            ("recovery", recovering - idle),
        ):
            np.add(self.parts[part], seconds, out=self.parts[part], where=self.alive)
        return work_s, begun

    def _progress(self, in_period: Floats) -> Floats:
        """Useful work done so long after the call of a save, at most that of one period."""
        job = self.job
        writing_s = job.latency_s - job.blocking_s
        speed = (job.latency_s - job.cost_s) / writing_s if writing_s > 0 else 0.0
        slowed = np.clip(in_period - job.blocking_s, 0.0, writing_s) * speed
        return np.minimum(slowed + np.maximum(in_period - job.latency_s, 0.0), job.work_s)

    def _fall_back(self, ran_s: Floats, begun: Floats, dice: Floats, classes: NDArray[np.intp]) -> None:
        """Note which saves each class can load by now, and resume from the newest of the failure's class."""
        job = self.job
        for index, each in enumerate(job.classes):
            latency_s = job.latency_s if each.latency_s is None else each.latency_s
            complete = np.floor((ran_s - job.work_s - latency_s) / job.period_s) + 1
            usable = self.saves + np.clip(complete, 0.0, begun)
            if each.every > 1:
                usable = np.floor(usable / each.every) * each.every
            self.newest[index] = np.where(usable > self.saves, usable, self.newest[index])
        self.saves = self.newest[self.samples.carried_out_by(classes, dice), self.rows]
        np.minimum(self.newest, self.saves, out=self.newest)  # newer copies belong to a future that is given up

    def _recover(self, failed_at: Floats, dice: Floats, classes: NDArray[np.intp]) -> None:
        self.failed_at = np.where(self.alive, failed_at, self.end)
        self.idle = self._wait_for_node(classes)
        self.start = self.failed_at + self.idle + self.samples.seconds(classes, dice)

    def _wait_for_node(self, classes: NDArray[np.intp]) -> Floats:
        """Seconds until a node takes the failed one's place. Repairs take equally long, so spares return in order."""
        job = self.job
        if job.spares is None or not self.samples.any_needs_node:
            return np.zeros(len(self.rows))
        needs = self.samples.needs_node[classes] & self.alive
        if job.spares == 0:
            return np.where(needs, job.repair_s, 0.0)
        free_at = self.spares[self.next_spare, self.rows]
        taken_at = np.maximum(free_at, self.failed_at)
        self.spares[self.next_spare, self.rows] = np.where(needs, self.failed_at + job.repair_s, free_at)
        self.next_spare = np.where(needs, (self.next_spare + 1) % job.spares, self.next_spare)
        return np.where(needs, taken_at - self.failed_at, 0.0)

    def result(self) -> Simulated:
        self.parts["replay"] -= self.parts["useful"]
        return Simulated(self.end, self.failures, self.parts)


class _Recoveries:
    """The classes as arrays, indexed by class."""

    def __init__(self, classes: Sequence[FailureClass]) -> None:
        longest = max(len(each.recovery_s) for each in classes)
        self.count = np.array([len(each.recovery_s) for each in classes])
        self.table = np.array([[*each.recovery_s, *[0.0] * (longest - len(each.recovery_s))] for each in classes])
        self.fails = np.array([each.fails_share for each in classes])
        self.fails[-1] = 0.0  # nothing to fall back on: the last class tries until it is done
        self.needs_node = np.array([each.needs_node for each in classes])
        self.any_needs_node = bool(self.needs_node.any())
        self.any_fails = bool((self.fails > 0).any())

    def carried_out_by(self, classes: NDArray[np.intp], dice: Floats) -> NDArray[np.intp]:
        """The class whose recovery succeeds in the end, and whose checkpoint is loaded."""
        return np.where(dice < self.fails[classes], len(self.fails) - 1, classes) if self.any_fails else classes

    def seconds(self, classes: NDArray[np.intp], dice: Floats) -> Floats:
        """A sample of each failure's recovery; after one that failed, one of the last class as well."""
        fails = self.fails[classes]
        failed = dice < fails
        rest = np.where(
            failed, dice / np.maximum(fails, 1e-300), (dice - fails) / (1 - fails + failed)
        )  # uniform again
        own = self._sample(classes, rest)
        if not self.any_fails:
            return own
        return own + np.where(failed, self._sample(np.full_like(classes, len(self.fails) - 1), rest), 0.0)

    def _sample(self, classes: NDArray[np.intp], uniform: Floats) -> Floats:
        count = self.count[classes]
        picked: Floats = self.table[classes, np.minimum((uniform * count).astype(np.intp), count - 1)]
        return picked
