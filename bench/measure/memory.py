"""Memory that an arm takes above training alone: peaks of its own launches less those of the block's control."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.measure.events import LaunchRecord
from bench.measure.saves import CONTROL_ARM
from bench.measure.statistics import figure

KINDS = ("host_bytes", "shm_bytes", "device_bytes")


def peak_figures(launches: Sequence[LaunchRecord], arm: str) -> dict[str, Any]:
    """The fields peak_host_bytes, peak_shm_bytes and peak_device_bytes of an arm, in bytes, over the blocks.

    Only launches with a single arm tell arms apart (full design); elsewhere every field is None. Memory is bounded on
    each node by itself, so the difference is taken node by node, and the worst node counts.
    """
    return {f"peak_{kind}": figure(_above_control(launches, arm, kind)) for kind in KINDS}


def _above_control(launches: Sequence[LaunchRecord], arm: str, kind: str) -> list[float]:
    single = [launch for launch in launches if launch.kind == "full" and len(launch.launch["arms"]) == 1]
    controls = {launch.block: _peaks(launch, kind) for launch in single if launch.launch["arms"] == [CONTROL_ARM]}
    found = []
    for launch in single:
        control = controls.get(launch.block, {})
        peaks = _peaks(launch, kind) if launch.launch["arms"] == [arm] else {}
        if peaks and peaks.keys() == control.keys():
            found.append(max(peaks[node] - control[node] for node in peaks))
    return found


def _peaks(launch: LaunchRecord, kind: str) -> dict[int, float]:
    """Largest reading of each node up to the end of the measured part; the reading back afterwards is no saving."""
    ends = [float(event["t"]) for worker in launch.workers for event in worker.named("measured_end")]
    peaks: dict[int, float] = {}
    for runner in launch.runners:
        for event in runner.named("memory"):
            if event.get(kind) is not None and ends and event["t"] <= max(ends):
                peaks[runner.node] = max(peaks.get(runner.node, event[kind]), event[kind])
    return peaks
