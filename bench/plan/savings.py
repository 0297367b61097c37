"""What each layer saves, alone and together, against synchronous saves and a restart of the whole job.

A layer's fault-free price counts against it. Months have 730 hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf, log
from typing import NamedTuple

from bench.plan.formulas import MONTH_HOURS
from bench.plan.setup import Background, SaveKind, SetUp, Values, build

LEAST_RATE, HIGHEST_RATE = 1e-3, 1e3  # per 1,000 node-days: far outside what clusters show


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
    """What one option saves at the user's period: share of GPU time, `low` to `high` over the inputs' uncertainty."""

    name: str
    share: float
    low: float
    high: float
    gpus: float  # that would have to be added for the same useful time
    gpus_low: float
    gpus_high: float
    gpu_hours_a_month: float
    money_a_month: float
    # The failure rate (per 1,000 node-days) and the nodes at the stated rate from which it pays; None: see `pays`.
    breakeven_rate: float | None
    breakeven_nodes: float | None
    breakeven_overhead_share: float  # it pays while it costs less than this share of GPU time without a fault, in all
    pays: str  # "from the break-even on" | "up to the break-even" | "at any rate" | "at no rate"


def setup_of(values: Values, background: Background, option: Option) -> SetUp:
    return build(values, background, option.save, option.layers)


def saved_share(values: Values, background: Background, option: Option, period_s: float) -> float:
    """Share of all GPU time that an option makes useful beyond today's, at one period."""
    return goodput(values, background, option, period_s) - goodput(values, background, TODAY, period_s)


def goodput(values: Values, background: Background, option: Option, period_s: float) -> float:
    return setup_of(values, background, option).goodput(period_s)


def saving(name: str, values: Values, background: Background, period_s: float, interval: tuple[float, float]) -> Saving:
    option = OPTIONS[name]
    share = saved_share(values, background, option, period_s)
    gpus = values["cluster.nodes"] * values["cluster.gpus_per_node"]
    gpu_hours = share * gpus * MONTH_HOURS
    rate, pays = _breakeven_rate(values, background, option, period_s)
    free = {key: 0.0 if key.endswith("_overhead_share") else value for key, value in values.items()}
    without_price = goodput(free, background, option, period_s)
    today = goodput(values, background, TODAY, period_s)
    return Saving(
        name,
        share,
        *interval,
        *(part / today * gpus if today > 0 else inf for part in (share, *interval)),
        gpu_hours,
        gpu_hours * values["cluster.price_per_gpu_hour"],
        rate,
        None if rate is None else rate / values["failures.per_1000_node_days"] * values["cluster.nodes"],
        1 - today / without_price if without_price > 0 else 0.0,
        pays,
    )


def _breakeven_rate(
    values: Values, background: Background, option: Option, period_s: float
) -> tuple[float | None, str]:
    """Where the saving changes its sign between two extreme failure rates, by bisection; the times stay as they are."""

    def gains(rate: float) -> bool:
        changed = {**values, "failures.per_1000_node_days": rate}
        return saved_share(changed, background, option, period_s) > 0

    rare, frequent = gains(LEAST_RATE), gains(_highest_rate(values))
    if rare == frequent:
        return None, "at any rate" if rare else "at no rate"
    a, b = log(LEAST_RATE), log(_highest_rate(values))
    for _ in range(50):
        middle = (a + b) / 2
        a, b = (middle, b) if gains(exp(middle)) == rare else (a, middle)
    return exp((a + b) / 2), "from the break-even on" if frequent else "up to the break-even"


def _highest_rate(values: Mapping[str, float]) -> float:
    """At most a failure a minute: beyond, nothing is ever finished and there is nothing to compare."""
    a_minute = 1000 * 1440 / values["cluster.nodes"]
    return min(HIGHEST_RATE, a_minute)
