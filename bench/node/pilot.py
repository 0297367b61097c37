"""What the pilot launch shows, and what follows from it for the launches after it.

The pilot is never measured. Its step and save times set intervals that were left "auto", how long a launch is expected
to take (the budget), when it is given up (the deadline), and the timeouts of collectives, in one coherent order.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from bench.config import Run
from bench.design import Launch, Segment

MIN_INTERVAL_STEPS = 8
UNSATURATED = 2.0  # an automatic period is at least this many times the longest write
PATIENCE = 3.0  # a launch is given up after so many times its expected duration, plus GRACE_S
GRACE_S = 60.0


@dataclass(frozen=True)
class Pilot:
    """Seconds, from the pilot's second saves (its first ones show the start of a writer)."""

    step_s: float
    startup_s: float  # launch to first step
    around_s: float  # probes, clock and content checks, end of processes
    blocking_s: dict[str, float]
    durable_s: dict[str, float]
    first_durable_s: dict[str, float]  # of the first saves: until the writer had started and written

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
        if launch.verify:
            total += sum(self.durable_s.values()) * 2 + 3 * self.step_s * len(launch.arms)
        return total

    def _segment_s(self, segment: Segment) -> float:
        blocking, durable = self.blocking_s.get(segment.arm, 0.0), self.durable_s.get(segment.arm, 0.0)
        if segment.interval is None:
            after = max(segment.after_steps, math.ceil(max(durable - blocking, 0.0) / self.step_s) + 1)
            return blocking + (segment.control_steps + after + segment.settle_steps) * self.step_s
        return segment.saves * (blocking + segment.interval * self.step_s) + durable

    def collective_timeout_s(self) -> float:
        """Longer than any wait that is no hang: a step and a save of the slowest arm, ten times over."""
        slowest = max([*self.blocking_s.values(), *self.durable_s.values()], default=0.0)
        return max(60.0, 10 * (self.step_s + slowest))


def deadline_s(config: Run, expected_s: float | None) -> float:
    """When a launch is ended: as configured, else well beyond what the pilot predicts (the pilot itself: generous)."""
    if config.launch_deadline_s is not None:
        return config.launch_deadline_s
    return 600.0 if expected_s is None else PATIENCE * expected_s + GRACE_S
