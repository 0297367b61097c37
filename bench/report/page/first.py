"""The first page: what a manager needs, in sentences, each with its number and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.measure.accounted import Accounted
from bench.plan.formulas import MONTH_HOURS, async_period_s, exact_s, mtbf_s
from bench.report.data import async_arm, dates, in_background, measured_launches, saving_arms, struck, sync_arm
from bench.report.page.advice import Advice, advice, per_month
from bench.report.words import MISSING, digits, duration, percent, seconds, with_interval
from bench.schema import Arm, LayerFigures

# Assumed where a best period is stated, as no short test can measure it: conf/failures/llama3.yaml (a test holds the
# two together), failures per 1,000 node-days and the range of published clusters.
FAILURES_PER_1000_NODE_DAYS, FAILURES_RANGE = 3.79, (2.34, 14.0)


@dataclass(frozen=True)
class FirstPage:
    answers: list[str]
    measured: str
    extrapolated: str
    advice: Advice
    status: str


def first_page(result: Accounted) -> FirstPage:
    answers = [*_saving(result), *_recovering(result)]
    return FirstPage(
        answers=answers or ["Nothing was measured that answers a question yet; the status below says why."],
        measured=measured(result),
        extrapolated=extrapolated(result),
        advice=advice(result),
        status=_status(result),
    )


def _status(result: Accounted) -> str:
    """In how far the figures may be relied on, in a few words."""
    doubts = [check.name for check in result.summary.checks if check.level in ("warn", "invalid")]
    words = {"valid": "no doubts", "warn": "to be read with these warnings", "invalid": "DO NOT USE these figures"}
    named = f" ({', '.join(doubts)})" if doubts else ""
    return f"{result.summary.status}: {words[result.summary.status]}{named}"


# --- saving
def _saving(result: Accounted) -> list[str]:
    sync, background = sync_arm(result), async_arm(result)
    found = []
    if sync is not None:
        found.append(f"At {_period(result, sync)}, synchronous saves ({sync.name}) cost {_share(result, sync)}.")
    if background is not None:
        start = "Asynchronous saves" if sync is not None else f"At {_period(result, background)}, asynchronous saves"
        visible = with_interval(background.stall_share, percent) if background.stall_share else MISSING
        found.append(
            f"{start} ({background.name}) cost {_share(result, background)}, slower steps included; a stopwatch around "
            f"the save would see {visible}."
        )
    if sync is not None:
        found.append(_limit(sync))
    best = [text for arm in (sync, background) if arm is not None and (text := _best(result, arm))]
    if best:
        low, high = FAILURES_RANGE
        found.append(
            f"At each one's own best period: {' against '.join(best)}, if {FAILURES_PER_1000_NODE_DAYS:g} failures per "
            f"1,000 node-days are assumed (published clusters: {low:g} to {high:g})."
        )
    return found


def _period(result: Accounted, arm: Arm) -> str:
    text = result.period.text
    whose = text.split(" (")[0] if text.startswith("your") else "the scenario's period, which is nobody's job"
    remedy = "" if text.startswith("your") else "; give job.step_s= and job.interval_steps= for yours"
    return f"{whose} ({seconds(arm.period_s)}{remedy})"


def _share(result: Accounted, arm: Arm) -> str:
    if arm.share is None:
        return "an unknown share of the time (no known cost and period)"
    kind = "GPU time" if result.summary.device == "cuda" else "the time"
    saturated = ", with saves waiting for each other" if arm.saturated else ""
    return f"{with_interval(arm.share, percent)} of {kind}{saturated} = {per_month(result, arm.share.median)}"


def _limit(arm: Arm) -> str:
    if arm.period_at_40_s is None:
        return "No cost above 0 was resolved, so there is no period at which 40 % would be reached."
    every = seconds(arm.period_at_40_s)
    return f"40 % would need a save every 2.5 K = {every} or more often, however fast the trainer is."


def _best(result: Accounted, arm: Arm) -> str | None:
    """The share at the period that balances saving against lost work; K stands for what a save costs."""
    cost_s = arm.cost_s.median if arm.cost_s is not None else 0.0
    if cost_s <= 0:
        return None
    between = mtbf_s(result.summary.num_nodes, FAILURES_PER_1000_NODE_DAYS)
    if in_background(arm) and arm.durable_s is not None:
        period_s = async_period_s(cost_s, 0.0, max(arm.durable_s.median, cost_s), between).value
    else:
        period_s = exact_s(cost_s, between) + cost_s
    return f"{digits(100 * cost_s / period_s, 2)} % with a save every {duration(period_s)} ({arm.name})"


# --- recovering
WHOLE_JOB = ("requeue", "pod_restart", "torchrun")  # what a job has without a faster layer, the first that was measured


def _recovering(result: Accounted) -> list[str]:
    times = {each.layer: _times(each) for each in result.summary.layers if _times(each)}
    base = next((layer for layer in WHOLE_JOB if layer in times), None)
    found = []
    for each in sorted(
        (layer for layer in result.summary.layers if layer.layer in times), key=lambda e: _middle(times, e)
    ):
        mine = times[each.layer]
        against = _against(each.layer, mine, base, times[base]) if base is not None else ""
        faults = f"{len(mine)} kind{'s' * (len(mine) > 1)} of fault"
        found.append(
            f"{each.layer}: from a fault to the first new step {seconds(_middle(times, each))} (median over {faults})"
            f"{against}; {_price(each)}."
        )
    return found


def _times(layer: LayerFigures) -> dict[str, float]:
    """Median seconds to the first new step by fault, of those that were recovered from; a cascade is none of them."""
    return {
        each.fault: each.time_to_recover_s.median
        for each in layer.faults
        if each.time_to_recover_s is not None and not each.further_faults
    }


def _middle(times: dict[str, dict[str, float]], layer: LayerFigures) -> float:
    return median(times[layer.layer].values())


def _against(layer: str, mine: dict[str, float], base: str, theirs: dict[str, float]) -> str:
    """Over the faults that both met, as other faults take other times."""
    common = [fault for fault in mine if fault in theirs]
    if layer == base:
        return ""
    if not common:
        return f", no fault in common with {base}"
    ours, others = (median(times[fault] for fault in common) for times in (mine, theirs))
    saved = f"saves {seconds(others - ours)}" if others > ours else f"is {seconds(ours - others)} slower"
    which = "the one fault" if len(common) == 1 else f"the {len(common)} faults"
    return f", and {saved} against {base} over {which} in common"


def _price(layer: LayerFigures) -> str:
    share = layer.overhead_share
    if share is None:
        return "its price when nothing fails was not measured"
    text = with_interval(share, percent)
    if share.low > 0:
        return f"it costs {text} of the time when nothing fails"
    return f"no price is resolved when nothing fails ({text})"


# --- what it rests on
def measured(result: Accounted) -> str:
    summary = result.summary
    gpus: Sequence[dict[str, Any]] = result.run["environment"].get("gpus") or []
    names = {gpu["name"] for gpu in gpus if gpu.get("name")}
    kind = " and ".join(sorted(names)) if summary.device == "cuda" and names else "GPUs"
    ranks = f"{summary.world_size} {kind}" if summary.device == "cuda" else f"{summary.world_size} CPU ranks, no GPU"
    saves = sum(arm.cycles for arm in saving_arms(result))
    launches = max((arm.launches for arm in summary.arms), default=0)
    faults = len(struck(result))
    parts = [
        f"{ranks} in {summary.num_nodes} node{'s' * (summary.num_nodes > 1)} ({summary.machine})",
    ]
    parts += [f"{saves} saves in {launches} launches"] if saves else []
    parts += [f"{faults} fault{'s' * (faults > 1)} in {len(measured_launches(result))} launches"] if faults else []
    parts += [f"on {' and '.join(dict.fromkeys(dates(result)))}"] if dates(result) else []
    return ", ".join(parts)


def extrapolated(result: Accounted) -> str:
    """What on this page was not measured as it stands."""
    parts = []
    if saving_arms(result):
        parts.append(
            "the share at the stated period, from each save's K"
            if result.summary.design == "quick"
            else "nothing about the share, which was measured at its period"
        )
        parts.append("the best periods, from K and an assumed failure rate")
        parts.append(f"hours and money a month ({MONTH_HOURS:g} hours) on as many slots as measured here")
    if struck(result):
        parts.append("recovery times at other sizes, which are not stated here (python -m bench plan)")
    return "; ".join(parts) or "nothing"
