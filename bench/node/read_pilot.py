"""From the events of a finished pilot launch to its figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.measure.events import LaunchRecord, read_launch
from bench.measure.saves import samples
from bench.measure.timeline import job_steps
from bench.node.pilot import Pilot
from bench.schema import Sample


def read_pilot(folder: Path) -> Pilot:
    """Raises ValueError when the launch shows no steps: then there is nothing to plan by."""
    launch = read_launch(folder)
    steps = job_steps(launch)
    lengths = np.diff(steps.end)[(np.diff(steps.step) == 1) & (steps.use[1:] == "warm") & (steps.segment[1:] >= 0)]
    if len(lengths) == 0:
        raise ValueError(f"{folder}: the pilot launch recorded no steps")
    saves = samples([launch])
    later = [sample for sample in saves if sample.save > 0]
    startup_s, around_s = _edges(launch, float(steps.end[0]))
    return Pilot(
        step_s=float(np.median(lengths)),
        startup_s=startup_s,
        around_s=around_s,
        blocking_s=_worst(later, "blocking_s"),
        durable_s=_worst(later, "durable_s"),
        first_durable_s=_worst([sample for sample in saves if sample.save == 0], "durable_s"),
        written_bytes=max((sample.written_bytes for sample in saves if sample.written_bytes), default=None),
    )


def _edges(launch: LaunchRecord, first_step: float) -> tuple[float, float]:
    """Seconds from launch to first step, and of everything around the processes (probes, checks, the end)."""
    begins = [event["t"] for runner in launch.runners for event in runner.named("launch_begin")]
    ends = [event["t"] for runner in launch.runners for event in runner.named("launch_end")]
    last_step = max(float(worker.steps.t1[-1]) for worker in launch.workers if len(worker.steps))
    around = min(begins) - min(runner.first_t for runner in launch.runners)
    return first_step - min(begins), 2 * around + max(ends) - last_step  # probes stand before and after


def _worst(saves: Sequence[Sample], name: str) -> dict[str, float]:
    """The largest value of each arm; an arm without one is left out."""
    found: dict[str, float] = {}
    for sample in saves:
        value = getattr(sample, name)
        if value is not None:
            found[sample.arm] = max(found.get(sample.arm, 0.0), value)
    return found
