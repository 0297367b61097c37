"""What a reviewer will say, and where this result answers it: each objection with its evidence, in numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from bench.measure.accounted import Accounted
from bench.measure.mfu import Throughput, throughput
from bench.measure.saves import CONTROL_ARM
from bench.report.data import dates, measured, saving_arms
from bench.report.words import MISSING, digits, percent, seconds, size, with_interval
from bench.schema import Arm, Check

SLOWER = 0.10  # growth of the write time over a result that is worth a note

Level = Literal["ok", "note", "warn", "invalid", "unknown"]


@dataclass(frozen=True)
class Objection:
    """`shown_by`: the figure, table or check that answers. `here`: what it says in this result."""

    objection: str
    shown_by: str
    here: str
    level: Level


def objections(result: Accounted) -> list[Objection]:
    return [make(result) for make in MADE]


# --- helpers
def _check(result: Accounted, name: str) -> Check | None:
    return next((check for check in result.summary.checks if check.name == name), None)


def _level(result: Accounted, *names: str) -> Level:
    """The worst of the checks; unknown where none was made."""
    order: list[Level] = ["ok", "note", "warn", "invalid"]
    found = [check.level for name in names if (check := _check(result, name)) is not None]
    return max(found, key=order.index, default="unknown")


def _each(arms: Sequence[Arm], say: Callable[[Arm], str | None]) -> str:
    found = [f"{arm.name} {text}" for arm in arms if (text := say(arm))]
    return "; ".join(found) or "not measured"


def _reason(result: Accounted, name: str) -> str:
    check = _check(result, name)
    return check.reason if check is not None else "not checked"


# --- one function an objection
def page_cache(result: Accounted) -> Objection:
    def say(arm: Arm) -> str | None:
        if arm.dirty_bytes is None:
            return None
        of = f" of {size(arm.written_bytes)}" if arm.written_bytes else ""
        flush = f", a later fsync took {seconds(arm.flush_s.median)}" if arm.flush_s else ""
        return f"{size(arm.dirty_bytes.median)}{of}{flush}"

    here = f"left in memory when a save returned: {_each(saving_arms(result), say)}"
    return Objection(
        "You measured the page cache, not the storage.",
        "dirty_bytes, flush_s; check client_memory",
        here,
        _level(result, "client_memory"),
    )


def burst(result: Accounted) -> Objection:
    slopes = {
        arm.name: slope_share([save.write_s for save in measured(result, arm.name) if save.write_s is not None])
        for arm in saving_arms(result)
    }
    slower = any(slope is not None and slope > SLOWER for slope in slopes.values())
    told = [f"{name} {100 * slope:+.1f} %" for name, slope in slopes.items() if slope is not None]
    here = (
        f"change of the write time from the first to the last save (robust line): {'; '.join(told) or 'not measured'}"
    )
    level = _level(result, "burst", "drift")
    return Objection(
        "It was a burst: the store is slower once its credits are spent.",
        "figure “From the first save to the last”; checks burst, drift",
        here,
        "note" if slower and level == "ok" else level,
    )


def slope_share(values: Sequence[float]) -> float | None:
    """Change from the first to the last of `values` by a Theil-Sen line, as a share of their median; None below 4.

    P. K. Sen, JASA 63 (1968) 1379-1389: the median of the slopes between all pairs.
    """
    if len(values) < 4:
        return None
    y = np.asarray(values, dtype=np.float64)
    first, second = np.triu_indices(len(y), 1)
    slope = float(np.median((y[second] - y[first]) / (second - first)))
    return slope * (len(y) - 1) / float(np.median(y))


def slow_trainer(result: Accounted) -> Objection:
    limits = _each(
        saving_arms(result), lambda arm: seconds(arm.period_at_40_s) if arm.period_at_40_s is not None else None
    )
    used = _throughput(result)
    return Objection(
        "Your trainer is slow, so the share is too small (or too large).",
        "figure “What saving costs, by how often one saves”; tokens/s and MFU",
        f"{_trainer(result, used)}. 40 % is reached below 2.5 K, whatever a step takes: {limits}",
        "ok" if used is not None and used.mfu is not None else "note",
    )


def _throughput(result: Accounted) -> Throughput | None:
    gpus = [str(gpu.get("name")) for gpu in result.run["environment"].get("gpus") or []]
    steps = [arm.step_s.median for arm in result.summary.arms if arm.step_s is not None]
    if "model" not in result.config or not steps:
        return None
    return throughput(result.config, gpus, steps[0])


def _trainer(result: Accounted, used: Throughput | None) -> str:
    steps = [arm.step_s for arm in result.summary.arms if arm.step_s is not None]
    step = f"a step takes {with_interval(steps[0], seconds)}" if steps else "no step time is known"
    tokens = f", {digits(used.tokens_per_s)} tokens/s" if used is not None else ""
    share = percent(used.mfu) if used is not None and used.mfu is not None else "not stated, as the peak is not known"
    return f"{step}{tokens}; model FLOPs utilisation {share}"


def few_samples(result: Accounted) -> Objection:
    def say(arm: Arm) -> str:
        medians = arm.launch_medians_cost_s
        spread = f", launch medians of K {seconds(min(medians))} to {seconds(max(medians))}" if medians else ""
        return f"{arm.cycles} saves in {arm.launches} launches{spread}"

    occasions = len(result.run["occasions"])
    days = len(set(dates(result)))
    when = f"{occasions} occasion{'s' * (occasions != 1)}, {days} day{'s' * (days != 1)}"
    here = f"{_each(saving_arms(result), say)}; {when}"
    return Objection(
        "That is one lucky save.",
        "figure “What one save costs: S, K and L”; check enough_saves",
        here,
        _level(result, "enough_saves", "outliers"),
    )


def neighbours(result: Accounted) -> Objection:
    probe = result.summary.probe_bytes_per_s
    speed = f"probe {size(probe.median)}/s [{size(probe.low)}, {size(probe.high)}]; " if probe else ""
    return Objection(
        "Neighbours on the storage or the machine disturbed it.",
        "figure “From the first save to the last”; checks probe_drift, machine_busy",
        f"{speed}{_reason(result, 'probe_drift')}; {_reason(result, 'machine_busy')}",
        _level(result, "probe_drift", "machine_busy"),
    )


def first_save(result: Accounted) -> Objection:
    def say(arm: Arm) -> str | None:
        if arm.first_save_s is None or arm.blocking_s is None:
            return None
        return f"{seconds(arm.first_save_s.median)}, later ones {seconds(arm.blocking_s.median)}"

    return Objection(
        "The first save of a job is the slow one, and you left it out.",
        "first_save_s; figure “What one save costs: S, K and L” (rings)",
        f"the first save blocks for: {_each(saving_arms(result), say)}",
        _level(result, "warmup"),
    )


def slowest_rank(result: Accounted) -> Objection:
    def say(arm: Arm) -> str | None:
        saves = measured(result, arm.name)
        imbalance = [save.write_imbalance for save in saves if save.write_imbalance is not None]
        peers = [save.peers_s for save in saves if save.peers_s is not None]
        if not peers:
            return None
        times = f"slowest rank writes {digits(median(imbalance))} times the median rank's time, " if imbalance else ""
        return f"{times}longest wait for slower ranks {seconds(median(peers))}"

    return Objection(
        "The slowest rank decides, not the average.",
        "S, K, L count from the last rank in to the last one out; write_imbalance, peers_s",
        _each(saving_arms(result), say),
        "ok",
    )


def deletion(result: Accounted) -> Objection:
    here = _each(saving_arms(result), lambda arm: with_interval(arm.delete_s, seconds) if arm.delete_s else None)
    return Objection(
        "Old checkpoints have to be deleted, and that takes time.",
        "delete_s; deletion happens inside the measured period",
        f"longest rank, a save: {here}",
        "ok" if here != "not measured" else "unknown",
    )


def slower_steps(result: Accounted) -> Objection:
    def say(arm: Arm) -> str | None:
        return f"K - S {with_interval(arm.hidden_s, seconds)}" if arm.hidden_s else None

    return Objection(
        "Asynchronous saving only moves the cost into slower steps.",
        "figure “Steps around a save”; hidden_s",
        _each(saving_arms(result), say),
        "ok" if saving_arms(result) else "unknown",
    )


def right_content(result: Accounted) -> Objection:
    return Objection(
        "A fast save may hold the wrong bytes.",
        "content_verified; check content",
        _reason(result, "content"),
        _level(result, "content"),
    )


def the_method(result: Accounted) -> Objection:
    control = result.arms.get(CONTROL_ARM)
    cost = with_interval(control.cost_s, seconds) if control is not None and control.cost_s else MISSING
    known = control is not None and control.cost_s is not None and control.cost_s.low <= 0 <= control.cost_s.high
    return Objection(
        "The method itself makes the cost.",
        "the arm none, which saves nothing; unattributed; scenario=calibrate",
        f"K of none, which must be 0: {cost}; {_reason(result, 'unattributed')}",
        "unknown" if control is None or control.cost_s is None else "ok" if known else "warn",
    )


MADE: tuple[Callable[[Accounted], Objection], ...] = (
    page_cache,
    burst,
    slow_trainer,
    few_samples,
    neighbours,
    first_save,
    slowest_rank,
    deletion,
    slower_steps,
    right_content,
    the_method,
)
