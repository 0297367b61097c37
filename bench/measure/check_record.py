"""Validity of the record itself: launches, event files, clocks, the ledger, what was left behind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import median

from bench.measure.events import LaunchRecord
from bench.measure.evidence import Evidence, Level, answer, instants, listed
from bench.measure.slots import slots_without_wall
from bench.schema import Check

_PROBLEM_LEVEL: dict[str, Level] = {
    "torn": "note",
    "damaged": "warn",
    "gap": "invalid",
    "doubled": "invalid",
    "out_of_order": "invalid",
    "overlap": "invalid",
    "unclosed": "invalid",
}
_RANK: dict[Level, int] = {"ok": 0, "note": 1, "warn": 2, "invalid": 3}

UNATTRIBUTED_WARN, UNATTRIBUTED_INVALID = 0.02, 0.05
CLOCK_SHARE_OF_S = 0.10
IDLE_LOAD_PER_CPU = 0.5


def launches(evidence: Evidence) -> Check:
    """Did every launch that was started come to its measured end?"""
    complete = [launch for launch in evidence.measured_launches if launch.complete]
    skipped = [launch.index for launch in evidence.launches if launch.skipped]
    failed = [launch for launch in evidence.launches if not launch.complete and not launch.skipped]
    level: Level = "invalid" if not complete else "warn" if failed else "note" if skipped else "ok"
    parts = [f"{len(complete)} of {len(evidence.measured_launches)} measured launches came to their end"]
    parts += [f"others failed: {listed(map(_failure, failed))}"] if failed else []
    parts += [f"left out for the budget: {listed(skipped)}"] if skipped else []
    remedy = (
        "read launches/<k>/logs, mend the cause, run again with resume=PATH; raise the budget for what was left out"
    )
    return answer("launches", level, "; ".join(parts), remedy)


def _failure(launch: LaunchRecord) -> str:
    reason = launch.launch.get("reason")
    return f"{launch.index} ({launch.launch.get('status')}{f': {reason}' if reason else ''})"


def events(evidence: Evidence) -> Check:
    """Are the event files whole and in order?"""
    found: Counter[str] = Counter()
    files: dict[str, str] = {}
    for launch in evidence.launches:
        for stream in (*launch.workers, *launch.writers, *launch.runners):
            for problem, count in stream.problems.items():
                found[problem] += count
                files.setdefault(problem, f"launch {launch.index}, {stream.name}")
    unreadable = [name for launch in evidence.launches for name in launch.unreadable]
    levels: list[Level] = [_PROBLEM_LEVEL[problem] for problem in found] + (["warn"] if unreadable else [])
    described = [f"{count} {problem} (first: {files[problem]})" for problem, count in found.items()]
    described += [f"{len(unreadable)} files without a readable first line ({listed(unreadable)})"] if unreadable else []
    return answer(
        "events",
        max(levels, key=_RANK.__getitem__, default="ok"),
        listed(described, len(described)) or "all event files are whole and in order",
        "torn lines come from killed processes and are harmless; for anything else check the file system and run again",
    )


def unattributed(evidence: Evidence) -> Check:
    """Does the ledger explain the slots' time? The worst launch counts; negative means time was counted twice."""
    worst_share, worst_launch = 0.0, None
    for launch in evidence.measured_launches:
        share = _unattributed_share(evidence, launch.index)
        if share is not None and (worst_launch is None or abs(share) > abs(worst_share)):
            worst_share, worst_launch = share, launch.index
    without = [
        f"launch {launch.index} slot {slot}"
        for launch in evidence.measured_launches
        for slot in slots_without_wall(launch)
    ]
    if worst_launch is None:
        return answer("unattributed", "warn", "no launch has a ledger", "see the check on launches")
    size = abs(worst_share)
    level: Level = "invalid" if size > UNATTRIBUTED_INVALID else "warn" if size > UNATTRIBUTED_WARN or without else "ok"
    reason = f"at most {worst_share:.2%} of a launch's slot time is unattributed (launch {worst_launch})"
    reason += f"; no wall time is known for {listed(without)}" if without else ""
    return answer(
        "unattributed", level, reason, "look at the launch's trace for time that no span covers, and for a busy machine"
    )


