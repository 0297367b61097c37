"""The points of a recovery: injected, detected, stopped, restarted, loaded, first step, caught up (metrics.md 4).

Where the engine started the job again, the time in its queue is taken out of the part `restart`.

All in seconds of node 0's clock; a point without evidence is None, and so are the parts that it bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from bench.measure.attempts import Attempt, Process, process_of
from bench.measure.episodes import Course, Episode
from bench.measure.events import Event, LaunchRecord, Stream

# What tells of a failure, by layer: the abort hook of the Wrapper, a line of the agent's log, an exit that the runner
# saw. In place the runner's look at exits is no part of the layer, so an exit does not count there.
DETECTORS: dict[str, tuple[str, ...]] = {
    "in_process": ("abort",),
    "nested": ("abort", "launcher_log"),
    "in_job": ("launcher_log", "exit"),
    "torchrun": ("launcher_log", "exit"),
    "pod_restart": ("exit",),
    "requeue": ("exit",),
    "none": ("exit",),
}
PARTS = ("detect", "stop", "queue", "restart", "load", "first_step", "catch_up")


@dataclass(frozen=True)
class Points:
    """The points of one episode in order, s. `detected_by`: a key of DETECTORS' values."""

    injected: float
    detected: float | None
    detected_by: str | None
    stopped: float | None
    restarted: float | None
    loaded: float | None
    first_step: float | None
    caught_up: float | None
    outlived: int | None  # processes of the old incarnation that were there when the new one was ready
    queues: tuple[tuple[float, float], ...] = ()  # begins and ends of the job's waits in the engine's queue

    def in_order(self) -> dict[str, float | None]:
        names = ("injected", "detected", "stopped", "restarted", "loaded", "first_step", "caught_up")
        return {name: getattr(self, name) for name in names}


def points(course: Course, episode: Episode) -> Points:
    """The points of one episode. `detected` and `stopped` are known of failed recoveries as well."""
    after, launch = episode.after, course.launch
    restarted = _last(each.ready for each in after.attempts) if after is not None else None
    detected, detected_by = _detected(launch, episode, episode.until if restarted is None else restarted)
    bound = episode.until if restarted is None else restarted
    stopped, outlived = _stopped(course, episode, bound)
    if stopped is not None and detected is not None:
        stopped = max(stopped, detected)  # a lone rank is gone before anybody has noticed
    first_step = after.first_step_end if after is not None else None
    return Points(
        injected=episode.begin,
        detected=detected,
        detected_by=detected_by,
        stopped=stopped,
        restarted=restarted,
        loaded=_last(each.loaded for each in after.attempts) if after is not None else None,
        first_step=first_step,
        caught_up=_caught_up(course, episode),
        outlived=outlived if restarted is not None else None,
        queues=tuple((a, b) for a, b in queues(launch) if episode.begin < b <= bound),
    )


def _last(times: Iterable[float | None]) -> float | None:
    """The last of the ranks' times; None if one is missing."""
    found = list(times)
    known = [t for t in found if t is not None]
    return max(known) if known and len(known) == len(found) else None


def _caught_up(course: Course, episode: Episode) -> float | None:
    """The step that was to be finished at the fault is finished, before the next fault."""
    target = episode.fault_step + (episode.fault_step != last_step(course.launch))
    later = [g for g in course.generations if episode.after is not None and g.begin >= episode.after.begin]
    ends = [end for g in later if (end := g.end_of(target)) is not None and end <= episode.end]
    return min(ends, default=None)


def last_step(launch: LaunchRecord) -> int | None:
    """The number of the job's last step."""
    segment = launch.segment(0)
    return int(segment["saves"]) * int(segment["interval"]) if segment and segment["interval"] else None


def queues(launch: LaunchRecord) -> list[tuple[float, float]]:
    """When the whole job was in the engine's queue, s: from the last runner's end to all runners' next begin."""
    ends: dict[int, list[float]] = {}
    begins: dict[int, list[float]] = {}
    for runner in launch.runners:
        start = int(runner.meta["incarnation"])
        ends.setdefault(start, []).extend(float(event["t"]) for event in runner.named("launch_end"))
        begins.setdefault(start, []).extend(float(event["t"]) for event in runner.named("launch_begin"))
    told = [start for start in sorted(begins) if ends.get(start - 1) and begins[start]]
    return [(max(ends[start - 1]), max(begins[start])) for start in told]


# --- detected ---------------------------------------------------------------------------------------------------------
def _detected(launch: LaunchRecord, episode: Episode, until: float) -> tuple[float | None, str | None]:
    """The first evidence of the layer's own kind after the fault."""
    sources = DETECTORS.get(str(launch.launch.get("layer")), ("abort", "launcher_log", "exit"))
    collect: dict[str, Callable[[], list[tuple[int, float]]]] = {
        "abort": lambda: [(w.node, float(event["t"])) for w in launch.workers for event in w.named("abort")],
        "launcher_log": lambda: [(r.node, float(event["t"])) for r in launch.runners for event in r.named("detected")],
        "exit": lambda: (
            [(r.node, float(event["t"])) for r in launch.runners for event in r.named("exited")] + _lost(launch)
        ),
    }
    found = [(t, source, node) for source in sources for node, t in collect[source]() if episode.begin < t <= until]
    t, source, _ = min(_seen(launch, found) or found, default=(None, None, None))
    return t, source


