"""Stretches of a slot's time with labels, and how much of each no span covers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Label = tuple[str | None, str]  # (arm, category)


@dataclass(frozen=True)
class Window:
    """A stretch of time, s, and what it is unless a span says otherwise."""

    begin: float
    end: float
    label: Label


class Coverage:
    """How many seconds spans cover, counted as often as they are there, so that a doubled one shows as too much."""

    def __init__(self, t0: NDArray[np.float64], t1: NDArray[np.float64]) -> None:
        self._t0, self._t1 = np.sort(t0), np.sort(t1)
        self._sum0 = np.concatenate([[0.0], np.cumsum(self._t0)])
        self._sum1 = np.concatenate([[0.0], np.cumsum(self._t1)])

    def before(self, t: float) -> float:
        """Seconds covered before `t`."""
        begun, ended = int(np.searchsorted(self._t0, t)), int(np.searchsorted(self._t1, t))
        return float((begun * t - self._sum0[begun]) - (ended * t - self._sum1[ended]))

    def free(self, begin: float, end: float) -> float:
        """Seconds of a stretch that no span covers; negative where spans overlap."""
        return end - begin - (self.before(end) - self.before(begin))


def pieces(windows: Iterable[Window], begin: float, end: float) -> list[Window]:
    """What is left of each window within `begin` and `end` once those before it in the order have taken theirs."""
    free: list[tuple[float, float]] = [(begin, end)]
    found = []
    for window in windows:
        rest = []
        for a, b in free:
            inner_a, inner_b = max(a, window.begin), min(b, window.end)
            if inner_a >= inner_b:
                rest.append((a, b))
                continue
            found.append(Window(inner_a, inner_b, window.label))
            rest += [(x, y) for x, y in ((a, inner_a), (inner_b, b)) if x < y]
        free = rest
    return found


def spans_of(events: Sequence[dict[str, float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Begins and ends as arrays, s."""
    return (
        np.array([float(event["t0"]) for event in events], dtype=np.float64),
        np.array([float(event["t1"]) for event in events], dtype=np.float64),
    )
