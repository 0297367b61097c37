"""Is the instrument right? Known durations go in at one end and are compared with what comes out at the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from bench.schema import Check, Sample

TOLERANCE_SHARE, TOLERANCE_S = 0.01, 0.002  # within 1 % or 2 ms, whichever is wider


def expected(known: Mapping[str, float], step_s: float) -> dict[str, float]:
    """What a synthetic save with paced steps must show: seconds, and a share for slowdown_share.

    `known`: block_s, durable_s and slowdown. A step that begins while the write is in flight takes `slowdown` times as
    long; so many begin before the write is durable, and the cost is the blocking time plus what they take longer.
    """
    block_s, durable_s, slowdown = known["block_s"], known["durable_s"], known.get("slowdown", 1.0)
    slow_steps = math.ceil(max(durable_s - block_s, 0.0) / (slowdown * step_s))
    figures = {"blocking_s": block_s, "durable_s": durable_s, "control_step_s": step_s}
    return figures | {
        "cost_s": block_s + slow_steps * (slowdown - 1.0) * step_s,
        "slowdown_share": 1.0 - 1.0 / slowdown,
    }


def calibration_checks(samples: Sequence[Sample], known: Mapping[str, float], step_s: float) -> list[Check]:
    """One check per figure: the median over measured synthetic saves against what is known; off means invalid."""
    measured = [sample for sample in samples if sample.arm == "synthetic" and sample.measured]
    return [
        _check(name, value, [getattr(s, name) for s in measured]) for name, value in expected(known, step_s).items()
    ]


def _check(name: str, known: float, values: Sequence[float | None]) -> Check:
    found = [value for value in values if value is not None]
    check = f"calibration: {name}"
    if not found or len(found) < len(values):
        return Check(
            check,
            "invalid",
            f"{len(values) - len(found)} of {len(values)} saves gave no figure",
            "look into the launch's logs",
        )
    middle = median(found)
    allowed = max(TOLERANCE_SHARE * known, TOLERANCE_S)
    text = f"measured {middle:.6f} (n = {len(found)}), known {known:.6f}, allowed {allowed:.6f} off"
    if abs(middle - known) <= allowed:
        return Check(check, "ok", text)
    return Check(
        check,
        "invalid",
        text,
        "free the machine of other work and run again; if it stays, do not trust figures taken here",
    )
