"""Recoveries: one record per episode of a launch, and per planned fault that did not strike (metrics.md 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.measure.episodes import Course, Episode
from bench.measure.events import Event, LaunchRecord
from bench.measure.points import Instrument, Points, last_step, parts, points
from bench.measure.resumed import device_bytes_after_stop, layer_used, processes_kept, resume_consistent, resume_exact
from bench.measure.slots import all_slots
from bench.schema import ENDURING, STRUCK, TWIN, UNFINISHED, Recovery, RecoveryOutcome

SPLIT = "the job fell apart: groups of ranks went on by themselves, each as the whole job"
_OF_OTHERS = ("RestartAbort", "RankShouldRestart")  # what the Wrapper raises in ranks that did not fail themselves
_NOT_ENDED = (*UNFINISHED, "skipped")
_COUNTED = "oom_host"  # the one fault that the kernel carries out, or not, after it is on record


def is_recovery(launch: LaunchRecord) -> bool:
    """Whether a launch belongs to a recovery run's measurements: struck by faults, or the twin without them."""
    return launch.kind in ENDURING


@dataclass(frozen=True)
class Pair:
    """A launch with faults, and the one without that it is held against (None: none came to its end)."""

    struck: Course
    twin: Course | None


def pairs(launches: Sequence[LaunchRecord]) -> list[Pair]:
    """The launches with faults that have ended, by index, each with the first whole twin of its block and arm."""
    twins: dict[tuple[Any, ...], Course] = {}
    for launch in launches:
        if launch.kind == TWIN and launch.complete:
            twins.setdefault(_block_and_arm(launch), Course.of(launch))
    struck = [launch for launch in launches if launch.kind == STRUCK and _ended(launch)]
    return [Pair(Course.of(launch), twins.get(_block_and_arm(launch))) for launch in struck]


def _ended(launch: LaunchRecord) -> bool:
    """One that was cut off in the engine's queue says nothing of its fault."""
    return launch.launch["status"] not in _NOT_ENDED and not launch.left_in_queue


def _block_and_arm(launch: LaunchRecord) -> tuple[Any, ...]:
    return (*launch.block, *launch.launch["arms"])


def recoveries(found: Sequence[Pair]) -> list[Recovery]:
    """The records of all launches, by launch and time; what did not strike comes last of its launch."""
    return [record for pair in found for record in (*_struck(pair), *_others(pair.struck.launch))]


# --- what struck ------------------------------------------------------------------------------------------------------
def _struck(pair: Pair) -> list[Recovery]:
    instrument = Instrument.of(pair.struck.launch)
    return [
        _not_carried_out(pair.struck.launch, episode, reason)
        if (reason := no_kill(episode.faults)) is not None
        else _recovery(pair, episode, points(pair.struck, episode), instrument)
        for episode in pair.struck.episodes
    ]


def no_kill(faults: Sequence[Event]) -> str | None:
    """Why one of these was not what it is called, by the kernel's count of its kills in the rank's cgroup; or None.

    A rank that the kernel let live raises an error, and its job recovers from that: from another fault.
    """
    for fault in faults:
        if fault["kind"] == _COUNTED:
            count = fault.get("details", {}).get("oom_kill")
            if count is None:
                return (
                    f"{fault['id']}: the kernel's count of its kills is not on record, so nothing shows that it killed"
                )
            if count == 0:
                return f"{fault['id']}: the kernel killed nobody in the rank's cgroup (oom_kill 0), it ended otherwise"
    return None


def _not_carried_out(launch: LaunchRecord, episode: Episode, reason: str) -> Recovery:
    """Of another fault than the planned one nothing is told but that."""
    first = episode.faults[0]
    told = _about(launch, _planned(launch, first)) | {"episode": None, "rank": first.get("rank")}
    return Recovery(**told, faults=[str(fault["id"]) for fault in episode.faults], outcome="not_fired", reason=reason)


