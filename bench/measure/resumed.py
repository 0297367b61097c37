"""What a recovery brought back: by which layer, with which processes, and whether it is the state that it should be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.measure.attempts import Attempt, Generation
from bench.measure.episodes import Course, Episode
from bench.measure.events import Event
from bench.measure.points import away_times
from bench.schema import RecoveryLayer

LEAST_LOSSES = 3  # after the resume, each equal to the twin's
_SUM_MODULUS = 1 << 64  # checksums of ranks are added modulo 2**64, so that their sum is the same at any world size


# --- by whom ----------------------------------------------------------------------------------------------------------
def layer_used(course: Course, episode: Episode) -> RecoveryLayer | None:
    """The layer that brought the job back, by evidence; None without a recovery, or where evidence is missing.

    No process of the new generation began after the fault: in place. Else an agent that lived through it did it, and
    if there is none, the runner in the orchestrator's part, for one node or for the whole job.
    """
    after = episode.after
    if after is None:
        return None
    if all(each.worker.first_t < episode.begin for each in after.attempts):
        return "in_process"
    if _agent_lives(course, episode):
        return "torchrun" if course.launch.launch["layer"] == "torchrun" else "in_job"
    scopes = {
        str(event["scope"])
        for runner in course.launch.runners
        for event in runner.named("restart")
        if episode.begin < event["t"] <= episode.until
    }
    return "requeue" if "job" in scopes else "pod_restart" if scopes else None


def _agent_lives(course: Course, episode: Episode) -> bool:
    """Whether an agent that was started before the fault had not ended when the job stepped again."""
    for runner in course.launch.runners:
        agents = [event for event in runner.named("started") if event.get("local_rank") is None]
        before = {int(event["pid"]) for event in agents if event["t"] < episode.begin}
        ended = {int(event["pid"]) for event in runner.named("exited") if event["t"] <= episode.until}
        lost = any(episode.begin <= t0 <= episode.until for t0, _ in away_times(runner))
        if before - ended and not lost:
            return True
    return False


def processes_kept(episode: Episode) -> float | None:
    """Share of the struck generation's processes that are part of the new one."""
    if episode.before is None or episode.after is None:
        return None
    return len(episode.before.processes & episode.after.processes) / len(episode.before.processes)


def device_bytes_after_stop(episode: Episode) -> int | None:
    """Device memory in use on the rank that had most when it was through the abort; None where that was not read."""
    if episode.before is None:
        return None
    aborted = [event for attempt in episode.before.attempts for event in attempt.named("aborted")]
    return max((int(e["device_bytes"]) for e in aborted if e.get("device_bytes") is not None), default=None)


# --- the same state ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class JobState:
    """The state of the job at one step, over its ranks."""

    position: int
    total: int  # of the ranks' checksums, modulo 2**64: independent of the world size
    digests: tuple[str, ...]  # of each rank, by rank: comparable at one world size only


def job_state(events: Iterable[Event]) -> JobState | None:
    """From the ranks' "state" events of one occurrence; None unless every rank told, and told of one position."""
    by_rank = {int(event["rank"]): event for event in events}
    if not by_rank:
        return None
    told = [by_rank[rank] for rank in sorted(by_rank)]
    sizes, positions = {int(event["world_size"]) for event in told}, {int(event["position"]) for event in told}
    if len(sizes) != 1 or len(positions) != 1 or set(by_rank) != set(range(sizes.pop())):
        return None
    total = sum(int(str(event["sum"]), 16) for event in told) % _SUM_MODULUS
    return JobState(positions.pop(), total, tuple(str(event["digest"]) for event in told))


def _states(attempts: Iterable[Attempt], at: Sequence[str], begin: float, end: float) -> list[Event]:
    """The "state" events of these kinds in a stretch of time, in order."""
    found = [e for each in attempts for e in each.named("state") if e["at"] in at and begin <= e["t"] <= end]
    return sorted(found, key=lambda event: float(event["t"]))


def resume_consistent(course: Course, episode: Episode) -> bool | None:
    """Whether checksums and data position after the load are those of the save; None if either is not on record."""
    after = episode.after
    if after is None or not after.resumed_step:
        return None
    restored = job_state(_at_step(_states(after.attempts, ("restored",), -np.inf, np.inf), after.resumed_step))
    saved = job_state(_at_step(_states(course.attempts, ("saved",), -np.inf, after.begin), after.resumed_step))
    if restored is None or saved is None:
        return None
    return (restored.total, restored.position) == (saved.total, saved.position)


def _at_step(events: Sequence[Event], step: int) -> list[Event]:
    """Of the world size that came to that step last: it may have been saved before by more ranks."""
    found = [event for event in events if int(event["step"]) == step]
    return [event for event in found if event["world_size"] == found[-1]["world_size"]]


# --- as if nothing had happened ---------------------------------------------------------------------------------------
def resume_exact(episode: Episode, twin: Course | None) -> bool | None:
    """Whether the job went on exactly as its twin without faults, until the next fault or its end.

    Every loss after the resume, at least 3, and every rank's digest (model, optimizer, RNG, data position) at the last
    state on record: the end's, or before another fault the last save's. None: another world size, or not on record.
    """
    after = episode.after
    other = twin.generations[0] if twin is not None and twin.generations else None
    if after is None or other is None or after.world_size != other.world_size:
        return None
    ours, theirs = losses(after, episode.end), losses(other)
    pairs = [(loss, theirs.get(step, math.nan)) for step, loss in ours.items()]
    known = [pair for pair in pairs if not all(map(math.isnan, pair))]
    if len(known) < LEAST_LOSSES or not ours.keys() <= theirs.keys():
        return None
    if any(a != b for a, b in known):
        return False
    return _equal_digests(after, other, episode.end)


def losses(generation: Generation, end: float = math.inf) -> dict[int, float]:
    """The job's loss by step, of the steps that began before `end`; NaN: none. As rank 0 recorded it."""
    steps = generation.attempts[0].steps.between(-np.inf, end)
    return dict(zip(steps.step.tolist(), steps.loss.tolist(), strict=True))


def _equal_digests(after: Generation, other: Generation, end: float) -> bool | None:
    """At the last state that both have on record before `end`."""
    ours = _last_states(after, end)
    theirs: Mapping[tuple[str, int], JobState] = _last_states(other, np.inf)
    shared = [key for key in ours if key in theirs]
    if not shared or (np.isinf(end) and shared[-1][0] != "end"):
        return None  # a job that did not come to its end cannot be compared there
    return ours[shared[-1]].digests == theirs[shared[-1]].digests


def _last_states(generation: Generation, end: float) -> dict[tuple[str, int], JobState]:
    """The job's states after steps of this generation, by kind and step, in order of time."""
    grouped: dict[tuple[str, int], list[Event]] = {}
    for event in _states(generation.attempts, ("saved", "end"), -np.inf, end):
        grouped.setdefault((str(event["at"]), int(event["step"])), []).append(event)
    states = {key: job_state(events) for key, events in grouped.items()}
    return {key: state for key, state in states.items() if state is not None}