def _lost(launch: LaunchRecord) -> list[tuple[int, float]]:
    """Nodes whose loss the runner noticed in the orchestrator's place, which is no part of the node: -1."""
    noticed = [event for runner in launch.runners for event in runner.named("detected") if event["source"] == "runner"]
    return [(-1, float(event["t"])) for event in noticed]


def _seen(launch: LaunchRecord, found: list[tuple[float, str, int]]) -> list[tuple[float, str, int]]:
    """Without what happened on a node that was away: nobody is there to look."""
    away = [(runner.node, t0, t1) for runner in launch.runners for t0, t1 in away_times(runner)]
    return [each for each in found if not any(each[2] == node and t0 <= each[0] <= t1 for node, t0, t1 in away)]


def away_times(runner: Stream) -> list[tuple[float, float]]:
    """When the runner's node was away (node_loss), s; if it never came back until its part of the launch ended, or inf.

    A job that the engine starts again has other runners, which are not away.
    """
    backs = sorted(float(event["t"]) for name in ("back", "launch_end") for event in runner.named(name))
    gone = sorted(float(event["t"]) for event in runner.named("away"))
    return [(t, next((back for back in backs if back > t), float("inf"))) for t in gone]


# --- stopped ----------------------------------------------------------------------------------------------------------
def _stopped(course: Course, episode: Episode, until: float) -> tuple[float | None, int]:
    """When the last worker and writer of the struck incarnation had gone, or its last rank was through the abort.

    A process that outlived `until`, when the new incarnation was ready, is counted and does not move the point. None if
    it is not known how a rank of the struck incarnation came to its end.
    """
    if episode.before is None:
        return None, 0
    gone = _gone(course.launch)
    ends, outlived = [], 0
    for attempt in episode.before.attempts:
        left = [t for t in _left(attempt, gone) if t >= episode.begin]
        if not left:
            return None, outlived
        outlived += min(left) > until
        ends += [min(left)] if min(left) <= until else []
    for writer in course.launch.writers:
        t = gone.get(process_of(writer))
        if t is not None and writer.first_t < episode.begin <= t:
            outlived += t > until
            ends += [t] if t <= until else []
    return max(ends, default=None), outlived


def _left(attempt: Attempt, gone: dict[Process, float]) -> list[float]:
    """Moments at which an attempt was over: through the abort hook, or its process gone."""
    aborted = [float(event["t"]) for event in attempt.named("aborted")]
    t = gone.get(attempt.process)
    return [*aborted, *([] if t is None else [t])]


def _gone(launch: LaunchRecord) -> dict[Process, float]:
    """When processes were seen to be gone, by the runner's watch on them or as its own child."""
    known = {(s.node, int(s.meta["pid"])): process_of(s) for s in (*launch.workers, *launch.writers)}
    found: dict[Process, float] = {}
    for runner in launch.runners:
        for event in (*runner.named("gone"), *runner.named("exited")):
            process = _process(runner, event, known)
            if process is not None:
                found[process] = min(found.get(process, float("inf")), float(event["t"]))
    return found


def _process(runner: Stream, event: Event, known: dict[tuple[int, int], Process]) -> Process | None:
    if "pid_start" in event:
        return runner.node, int(event["pid"]), int(event["pid_start"])
    return known.get((runner.node, int(event["pid"])))


# --- the instrument's own time ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Instrument:
    """The state checks of a launch at job level: of each occurrence the longest of the ranks', up to the last's end."""

    intervals: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, launch: LaunchRecord) -> Instrument:
        spans = [(worker.slot, span) for worker in launch.workers for span in worker.spans if span["name"] == "check"]
        current: dict[tuple[str, int], dict[str, Event]] = {}
        occurrences: list[dict[str, Event]] = []
        for slot, span in sorted(spans, key=lambda pair: float(pair[1]["t0"])):
            key = (str(span["at"]), int(span["step"]))
            if key not in current or slot in current[key]:  # the same step checked again, after a rollback
                current[key] = {}
                occurrences.append(current[key])
            current[key][slot] = span
        return cls(tuple(_longest(of_ranks.values()) for of_ranks in occurrences))

    def before(self, t: float) -> float:
        """Seconds of checks before `t`."""
        return sum(max(min(t, end) - begin, 0.0) for begin, end in self.intervals)

    def between(self, begin: float | None, end: float | None) -> float | None:
        """Seconds from `begin` to `end` without checks; None if either is."""
        if begin is None or end is None:
            return None
        return end - begin - (self.before(end) - self.before(begin))


def _longest(spans: Iterable[Event]) -> tuple[float, float]:
    found = list(spans)
    end = max(float(span["t1"]) for span in found)
    return end - max(float(span["t1"]) - float(span["t0"]) for span in found), end


def parts(found: Points, instrument: Instrument) -> dict[str, float | None]:
    """Seconds of each of PARTS."""
    moments = found.in_order()
    between = [instrument.between(begin, end) for begin, end in pairwise(moments.values())]
    named = dict(zip((part for part in PARTS if part != "queue"), between, strict=True)) | {"queue": None}
    if found.queues and (restart_s := named["restart"]) is not None:
        queue_s = sum(end - begin for begin, end in found.queues)  # nobody works meanwhile, no instrument either
        named |= {"queue": queue_s, "restart": restart_s - queue_s}
    return {part: named[part] for part in PARTS}