def _recovery(pair: Pair, episode: Episode, found: Points, instrument: Instrument) -> Recovery:
    course, first, after = pair.struck, episode.faults[0], episode.after
    resumed = after.resumed_step if after is not None else None
    caught_up_s = instrument.between(found.injected, found.caught_up)
    return Recovery(
        **_about(course.launch, _planned(course.launch, first)),
        episode=episode.number,
        faults=[str(fault["id"]) for fault in episode.faults],
        rank=first.get("rank"),
        outcome=episode.outcome,
        reason=_reason(course, episode),
        layer_used=layer_used(course, episode),
        fault_step=episode.fault_step,
        resumed_step=resumed,
        lost_steps=_lost_steps(episode, resumed),
        **_parts(episode, found, instrument),
        time_to_recover_s=instrument.between(found.injected, found.first_step),
        time_to_catch_up_s=caught_up_s,
        gpu_seconds_lost=_gpu_seconds_lost(pair, episode, caught_up_s),
        detected_by=found.detected_by,
        processes_kept=processes_kept(episode),
        outlived=found.outlived,
        attempts=episode.attempts,
        world_size_before=episode.before.world_size if episode.before is not None else None,
        world_size_after=after.world_size if after is not None else None,
        resume_exact=resume_exact(episode, pair.twin),
        resume_consistent=resume_consistent(course, episode),
        device_bytes_after_stop=device_bytes_after_stop(episode),
        instrument_s=_instrument_s(found, instrument),
        points_s=_since_fault(found),
    )


def _reason(course: Course, episode: Episode) -> str:
    """Why a job did not come back, as far as it is known: the last episode of a launch is the one that ended it."""
    if episode.split:
        return SPLIT
    if episode.outcome != "not_recovered" or episode is not course.episodes[-1]:
        return ""
    caught = [event for attempt in episode.started for event in attempt.named("caught")]
    own = [event for event in caught if not str(event["error"]).startswith(_OF_OTHERS)]
    last = max(own, key=lambda event: float(event["t"]), default=None)
    return str(last["error"] if last is not None else course.launch.launch.get("given_up") or "")


def _planned(launch: LaunchRecord, record: Event) -> Mapping[str, Any]:
    """The plan of a fault on record; options stand in the plan alone."""
    return next((each for each in launch.launch.get("faults", []) if each["id"] == record["id"]), record)


def _about(launch: LaunchRecord, fault: Mapping[str, Any]) -> dict[str, Any]:
    occasion, block = launch.block
    further = _further(launch, fault)
    return {
        "launch": launch.index,
        "occasion": occasion,
        "block": block,
        "arm": str(launch.launch["arms"][0]),
        "layer": str(launch.launch["layer"]),
        "fault": str(fault["kind"]),
        "label": label(fault, further),
        "further_faults": len(further),
        "at": str(fault["at"]),
        "node": int(fault["node"]),
        "local_rank": int(fault["local_rank"]),
    }


