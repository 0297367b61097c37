"""Energy of stretches of time, from the samples of a GPU's counter: what was burned while training stood still."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Spans = Sequence[tuple[float, float]]


def energy_j(samples: Iterable[Mapping[str, Any]], spans: Spans) -> float | None:
    """Joules that one GPU used within `spans` (begin, end), in the clock of the samples' `t`.

    `samples`: its `gpu` events, in order. The counter is read as linear between two looks, so a span shorter than their
    distance gets its part of the mean power around it. None where a span is not covered by samples with a counter, or
    where the counter went back (the driver was loaded again).
    """
    known = [(event["t"], event["energy_j"]) for event in samples if event.get("energy_j") is not None]
    if len(known) < 2:
        return None
    t, counter = np.array(known, dtype=np.float64).T
    bounds = np.array(spans, dtype=np.float64).reshape(-1, 2)
    covered = bounds.size == 0 or (bounds.min() >= t[0] and bounds.max() <= t[-1])
    if not covered or (np.diff(counter) < 0).any():
        return None
    begin, end = np.interp(bounds, t, counter).T
    return float((end - begin).sum())