def _unattributed_share(evidence: Evidence, launch: int) -> float | None:
    """Of the largest size over the launch's slots, so that a surplus in one does not hide a lack in another."""
    wall: defaultdict[str, float] = defaultdict(float)
    rest: defaultdict[str, float] = defaultdict(float)
    for row in evidence.ledger:
        if row.launch == launch:
            wall[row.slot] += row.seconds
            if row.category == "unattributed":
                rest[row.slot] += row.seconds
    shares = [rest[slot] / seconds for slot, seconds in wall.items() if seconds > 0]
    return max(shares, key=abs, default=None)


def clocks(evidence: Evidence) -> Check:
    """Are times of different nodes comparable at the size of what is measured?"""
    remedy = "use a quieter network between the node runners (cluster.interface), or larger checkpoints"
    unknown = [launch.index for launch in evidence.measured_launches if launch.uncertainty_s is None]
    again = [launch.index for launch in evidence.measured_launches if launch.launch.get("relaunches")]
    if set(unknown) & set(again):
        reason = f"the engine started launches {listed(unknown)} again on other machines, whose clocks nobody compared"
        remedy = "times across that restart are as exact as the machines' wall clocks (chrony, ntp)"
        return answer("clocks", "warn", reason, remedy)
    if unknown:
        return answer("clocks", "warn", f"a node's clock was never compared in launches {listed(unknown)}", remedy)
    if evidence.config["num_nodes"] == 1:
        return answer("clocks", "ok", "one node, one clock", "")
    uncertainty_s = max((launch.uncertainty_s or 0.0 for launch in evidence.measured_launches), default=0.0)
    unresolved = []
    for arm in evidence.arms:
        blocking = [s.blocking_s for s in evidence.measured(arm.name) if s.blocking_s is not None and s.written_bytes]
        if blocking and uncertainty_s > CLOCK_SHARE_OF_S * median(blocking):
            unresolved.append(f"{arm.name} ({median(blocking):.3g} s)")
    reason = f"clocks of nodes agree within {uncertainty_s:.2g} s"
    reason += f", more than {CLOCK_SHARE_OF_S:.0%} of the blocking time of {listed(unresolved)}" if unresolved else ""
    return answer("clocks", "warn" if unresolved else "ok", reason, remedy)


def machine_busy(evidence: Evidence) -> Check:
    """Was the machine idle before each occasion's first launch? Later loads are the suite's own from a minute ago."""
    busy, seen = [], 0
    for launch in _first_launches(evidence):
        for load in instants(launch, "load"):
            seen += 1
            if load["load1"] > IDLE_LOAD_PER_CPU * load["cpus"]:
                busy.append(f"{load['load1']:.1f} on {load['cpus']} CPUs before launch {launch.index}")
    if not seen:
        return answer(
            "machine_busy", "note", "the load before the run was not recorded", "see that the node runner can read it"
        )
    reason = f"load of the last minute: {listed(busy)}" if busy else "the machine was idle before the run"
    return answer(
        "machine_busy", "warn" if busy else "ok", reason, "end other work on the machine, wait a minute, run again"
    )


def _first_launches(evidence: Evidence) -> Iterator[LaunchRecord]:
    seen: set[int] = set()
    for launch in sorted(evidence.launches, key=lambda launch: launch.index):
        if launch.occasion not in seen:
            seen.add(launch.occasion)
            yield launch


def leftovers(evidence: Evidence) -> Check:
    """Did processes, ports or shared memory of a launch, or what a fault had changed, live on into a later one?"""
    alive = [
        f"launch {launch.index}: {kind} {event[kind]}"
        for launch in evidence.launches
        for event in instants(launch, "leftovers")
        for kind in ("pids", "ports", "shm")
        if event.get(kind)
    ]
    changed = [
        f"launch {launch.index}: by fault {fault} ({left})"
        for launch in evidence.launches
        for fault, left in _not_undone(launch).items()
    ]
    found = [*alive, *changed]
    remedies = ["end what is left (python -m bench doctor names it)"] if alive else []
    remedies += ["do what is said of each fault"] if changed else []
    reason = f"left over: {listed(found)}" if found else "nothing was left over between launches"
    return answer("leftovers", "invalid" if found else "ok", reason, f"{', '.join(remedies)} and run again")


def _not_undone(launch: LaunchRecord) -> dict[str, str]:
    """What faults left for good, by fault: the last try counts."""
    told = sorted(instants(launch, "undone"), key=lambda event: float(event["t"]))
    last = {str(event["fault"]): event["evidence"].get("left") for event in told}
    return {fault: left for fault, left in last.items() if left}
