"""What each layer saves, alone and together, against synchronous saves and a restart of the whole job.

A layer's fault-free price counts against it. Months have 730 hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Literal, NamedTuple

import numpy as np

from bench.plan.formulas import DAY_S, MONTH_HOURS
from bench.plan.setup import Background, SaveKind, SetUp, Values, build

LEAST_RATE = 1e-3  # per 1,000 node-days: a thousandth of what clusters show


@dataclass(frozen=True)
class Breakeven:
    """From which, or up to which, failure rate an option saves GPU time; without a rate: at any rate, or at none."""

    pays: Literal["from", "up to", "at any rate", "at no rate"]
    rate: float | None = None  # failures per 1,000 node-days
    nodes: float | None = None  # the same in nodes, at the stated rate and with times that stay as they are


class Option(NamedTuple):
    """How to save, and which recovery layers stand below the orchestrator."""

    save: SaveKind
    layers: frozenset[str]


TODAY = Option("baseline", frozenset())
TOGETHER = "all together"
OPTIONS: dict[str, Option] = {
    "asynchronous saves": Option("save", frozenset()),
    "in-job restart": Option("baseline", frozenset({"in_job"})),
    "in-process restart": Option("baseline", frozenset({"in_process"})),
    "both restarts": Option("baseline", frozenset({"in_job", "in_process"})),
    "asynchronous saves and in-job restart": Option("save", frozenset({"in_job"})),
    TOGETHER: Option("save", frozenset({"in_job", "in_process"})),
}
# What recovery.layer stands for; in-process restart is deployed with the agent's restart below it.
DEPLOYED: dict[str, frozenset[str]] = {
    "orchestrator": frozenset(),
    "in_job": frozenset({"in_job"}),
    "in_process": frozenset({"in_job", "in_process"}),
}


@dataclass(frozen=True)
class Saving:
    """What one option saves at the user's period, as shares of all GPU time.

    `share` is with the inputs as listed; `expected`, `low` and `high` are mean and middle 95 % over their ranges.
    """

    name: str
    share: float
    expected: float
    low: float
    high: float
    gpus: float | None  # to be added to today's for the same useful time; None: today's do nothing useful at all
    gpus_low: float | None
    gpus_high: float | None
    gpu_hours_a_month: float
    money_a_month: float
    pays: Breakeven  # with the prices of the layers as listed
    pays_if_dear: Breakeven | None  # with those prices at the upper ends of their ranges; None: they have no ranges
    breakeven_overhead_share: float  # a fault-free price (share of GPU time, in all) from which on it saves nothing


def setup_of(values: Values, background: Background, option: Option) -> SetUp:
    return build(values, background, option.save, option.layers)


def saved_share(values: Values, background: Background, option: Option, period_s: float) -> float:
    """Share of all GPU time that an option makes useful beyond today's, at one period."""
    return goodput(values, background, option, period_s) - goodput(values, background, TODAY, period_s)


def goodput(values: Values, background: Background, option: Option, period_s: float) -> float:
    return setup_of(values, background, option).goodput(period_s)


def saving(
    name: str, values: Values, dear: Values, background: Background, period_s: float, drawn: Sequence[float]
) -> Saving:
    """One option held against today. `drawn`: its saving in each draw of the inputs; `dear`: see `pays_if_dear`."""
    option, gpus = OPTIONS[name], values["cluster.nodes"] * values["cluster.gpus_per_node"]
    today = goodput(values, background, TODAY, period_s)
    share = goodput(values, background, option, period_s) - today
    low, high = (float(bound) for bound in np.quantile(drawn, [0.025, 0.975]))
    gpu_hours = share * gpus * MONTH_HOURS
    per_share = gpus / today if today > 0 else None
    return Saving(
        name=name,
        share=share,
        expected=sum(drawn) / len(drawn),
        low=low,
        high=high,
        gpus=per_share and share * per_share,
        gpus_low=per_share and low * per_share,
        gpus_high=per_share and high * per_share,
        gpu_hours_a_month=gpu_hours,
        money_a_month=gpu_hours * values["cluster.price_per_gpu_hour"],
        pays=breakeven(values, background, option, period_s),
        pays_if_dear=breakeven(dear, background, option, period_s) if _priced(option, values, dear) else None,
        breakeven_overhead_share=_breakeven_overhead(values, background, option, period_s),
    )


def _breakeven_overhead(values: Values, background: Background, option: Option, period_s: float) -> float:
    free = {key: 0.0 if key.endswith("_overhead_share") else value for key, value in values.items()}
    without_price = goodput(free, background, option, period_s)
    return 1 - goodput(values, background, TODAY, period_s) / without_price if without_price > 0 else 0.0


def _priced(option: Option, values: Values, dear: Values) -> bool:
    names = [f"recovery.{layer}_overhead_share" for layer in option.layers]
    return any(dear[name] > values[name] for name in names)


def breakeven(values: Values, background: Background, option: Option, period_s: float) -> Breakeven:
    """Where the saving changes its sign between two failure rates far apart, by bisection in logs."""

    def gains(rate: float) -> bool:
        changed = {**values, "failures.per_1000_node_days": rate}
        return saved_share(changed, background, option, period_s) > 0

    highest = _highest_rate(values, period_s)
    rare, frequent = gains(LEAST_RATE), gains(highest)
    if rare == frequent:
        return Breakeven("at any rate" if rare else "at no rate")
    a, b = log(LEAST_RATE), log(highest)
    for _ in range(50):
        middle = (a + b) / 2
        a, b = (middle, b) if gains(exp(middle)) == rare else (a, middle)
    rate = exp((a + b) / 2)
    nodes = rate / values["failures.per_1000_node_days"] * values["cluster.nodes"]
    return Breakeven("from" if frequent else "up to", rate, nodes)


def _highest_rate(values: Values, period_s: float) -> float:
    """One failure a period: beyond, hardly a save is completed and there is nothing left to compare."""
    stated = values["failures.per_1000_node_days"]
    return max(1000 * DAY_S / (values["cluster.nodes"] * period_s), 2 * stated)