def _further(launch: LaunchRecord, fault: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The faults planned for the recovery from this one, in order; those of a chain count for its first.

    By the plan, so that all episodes of one plan are alike, how far ever each came.
    """
    unavailable, chain = launch.launch.get("unavailable") or {}, [fault]
    for each in launch.launch.get("faults", []):
        if each.get("after") in {before["id"] for before in chain} and each["id"] not in unavailable:
            chain.append(each)
    return [] if fault.get("after") is not None else chain[1:]


def label(fault: Mapping[str, Any], further: Sequence[Mapping[str, Any]] = ()) -> str:
    """A fault in words: its kind, and what makes it another one: the moment, switches and choices, rank 0 as victim.

    And how many more strike while the job recovers from it; which, if they are others.
    """
    options = [_word(name, value) for name, value in sorted(fault.get("options", {}).items()) if _tells(value)]
    moment = [] if fault["at"] == "step" else [f"at {fault['at']}"]
    first = (
        ["rank 0"] if (int(fault["node"]), int(fault["local_rank"])) == (0, 0) else []
    )  # where others may rendezvous
    cascade = [f"{len(further)} more in recovery{_others_kinds(fault, further)}"] if further else []
    return ", ".join([str(fault["kind"]), *moment, *options, *first, *cascade])


def _others_kinds(fault: Mapping[str, Any], further: Sequence[Mapping[str, Any]]) -> str:
    """ " (exception and segfault at load)", or nothing where they are copies of the first."""
    kinds = dict.fromkeys(f"{each['kind']}{' at load' if each['at'] == 'load' else ''}" for each in further)
    return "" if list(kinds) == [fault["kind"]] else f" ({' and '.join(kinds)})"


def _tells(value: object) -> bool:
    """Choices, and switches that are off, name another fault; numbers only say how much of it."""
    return isinstance(value, str) or value is False


def _word(name: str, value: object) -> str:
    return value if isinstance(value, str) else f"not {name}"


def _lost_steps(episode: Episode, resumed: int | None) -> int | None:
    if episode.outcome == "tolerated":
        return 0
    return None if resumed is None else episode.fault_step - resumed


def _parts(episode: Episode, found: Points, instrument: Instrument) -> dict[str, Any]:
    """Of a recovery that failed as far as it came; a fault that was tolerated has none."""
    if episode.outcome == "tolerated":
        return {}
    return {f"{name}_s": seconds for name, seconds in parts(found, instrument).items()}


def _instrument_s(found: Points, instrument: Instrument) -> float | None:
    if found.first_step is None:
        return None
    return instrument.before(found.first_step) - instrument.before(found.injected)


def _since_fault(found: Points) -> dict[str, float | None]:
    times = {name: t for name, t in found.in_order().items() if name != "injected"}
    return {name: None if t is None else t - found.injected for name, t in times.items()}


def _gpu_seconds_lost(pair: Pair, episode: Episode, caught_up_s: float | None) -> float | None:
    """All slots' seconds from the fault until the step after it is finished, less that step as it goes without fault.

    A job that was struck after its last step has no such step.
    """
    step_s = plain_step_s(pair.struck, episode.begin)
    step_s = plain_step_s(pair.twin) if step_s is None and pair.twin is not None else step_s
    if caught_up_s is None or step_s is None:
        return None
    last = episode.fault_step == last_step(pair.struck.launch)
    return (caught_up_s - (0.0 if last else step_s)) * len(all_slots(pair.struck.launch))


def plain_step_s(course: Course, before: float = np.inf) -> float | None:
    """Median seconds from the end of a step to that of the next, where no save lies between, of the first generation.

    `before`: only steps that ended by then. None: there are none.
    """
    found = cadence(course, before)
    return float(np.median(list(found.values()))) if found else None


def cadence(course: Course, before: float = np.inf) -> dict[int, float]:
    """Seconds from the end of the step before to a step's own, over all ranks, by number; of the first generation.

    Steps right after a save are left out, and the first, which has none before it.
    """
    segment = course.launch.segment(0)
    if not course.generations or segment is None or not segment["interval"]:
        return {}
    step, end = course.generations[0].ends
    early = end <= before
    step, end, interval = step[early], end[early], int(segment["interval"])
    wanted = (np.diff(step) == 1) & (step[:-1] % interval != 0)
    return dict(zip(step[1:][wanted].tolist(), np.diff(end)[wanted].tolist(), strict=True))


# --- what did not strike ----------------------------------------------------------------------------------------------
def _others(launch: LaunchRecord) -> list[Recovery]:
    struck = {str(fault["id"]) for fault in launch.faults}
    unavailable: Mapping[str, str] = launch.launch.get("unavailable") or {}
    found = []
    for fault in launch.launch.get("faults", []):
        if fault["id"] not in struck:
            reason = unavailable.get(fault["id"])
            outcome: RecoveryOutcome = "not_fired" if reason is None else "unavailable"
            text = reason or "the launch ended before it was due, or it found no occasion"
            told = _about(launch, fault) | {"episode": None, "faults": [str(fault["id"])], "rank": None}
            found.append(Recovery(**told, outcome=outcome, reason=text))
    return found
