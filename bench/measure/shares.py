"""The share of time that saving costs, at a period (metrics.md 3). All times in seconds, all shares in 0 ... 1.

C compute time between two saves, P time from one save to the next, S blocking_s, L durable_s, K cost_s. Without saves
the C seconds of compute take C; with them P = C + K, so the share is K / P. A background write has to finish before the
next save can start one: P = max(C + K, L), and the share is (P - C) / P ("saturated" where L decides).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from bench.measure.statistics import clustered_figure
from bench.schema import Sample


@dataclass(frozen=True)
class Share:
    """What saving costs at one period. `share` by K is the headline, `stall_share` S / P its visible part."""

    period_s: float
    share: float | None  # None: K is not known
    saturated: bool
    stall_share: float | None = None
    wait_s: float = 0.0  # by which a save is longer than one that follows no write: P - (C + K) where L decides


@dataclass(frozen=True)
class Period:
    """The period at which shares are stated: exactly one of compute time and wall time, or neither (as measured)."""

    text: str  # whose period it is, in words
    compute_s: float | None = None  # C
    wall_s: float | None = None  # P
    measured: bool = False  # full design: each sample's own period


def share_at_compute(compute_s: float, cost_s: float, durable_s: float | None = None) -> Share | None:
    """The share when `compute_s` of compute lie between saves. `durable_s`: L of a background write, else None.

    None where noise makes the period vanish (C + K <= 0).
    """
    free_s = compute_s + cost_s
    period_s = free_s if durable_s is None else max(free_s, durable_s)
    if period_s <= 0:
        return None
    return Share(period_s, (period_s - compute_s) / period_s, period_s > free_s, wait_s=period_s - free_s)


def share_at_period(period_s: float, cost_s: float, durable_s: float | None = None) -> Share | None:
    """The share when saves are to come every `period_s` of wall time.

    A period not longer than K leaves no time for compute: it cannot be reached, the share is 1 and saturated. One
    shorter than L of a background write becomes L.
    """
    if period_s <= cost_s:
        reached_s = max(period_s, durable_s or 0.0)
        return Share(reached_s, 1.0, True, wait_s=max(reached_s - cost_s, 0.0))
    return share_at_compute(period_s - cost_s, cost_s, durable_s)


def period_at_share(cost_s: float, share: float) -> float | None:
    """The period (s) below which saving costs more than `share`: K / share; None if K is not greater than 0.

    Independent of the trainer's speed. For 40 % it is 2.5 K.
    """
    if not 0 < share < 1:
        raise ValueError(f"a share must lie between 0 and 1, got {share}")
    return cost_s / share if cost_s > 0 else None


def stall_share(blocking_s: float, period_s: float) -> float:
    """S / P: the part of the period that the training thread stands inside the save."""
    return blocking_s / period_s


def sample_share(sample: Sample, period: Period) -> Share | None:
    """The share of one save at `period`; None where its period is not known there, for want of K or a measured one."""
    durable_s = sample.durable_s if is_background(sample) else None
    found = _measured_share(sample, durable_s) if period.measured else _derived_share(sample.cost_s, durable_s, period)
    if found is None or sample.blocking_s is None:
        return found
    return replace(found, stall_share=min(stall_share(sample.blocking_s + found.wait_s, found.period_s), 1.0))


def _measured_share(sample: Sample, durable_s: float | None) -> Share | None:
    """1 - T_control / T of the save's own period: K is the difference of the two."""
    if not sample.period_s:
        return None
    waits = durable_s is not None and durable_s > sample.period_s  # the next save had to wait for this write
    share = None if sample.cost_s is None else sample.cost_s / sample.period_s
    return Share(sample.period_s, share, waits)


def _derived_share(cost_s: float | None, durable_s: float | None, period: Period) -> Share | None:
    if cost_s is None:
        return None
    if period.compute_s is not None:
        return share_at_compute(period.compute_s, cost_s, durable_s)
    return None if period.wall_s is None else share_at_period(period.wall_s, cost_s, durable_s)


def is_background(sample: Sample) -> bool:
    """The write outlasted the save: by what was measured, not by the arm's name."""
    return sample.durable_s is not None and sample.blocking_s is not None and sample.durable_s > sample.blocking_s


def arm_shares(samples: Sequence[Sample], period: Period) -> dict[str, Any]:
    """The fields share, stall_share, period_s and saturated of one arm, by applying `period` to each sample.

    `saturated` where it is so for at least half of the samples.
    """
    found = [(share, s.launch) for s in samples if (share := sample_share(s, period)) is not None]
    shares = [(share.share, launch) for share, launch in found if share.share is not None]
    stalls = [(share.stall_share, launch) for share, launch in found if share.stall_share is not None]
    return {
        "share": clustered_figure([value for value, _ in shares], [launch for _, launch in shares]),
        "stall_share": clustered_figure(
            [value for value, _ in stalls], [launch for _, launch in stalls], positive=True
        ),
        "period_s": median(share.period_s for share, _ in found) if found else None,
        "saturated": 2 * sum(share.saturated for share, _ in found) >= len(found) if found else None,
    }


def period_of(job: dict[str, Any], design: str, interval_steps: int | None, control_step_s: float | None) -> Period:
    """The user's period from the configuration's `job`; without one the scenario's: interval x control step."""
    if job.get("step_s") is not None and job.get("interval_steps") is not None:
        return Period("your period (job.step_s x job.interval_steps)", compute_s=job["step_s"] * job["interval_steps"])
    if job.get("period_s") is not None:
        return Period("your period (job.period_s)", wall_s=float(job["period_s"]))
    if design in ("full", "sweep"):
        return Period("the scenario's period, as measured", measured=True)
    compute_s = None if interval_steps is None or control_step_s is None else interval_steps * control_step_s
    return Period("the scenario's period (checkpoint.interval x control step)", compute_s=compute_s)
