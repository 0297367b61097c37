"""Published claims held against a result (metrics.md 3): by rule on the interval's ends, in words.

A claim on a share holds if the whole interval lies on its side, does not if the whole interval lies on the other, and
is not decided in between. A "range" has the extreme values as its ends, so it decides only if every value agrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bench.measure.shares import Period
from bench.schema import Arm, Figure, Verdict

Outcome = Literal["holds", "does_not_hold", "not_decided", "not_measured"]

SYNC_ARM, ASYNC_ARM = "sync_local", "nvrx_async"  # the strategies that the claims are about
SYNC_SHARE = 0.40
ASYNC_EFFICIENCY = 0.99
_SYNC_PUBLISHED = "up to 40 % of the run"
_ASYNC_PUBLISHED = "99.2-99.8 % training efficiency with asynchronous saves"
_WORDS: dict[Outcome, str] = {
    "holds": "holds here",
    "does_not_hold": "does not hold here",
    "not_decided": "is not decided: the interval spans the limit, so more saves are needed",
    "not_measured": "was not measured",
}


def verdicts(arms: Sequence[Arm], period: Period) -> list[Verdict]:
    """The verdicts on what this result can speak about, at `period`."""
    by_name = {arm.name: arm for arm in arms}
    return [sync_share_40(by_name.get(SYNC_ARM), period), async_efficiency_99(by_name.get(ASYNC_ARM), period)]


def sync_share_40(arm: Arm | None, period: Period) -> Verdict:
    """Does saving synchronously cost 40 % of the run or more? On the share by K. `arm`: sync_local."""
    outcome = _outcome(arm.share if arm else None, SYNC_SHARE)
    if arm is None or arm.share is None:
        return Verdict(
            "sync_share_40", _SYNC_PUBLISHED, None, outcome, f"{_not_measured('sync_local', arm)} {_limit(arm)}"
        )
    measured = _percent(arm.share)
    text = (
        f"At {_period(period, arm)} saving with sync_local costs {measured} of the time; "
        f"40 % or more {_WORDS[outcome]}. {_limit(arm)}"
    )
    return Verdict("sync_share_40", _SYNC_PUBLISHED, measured, outcome, text)


def async_efficiency_99(arm: Arm | None, period: Period) -> Verdict:
    """Is the efficiency 1 - S / P, as published, 99 % or more? The text says when K disagrees. `arm`: nvrx_async."""
    efficiency = _complement(arm.stall_share if arm else None)
    outcome = _outcome(efficiency, ASYNC_EFFICIENCY)
    if arm is None or efficiency is None:
        text = _not_measured(ASYNC_ARM, arm)
        return Verdict("async_efficiency_99", _ASYNC_PUBLISHED, None, outcome, text)
    measured = _percent(efficiency, 2)
    text = (
        f"At {_period(period, arm)} the training thread is outside of nvrx_async's saves {measured} of the time "
        f"(1 - S / P, as published); 99 % or more {_WORDS[outcome]}. {_by_cost(arm, outcome)}"
    )
    return Verdict("async_efficiency_99", _ASYNC_PUBLISHED, measured, outcome, text.strip())


def _outcome(figure: Figure | None, limit: float) -> Outcome:
    if figure is None:
        return "not_measured"
    if figure.low >= limit:
        return "holds"
    return "does_not_hold" if figure.high < limit else "not_decided"


def _by_cost(arm: Arm, by_stall: Outcome) -> str:
    """What the true cost K says about the same limit, where it says something else."""
    efficiency = _complement(arm.share)
    by_cost = _outcome(efficiency, ASYNC_EFFICIENCY)
    if efficiency is None:
        return "The true cost K was not measured."
    if by_cost == by_stall:
        return ""
    measured = _percent(efficiency, 2)
    return f"The true cost K disagrees: by 1 - K / P the efficiency is {measured}, and the claim {_WORDS[by_cost]}."


def _complement(share: Figure | None) -> Figure | None:
    """The figure of 1 - share; its ends change places."""
    if share is None:
        return None
    return Figure(1 - share.median, 1 - share.high, 1 - share.low, share.n, share.interval)


def _limit(arm: Arm | None) -> str:
    """Below which period the share exceeds 40 %: independent of the trainer's speed."""
    if arm is None or arm.cost_s is None:
        return "The period below which the share exceeds 40 % (2.5 K) is not known without K."
    if arm.period_at_40_s is None:
        return "No cost above 0 was resolved, so no period is known at which the share exceeds 40 %."
    return f"The share exceeds 40 % at periods below {_seconds(arm.period_at_40_s)} (2.5 K)."


def _not_measured(name: str, arm: Arm | None) -> str:
    if arm is None:
        return f"Not measured: the arm {name} is not part of this result."
    return f"Not measured: {name} has no measured save with a known cost and period."


def _period(period: Period, arm: Arm) -> str:
    length = f" of {_seconds(arm.period_s)}" if arm.period_s is not None else ""
    return f"{period.text}{length}{_crowding(period, arm)}"


def _crowding(period: Period, arm: Arm) -> str:
    """Why saves are not as far apart as asked, or leave no time between them."""
    if not arm.saturated:
        return ""
    if period.wall_s is not None and arm.period_s is not None and arm.period_s <= period.wall_s:
        return ", which saving alone fills,"
    return ", lengthened because saves wait for each other,"


_INTERVALS = {"ci95": "95 % interval", "range": "range", "within_run": "within one run"}


def _percent(figure: Figure, digits: int = 1) -> str:
    """E.g. "12.3 % (95 % interval 11.0 to 13.1 %, n = 12)"."""
    low, high = (f"{100 * value:.{digits}f}" for value in (figure.low, figure.high))
    return f"{100 * figure.median:.{digits}f} % ({_INTERVALS[figure.interval]} {low} to {high} %, n = {figure.n})"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value < 1000 else f"{value:.0f} s"
