"""Clocks of nodes: one node's monotonic time in node 0's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class NodeClock:
    """A node's monotonic clock against node 0's: offsets in seconds at one or two moments, linear between them."""

    t: tuple[float, ...]  # moments of the readings, on the node's own clock, ascending
    offset_s: tuple[float, ...]  # to be added to the node's times
    uncertainty_s: float  # half the smallest round trip, and the drift between the readings

    @classmethod
    def of(cls, events: Sequence[dict[str, Any]]) -> NodeClock | None:
        """From a runner's "clock" events before and after the launch; None if there are none."""
        readings = sorted(events, key=lambda event: float(event["t"]))
        if not readings:
            return None
        offsets = tuple(float(event["offset_s"]) for event in readings)
        half_round_trip_s = max(float(event["uncertainty_s"]) for event in readings)
        times = tuple(float(event["t"]) for event in readings)
        return cls(times, offsets, half_round_trip_s + max(offsets) - min(offsets))

    def align(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        aligned: NDArray[np.float64] = t + np.interp(t, self.t, self.offset_s)
        return aligned

    def align_one(self, t: float) -> float:
        return float(self.align(np.float64(t)))

    def moved(self, event: dict[str, Any]) -> dict[str, Any]:
        """The event with its times in node 0's clock."""
        return event | {name: self.align_one(event[name]) for name in ("t", "t0", "t1", "t_begin") if name in event}
