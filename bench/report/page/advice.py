"""What follows from a result, and the one input that would change it."""

from __future__ import annotations

from dataclasses import dataclass

from bench.measure.accounted import Accounted
from bench.measure.compare import Compared, paired
from bench.plan.formulas import MONTH_HOURS
from bench.report.data import async_arm, saving_arms, struck, sync_arm
from bench.report.words import digits, percent, seconds, with_interval
from bench.schema import Arm, Figure

LEAST_PAIRS = 3  # fewer values decide nothing, even if they agree
SMALL = 0.01  # of the time: below it the way of saving is not what to work on


@dataclass(frozen=True)
class Advice:
    """`text`: the recommendation. `input`: what it depends on most, and where it would turn."""

    text: str
    input: str


def per_month(result: Accounted, share: float) -> str:
    """A share of the slots' time as hours a month, and as money where a price is known."""
    hours = share * result.summary.world_size * MONTH_HOURS
    unit = "GPU-hours" if result.summary.device == "cuda" else "slot-hours"
    price = result.config.get("price_per_gpu_hour")
    money = "no price given" if price is None else f"{digits(hours * price)} in your currency at {price:g} an hour"
    return f"{digits(hours)} {unit} a month on {result.summary.world_size} slots ({money})"


def advice(result: Accounted) -> Advice:
    if result.summary.status == "invalid":
        return Advice(
            "None: this result is invalid. Mend what the status names, and measure again.", "the result itself"
        )
    sync, background = sync_arm(result), async_arm(result)
    if sync is None or background is None:
        return _without_pair(result)
    row = next(row for row in paired(result, sync.name, background.name).rows if row.quantity.name == "share")
    found = _between(result, sync, background, row)
    if result.summary.rehearsal or result.summary.device == "cpu":
        where = "emulated nodes" if result.summary.rehearsal else "CPU ranks"
        turn = f"the hardware: this was measured on {where}, and decides nothing about GPUs. Then {found.input}"
        return Advice(f"For this machine: {found.text}", turn)
    return found


def _without_pair(result: Accounted) -> Advice:
    if struck(result):
        return Advice(
            "Take the layer that recovers fastest from the faults that your cluster has (see the matrix), if its price "
            "without faults is below what it saves: python -m bench plan run=RESULT computes that.",
            "the failure rate of your cluster, which no short test can measure",
        )
    missing = "a synchronous and an asynchronous arm with a known cost" if not saving_arms(result) else "the other kind"
    return Advice(
        f"None: the choice needs {missing}; measure checkpoint.arms=[none,sync_local,nvrx_async].", "the missing arm"
    )


def _between(result: Accounted, sync: Arm, background: Arm, row: Compared) -> Advice:
    costs = [arm.cost_s.median for arm in (sync, background) if arm.cost_s is not None]
    shares = [arm.share for arm in (sync, background) if arm.share is not None]
    small = "the number of launches, as no cost is resolved from 0"
    if max(costs) > 0:
        turn = seconds(max(costs) / SMALL)
        small = f"the period: the dearer of the two costs 1 % at a period of {turn}, and less at longer ones"
    if len(shares) == 2 and all(share.high < SMALL for share in shares):
        return Advice("keep what you have: at this period neither way of saving costs 1 % of the time.", small)
    saved = _saved(row)
    if saved is not None and saved.n < LEAST_PAIRS:
        return Advice(
            f"none: {sync.name} and {background.name} were measured in turns {saved.n} time{'s' * (saved.n > 1)} only.",
            "the number of launches or cycles",
        )
    if row.outcome in ("lower", "higher"):
        better, worse = (background, sync) if row.outcome == "lower" else (sync, background)
        amount = f"{with_interval(saved, percent)} of the time = {per_month(result, saved.median)}" if saved else "time"
        return Advice(f"save with {better.name}: pair by pair it frees {amount} against {worse.name}.", small)
    if row.outcome == "not_measured":
        return Advice(
            "none: the saves cannot be held against each other pair by pair, as the events were not kept.",
            "the events of the result",
        )
    return Advice(
        f"no difference between {sync.name} and {background.name} is resolved at this period; measure more launches "
        "(append=RESULT) before changing anything.",
        "the number of launches",
    )


def _saved(row: Compared) -> Figure | None:
    """The difference of the shares over pairs, turned so that its median is not negative."""
    change = row.difference
    if change is None and row.ratio is not None and row.base is not None:
        base, ratio = row.base.median, row.ratio
        median, low, high = (base * (value - 1) for value in (ratio.median, ratio.low, ratio.high))
        change = Figure(median, low, high, ratio.n, ratio.interval)
    if change is None or change.median >= 0:
        return change
    return Figure(-change.median, -change.high, -change.low, change.n, change.interval)
