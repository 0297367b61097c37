"""How long a run may still take: what is left of its budget, and of its job's time limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.config import Run

HOME_S = 30.0  # before a job is warned of its time limit: for the results of a launch that was ended to be on disk
SLACK, SLACK_S = 1.2, 60.0  # a launch that fits the budget may take a little longer than it is expected to


class Bound(NamedTuple):
    """`left_s` until `name` is used up. `hard`: the engine ends what goes on."""

    name: str
    left_s: float
    hard: bool = False


def bounds(config: Run, occasion: Mapping[str, Any], now: float) -> list[Bound]:
    """Those that the user or the engine has given; `now` and the times of the occasion are wall clock, s."""
    budget, spent_s = config.budget, now - float(occasion["started"])
    found = []
    if budget.minutes is not None:
        found.append(Bound(f"budget.minutes={budget.minutes}", budget.minutes * 60 - spent_s))
    if budget.gpu_hours is not None:
        found.append(
            Bound(f"budget.gpu_hours={budget.gpu_hours}", budget.gpu_hours * 3600 / config.world_size - spent_s)
        )
    if (ends_by := occasion.get("ends_by")) is not None:
        found.append(Bound("the job's time limit (cluster.time)", float(ends_by) - HOME_S - now, hard=True))
    return found


def no_room(found: Sequence[Bound], needed_s: float) -> str | None:
    """Why another `needed_s` do not fit; None: they do."""
    tight = next((bound for bound in found if needed_s > bound.left_s), None)
    return None if tight is None else f"{tight.name} has no room for another {needed_s:.0f} s"


def capped(
    found: Sequence[Bound], limit_s: float, expected_s: float | None, around_s: float
) -> tuple[float, str | None]:
    """The deadline of a launch that begins now and has `limit_s` by itself, and the bound that cut it.

    `around_s` follows the deadline: processes are ended, stores probed. The pilot (no `expected_s`) is bound by the
    job's time limit alone: without it nothing could be measured.
    """
    cut = None
    for bound in found:
        if bound.hard:
            left_s = bound.left_s - around_s
        elif expected_s is not None:
            left_s = max(bound.left_s, SLACK * expected_s + SLACK_S)
        else:
            continue
        if left_s < limit_s:
            limit_s, cut = left_s, bound.name
    return max(limit_s, 0.0), cut
