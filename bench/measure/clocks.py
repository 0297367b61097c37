"""Clocks of nodes: one node's monotonic time in node 0's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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

    def shifted(self, seconds: float) -> NodeClock:
        """In the time of an earlier start of the job: node 0's clock then, from node 0's clock now."""
        return replace(self, offset_s=tuple(offset + seconds for offset in self.offset_s))

    def align(self, t: NDArray[np.float64]) -> NDArray[np.float64]:
        aligned: NDArray[np.float64] = t + np.interp(t, self.t, self.offset_s)
        return aligned

    def align_one(self, t: float) -> float:
        return float(self.align(np.float64(t)))

    def moved(self, event: dict[str, Any]) -> dict[str, Any]:
        """The event with its times in node 0's clock."""
        return event | {name: self.align_one(event[name]) for name in ("t", "t0", "t1", "t_begin") if name in event}


@dataclass(frozen=True)
class _Start:
    """One runner's clock: of one node in one start of the job."""

    wall: float  # when the runner came up
    clock: NodeClock | None


@dataclass(frozen=True)
class Clocks:
    """The nodes' clocks in one launch. An engine may start the job again, and then on other machines."""

    starts: dict[int, list[_Start]]  # by node, in order
    comparable: bool  # node 0's machine stayed the same, so that its clock did

    @classmethod
    def of(cls, runners: Sequence[Mapping[str, Any]]) -> Clocks:
        """From the runners' meta events, each with its "clock" events.

        Node 0's clock in the first start is the reference. Where a later start has node 0 on another machine, wall
        clocks tell the difference, and how far those are apart nobody has measured.
        """
        node0 = sorted((each for each in runners if each["node"] == 0), key=lambda each: int(each["incarnation"]))
        shift_s, comparable = {}, True
        for each in node0:
            same = each is node0[0] or (each.get("boot") is not None and each["boot"] == node0[0].get("boot"))
            shift_s[int(each["incarnation"])] = 0.0 if same else _behind_wall(each) - _behind_wall(node0[0])
            comparable = comparable and same
        starts: dict[int, list[_Start]] = {}
        for each in sorted(runners, key=lambda each: int(each["incarnation"])):
            clock, shift = NodeClock.of(each["clock"]), shift_s.get(int(each["incarnation"]), 0.0)
            moved = clock if clock is None or shift == 0.0 else clock.shifted(shift)
            starts.setdefault(int(each["node"]), []).append(_Start(float(each["wall"]), moved))
        return cls(starts, comparable)

    def at(self, node: int, wall: float | None) -> NodeClock | None:
        """The clock of a node when a process there began (`wall` time); None: it was never read."""
        found = self.starts.get(node, [])
        begun = [start for start in found if wall is None or start.wall <= wall] or found[:1]
        return begun[-1].clock if begun else None

    def uncertainty_s(self, nodes: set[int]) -> float | None:
        """Of times compared across nodes, the worst node's; None: a clock was never compared with node 0's first."""
        if not self.comparable:
            return None
        worst = 0.0
        for node in nodes - {0}:
            for start in self.starts.get(node) or [_Start(0.0, None)]:
                if start.clock is None:
                    return None
                worst = max(worst, start.clock.uncertainty_s)
        return worst


def _behind_wall(runner: Mapping[str, Any]) -> float:
    """Wall time less monotonic time, s."""
    return float(runner["wall"]) - float(runner["mono"])
