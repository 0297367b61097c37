"""What the pilot launch shows, and what follows from it for the launches after it.

The pilot is never measured. Its step and save times set intervals that were left "auto", how long a launch is expected
to take (the budget), when it is given up (the deadline), and the timeouts of collectives, in one coherent order.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from bench.config import Run
from bench.design import Launch, Segment
from bench.recovery.timeouts import DEFAULT_WORKERS_STOP_S, Timeouts, derive

MIN_INTERVAL_STEPS = 8
UNSATURATED = 2.0  # an automatic period is at least this many times the longest write
PATIENCE = 3.0  # a launch is given up after so many times its expected duration, plus GRACE_S
GRACE_S = 60.0
PILOT_S = 600.0  # the pilot is given so long at least
FAULT_S = 8.0  # beside a new start: until a fault is found, what it lets die has died, and work is caught up


@dataclass(frozen=True)
class Pilot:
    """Seconds, from the pilot's second saves (its first ones show the start of a writer)."""

    step_s: float
    startup_s: float  # launch to first step
    around_s: float  # probes, clock and content checks, end of processes
    blocking_s: dict[str, float]
    durable_s: dict[str, float]
    first_durable_s: dict[str, float]  # of the first saves: until the writer had started and written
    written_bytes: int | None = None  # of its largest checkpoint, all ranks; None: nothing was written, or not known

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def interval(self) -> int:
        """Steps between saves for checkpoint.interval=auto: the period is at least twice the longest write."""
        longest = max(self.durable_s.values(), default=0.0)
        return max(MIN_INTERVAL_STEPS, math.ceil(UNSATURATED * longest / self.step_s))

    def duration_s(self, launch: Launch) -> float:
        """Expected wall time of a launch, from its start to the end of its last process."""
        total = self.startup_s + self.around_s
        for arm in launch.arms:
            total += max(0.0, self.first_durable_s.get(arm, 0.0) - self.durable_s.get(arm, 0.0))
        total += sum(self._segment_s(segment) for segment in launch.segments)
        total += len(launch.faults) * (self.startup_s + FAULT_S)
        if launch.verify:
            total += sum(self.durable_s.values()) * 2 + 3 * self.step_s * len(launch.arms)
        return total

    def _segment_s(self, segment: Segment) -> float:
        blocking, durable = self.blocking_s.get(segment.arm, 0.0), self.durable_s.get(segment.arm, 0.0)
        if segment.interval is None:
            after = max(segment.after_steps, math.ceil(max(durable - blocking, 0.0) / self.step_s) + 1)
            return blocking + (segment.control_steps + after + segment.settle_steps) * self.step_s
        return segment.saves * (blocking + segment.interval * self.step_s) + durable

    def timeouts(self, config: Run) -> Timeouts:
        """The one coherent set for launches with faults. Raises BadInput for overrides that put it out of order."""
        times = (self.blocking_s, self.durable_s, self.first_durable_s)  # a restarted rank's next save is a first one
        save_s = max((value for each in times for value in each.values()), default=0.0)
        recovery = config.recovery
        away_s = (recovery.node_return_s or 0.0) + min(recovery.backoff_s * 4, recovery.backoff_cap_s)
        found = derive(self.step_s, save_s, self.startup_s, recovery.timeouts, away_s)
        found.require_order()
        return found

    def collective_timeout_s(self) -> float:
        """Longer than any wait that is no hang: a step and a save of the slowest arm, ten times over."""
        slowest = max([*self.blocking_s.values(), *self.durable_s.values()], default=0.0)
        return max(60.0, 10 * (self.step_s + slowest))


def endurance_s(config: Run, pilot: Pilot, timeouts: Timeouts, launch: Launch, collective_s: float) -> float:
    """When a launch with faults is given up: its work takes PATIENCE times as long as foreseen, and every fault is
    found by the slowest detector and costs a whole start.

    The slowest is the timeout of the launch's process groups, `collective_s`: the rules of bench.recovery.timeouts put
    those of a layer's own below it. A fault that is not recovered costs this long, so it is an upper bound of what a
    recovery takes and no more.
    """
    if config.launch_deadline_s is not None:
        return config.launch_deadline_s
    recovery, away_s = config.recovery, config.recovery.node_return_s or 0.0
    work_s = pilot.duration_s(replace(launch, faults=()))
    stop_s = max(timeouts.workers_stop_s, DEFAULT_WORKERS_STOP_S)  # torchrun's cannot be set
    fault_s = collective_s + stop_s + 2 * pilot.startup_s + FAULT_S + away_s
    alone_s = 0.0
    if launch.layer == "pod_restart":  # nodes start again out of step, and wait for each other
        waits = [min(recovery.backoff_s * 2**k, recovery.backoff_cap_s) for k in range(len(launch.faults) + 1)]
        alone_s = sum(waits) + len(launch.faults) * timeouts.rendezvous_s
    return PATIENCE * work_s + GRACE_S / 2 + len(launch.faults) * fault_s + alone_s


def deadline_s(config: Run, expected_s: float | None, assumed_s: float | None = None) -> float:
    """When a launch is ended: as configured, else well beyond what the pilot predicts.

    The pilot itself: generously, and well beyond `assumed_s`, what bench.predict assumes of it (None: it cannot tell).
    """
    if config.launch_deadline_s is not None:
        return config.launch_deadline_s
    if expected_s is None:
        return max(PILOT_S, PATIENCE * (assumed_s or 0.0))
    return PATIENCE * expected_s + GRACE_S
