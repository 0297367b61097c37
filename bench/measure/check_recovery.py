"""Validity of recovery figures: faults that struck, timeouts in order, the right state, every point on record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench.measure.events import LaunchRecord
from bench.measure.evidence import Evidence, Level, answer, listed
from bench.measure.layers import LEAST_BLOCKS
from bench.schema import STRUCK, TWIN, Check, Recovery

LEAST_EPISODES = 3  # of one fault under one layer, for a range that says something
TIMEOUT_SHARE = 0.01  # libraries round

# What finds a hang, by layer: nothing that the healthy job does may take longer.
HANG_TIMEOUTS: dict[str, tuple[str, ...]] = {
    "none": ("collective_s",),
    "torchrun": ("collective_s",),
    "pod_restart": ("collective_s",),
    "requeue": ("collective_s",),
    "in_job": ("rank_heartbeat_s",),
    "in_process": ("soft_s",),
    "nested": ("soft_s", "nested_heartbeat_s"),
}
# Which timeout must be the shorter of two, by layer, as far as both are on record.
ORDER: dict[str, tuple[tuple[str, str], ...]] = {
    "in_job": (("rank_heartbeat_s", "collective_s"),),
    "in_process": (("soft_s", "hard_s"), ("hard_s", "barrier_s"), ("hard_s", "collective_s")),
    "nested": (("soft_s", "hard_s"), ("hard_s", "nested_heartbeat_s"), ("nested_heartbeat_s", "collective_s")),
}
_PARTS = ("detect_s", "stop_s", "restart_s", "load_s", "first_step_s")


def launches(evidence: Evidence) -> Check:
    """Did every launch go to its end, or to the end that its fault gave it?"""
    started = [launch for launch in evidence.measured_launches if not launch.skipped]
    skipped = [launch.index for launch in evidence.measured_launches if launch.skipped]
    failed = [launch for launch in started if not launch.complete and not _explained(launch)]
    failed += [launch for launch in evidence.launches if launch.kind == "pilot" and not launch.complete]
    level: Level = "invalid" if len(failed) >= len(started) else "warn" if failed else "note" if skipped else "ok"
    parts = [f"{len(started) - len(failed)} of {len(started)} launches came to their end, or failed by their fault"]
    parts += [f"others failed: {listed(map(_failure, failed))}"] if failed else []
    parts += [f"left out for the budget: {listed(skipped)}"] if skipped else []
    remedy = "read launches/<k>/logs, mend the cause, run again with resume=PATH; raise the budget for what is missing"
    return answer("launches", level, "; ".join(parts), remedy)


def _explained(launch: LaunchRecord) -> bool:
    """A launch that its fault ended is a result, and one of which nothing can strike here was never started."""
    ended = bool(launch.faults) or launch.launch.get("end") == "unavailable"
    return launch.kind == STRUCK and ended and not launch.left_in_queue


def _failure(launch: LaunchRecord) -> str:
    reason = launch.launch.get("reason")
    return f"{launch.index} ({launch.launch.get('status')}{f': {reason}' if reason else ''})"


def faults_fired(evidence: Evidence) -> Check:
    """Did every planned fault strike? What a machine cannot do is said, and no fault of the run."""
    silent = [f"{_where(r)} ({r.reason})" for r in evidence.recoveries if r.outcome == "not_fired"]
    missing = {record.label: record.reason for record in evidence.recoveries if record.outcome == "unavailable"}
    struck = sum(record.episode is not None for record in evidence.recoveries)
    level: Level = "invalid" if not struck else "warn" if silent else "note" if missing else "ok"
    parts = [f"did not strike: {listed(silent)}"] if silent else []
    parts += [f"unavailable here: {listed(f'{label} ({reason})' for label, reason in missing.items())}"]
    reason = "; ".join(parts if missing else parts[:-1]) or "every planned fault struck"
    if not struck:
        reason = f"no fault struck; {reason}" if silent or missing else "no fault was planned"
    remedy = "a fault after one that was not recovered from has no occasion; for others see their reasons"
    return answer("faults_fired", level, reason, remedy)


def timeouts(evidence: Evidence) -> Check:
    """Are timeouts in order, longer than what a healthy job does, and in the libraries as they were configured?"""
    found: list[str] = []
    known = False
    for launch in _struck(evidence):
        configured = _configured(launch)
        known |= bool(configured)
        layer = str(launch.launch["layer"])
        found += [f"launch {launch.index} ({layer}): {text}" for text in _out_of_order(launch, layer, configured)]
        found += [f"launch {launch.index} ({layer}): {text}" for text in _unlike(launch, configured)]
    if not known:
        return answer("timeouts", "note", "the timeouts of the launches are not on record", "look into launch.json")
    reason = f"timeouts: {listed(dict.fromkeys(found))}" if found else "timeouts are in order and as configured"
    remedy = "leave recovery.timeouts to the suite, or give longer ones: a hasty layer restarts healthy jobs"
    return answer("timeouts", "warn" if found else "ok", reason, remedy)


def _struck(evidence: Evidence) -> list[LaunchRecord]:
    return [launch for launch in evidence.measured_launches if launch.kind == STRUCK and not launch.skipped]


def _configured(launch: LaunchRecord) -> dict[str, float]:
    """The timeouts of a launch, s; of the process group the one that its layer was given."""
    given: Mapping[str, float] = launch.launch.get("timeouts") or {}
    collective_s = launch.launch.get("collective_timeout_s")
    return {**given, **({} if collective_s is None or not given else {"collective_s": float(collective_s)})}


def _out_of_order(launch: LaunchRecord, layer: str, configured: Mapping[str, float]) -> Iterator[str]:
    longest_s, what = _longest_silence(launch)
    for name in HANG_TIMEOUTS.get(layer, ()):
        if name in configured and configured[name] <= longest_s:
            yield f"{name} {configured[name]:.3g} s is shorter than a {what} of {longest_s:.3g} s"
    for shorter, longer in ORDER.get(layer, ()):
        if shorter in configured and longer in configured and configured[shorter] >= configured[longer]:
            yield f"{shorter} {configured[shorter]:.3g} s is not below {longer} {configured[longer]:.3g} s"


def _longest_silence(launch: LaunchRecord) -> tuple[float, str]:
    """The longest step or save of a rank before any fault, or load, s."""
    healthy = float(launch.faults[0]["t"]) if launch.faults else float("inf")
    steps = [worker.steps.between(-float("inf"), healthy) for worker in launch.workers]
    found = [(float((each.t1 - each.t0).max()), "step") for each in steps if len(each)]
    found += [
        (float(span["t1"] - span["t0"]), str(span["name"]))
        for worker in launch.workers
        for span in worker.spans
        if span["name"] == "load" or (span["name"] == "save" and span["t1"] < healthy)
    ]
    return max(found, default=(0.0, "step"))


def _unlike(launch: LaunchRecord, configured: Mapping[str, float]) -> Iterator[str]:
    """Timeouts that a library uses in place of those that it was given."""
    for worker in launch.workers:
        for event in worker.named("effective"):
            for name in event.keys() & configured.keys():
                if abs(float(event[name]) - configured[name]) > TIMEOUT_SHARE * configured[name]:
                    yield f"{name} is {float(event[name]):.3g} s in effect and {configured[name]:.3g} s as configured"


def false_alarms(evidence: Evidence) -> Check:
    """Did a layer restart a job that no fault had struck?"""
    found = [f"{layer.layer} ({layer.false_alarms})" for layer in evidence.layers if layer.false_alarms]
    twins = [launch.index for launch in evidence.measured_launches if launch.kind == TWIN and _restarted(launch)]
    found += [f"the twin of launch {index}" for index in twins]
    reason = f"restarts without a fault: {listed(found)}" if found else "no layer restarted a healthy job"
    return answer(
        "false_alarms",
        "warn" if found else "ok",
        reason,
        "a slow save or a busy machine is the classic cause: give longer recovery.timeouts",
    )


def _restarted(launch: LaunchRecord) -> bool:
    return any(sum(len(stream.named("attempt")) for stream in streams) > 1 for streams in launch.slots().values())


def resumed_state(evidence: Evidence) -> Check:
    """Did the job go on with the state that was saved, and as if nothing had happened?"""
    recovered = _recovered(evidence)
    wrong = [_where(record) for record in recovered if record.resume_consistent is False]
    inexact = [_where(record) for record in recovered if record.resume_exact is False]
    unknown = [_where(r) for r in recovered if r.resume_consistent is None and r.resumed_step != 0]
    uncompared = sum(r.resume_exact is None and r.world_size_after == r.world_size_before for r in recovered)
    parts = [f"loaded another state than was saved: {listed(wrong)}"] if wrong else []
    parts += [f"not exactly as the twin afterwards: {listed(inexact)}"] if inexact else []
    parts += [f"not known what was loaded: {listed(unknown)}"] if unknown else []
    parts += [f"{uncompared} not compared with a twin"] if uncompared else []
    level: Level = "invalid" if wrong else "warn" if inexact or unknown else "note" if uncompared else "ok"
    reason = "; ".join(parts) or "every recovery loaded what was saved, and went on as the twin"
    remedy = "do not trust a layer or strategy that loads another state; a device that computes anew may differ in bits"
    return answer("resumed_state", level, reason, remedy)


def recovery_points(evidence: Evidence) -> Check:
    """Are all points of every recovery on record?"""
    found = [
        f"{_where(record)} ({', '.join(missing)})"
        for record in _recovered(evidence)
        if (missing := [name.removesuffix("_s") for name in _PARTS if getattr(record, name) is None])
    ]
    reason = f"parts without evidence: {listed(found)}" if found else "every recovery has all of its parts"
    remedy = "their time is in the total; look into launches/<k>/logs for what did not tell"
    return answer("recovery_points", "warn" if found else "ok", reason, remedy)


def enough_episodes(evidence: Evidence) -> Check:
    """At least 3 episodes of each fault under each layer."""
    few = [
        f"{fault.fault} under {layer.layer} ({fault.episodes})"
        for layer in evidence.layers
        for fault in layer.faults
        if 0 < fault.episodes < LEAST_EPISODES
    ]
    reason = f"fewer than {LEAST_EPISODES} episodes: {listed(few)}" if few else "every cell has 3 episodes or more"
    return answer("enough_episodes", "note" if few else "ok", reason, "raise blocks, or append=PATH")


def layer_prices(evidence: Evidence) -> Check:
    """Is it known what every layer costs when nothing fails?"""
    unknown = [layer.layer for layer in evidence.layers if layer.overhead_share is None]
    reason = f"no price without faults of {listed(unknown)}" if unknown else "every layer has its price without faults"
    remedy = f"it takes {LEAST_BLOCKS} blocks, each with its twin, and a first fault that leaves some steps before it"
    return answer("layer_prices", "note" if unknown else "ok", reason, remedy)


def outlived(evidence: Evidence) -> Check:
    """Had the struck processes ended when their successors were ready? A late one may still write."""
    found = [f"{_where(record)} ({record.outlived})" for record in _recovered(evidence) if record.outlived]
    reason = f"processes of before beside the new ones: {listed(found)}" if found else "no process outlived its fault"
    remedy = "a writer of before can break the next save; its layer should end or drain it first"
    return answer("outlived", "warn" if found else "ok", reason, remedy)


def _recovered(evidence: Evidence) -> Sequence[Recovery]:
    return [record for record in evidence.recoveries if record.outcome == "recovered"]


def _where(record: Recovery) -> str:
    return f"{record.label} under {record.layer}, launch {record.launch}"
