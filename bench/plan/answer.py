"""The plan's answer: every figure of plan.json, and the paragraph for a planning review.

plan.json, history of its format (`PLAN_VERSION`):
  1  first version
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.errors import BadInput
from bench.plan import formulas
from bench.plan.config import LAYERS, Plan
from bench.plan.formulas import DAY_S, Estimate
from bench.plan.inputs import Inputs, gather
from bench.plan.results import Result
from bench.plan.savings import DEPLOYED, OPTIONS, TODAY, Option, Saving, goodput, saving, setup_of
from bench.plan.sensitivity import Bar, draws, interval, tornado
from bench.plan.setup import SetUp, Values
from bench.plan.simulate import PARTS, Simulated, simulate
from bench.plan.sizes import SizeRow, size_rows

PLAN_VERSION = 1
PRICE = "_overhead_share"  # how the names of the layers' fault-free prices end
LONGEST_PERIOD_MTBF = 20.0  # P + L + R beyond so many MTBF: hardly an interval is ever completed


@dataclass(frozen=True)
class AtPeriod:
    """One kind of save at one period. Shares of GPU time; `goodput` after failures as well."""

    save: str  # the arm
    period_s: float  # as it comes out: never shorter than one write
    checkpoint_share: float | None  # None: the period leaves no time for work
    goodput: float | None
    waits_for_writes: bool


@dataclass(frozen=True)
class Best:
    """The best period of one kind of save, and the periods that lose at most 1 % of its goodput."""

    save: str
    period_s: float
    flat_low_s: float
    flat_high_s: float


@dataclass(frozen=True)
class Part:
    """Share of wall time in one ledger category: mean, and the middle 95 % of jobs (luck alone, not the inputs)."""

    category: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Answer:
    """All figures of a plan. `label` says what they rest on: measured, extrapolated or assumed inputs."""

    inputs: Inputs
    label: str
    mtbf_s: float
    intervals: dict[str, Estimate]
    ettr: Estimate
    closed: Estimate
    simulated: Simulated
    simulated_share: float  # of what the simulation calls useful, left after fault-free prices and idle spares
    goodput_range: tuple[float, float]
    at_period: list[AtPeriod]
    at_best: list[AtPeriod]
    best: list[Best]
    savings: list[Saving]
    decision: str  # the option that is expected to save most over the inputs' ranges
    bars: list[Bar]
    sizes: list[SizeRow]
    cost: dict[str, float | None]

    @property
    def parts(self) -> list[Part]:
        """The simulated job's time by ledger category; `overhead` is the layers' fault-free price and idle spares."""
        shares = {part: self.simulated.share(part) * self.simulated_share for part in PARTS}
        rows = [_part(name, values) for name, values in shares.items()]
        kept = 1 - self.simulated_share
        return [*rows, Part("overhead", kept, kept, kept)] if kept > 0 else rows

    def saving(self, name: str) -> Saving:
        return next(each for each in self.savings if each.name == name)


def answer(plan: Plan, results: Sequence[Result] = ()) -> Answer:
    """Answer a plan. BadInput for periods outside validity and for results that lack what it needs."""
    inputs = gather(plan, results)
    values, background, period_s = inputs.values, inputs.background, inputs.period_s
    planned = setup_of(planned_values(plan, values), background, planned_option(plan))
    refuse_period(plan, planned, period_s)
    baseline = setup_of(values, background, TODAY)
    strategy = setup_of(values, background, Option("save", frozenset()))
    simulated = simulate(
        planned.job_model(period_s), values["job.days"] * DAY_S, plan.simulation.replicates, plan.simulation.seed
    )
    drawn = _over_draws(inputs, period_s)
    dear = values | {name: inputs.by_name[name].high or values[name] for name in values if name.endswith(PRICE)}
    savings = [saving(name, values, dear, background, period_s, drawn[name]) for name in OPTIONS]
    decision = max(savings, key=lambda each: each.expected).name
    kinds = [(plan.strategy, strategy), (plan.baseline, baseline)]
    best = [_best(name, setup) for name, setup in kinds]
    label = label_of(inputs)
    closed = planned.closed(period_s)
    return Answer(
        inputs=inputs,
        label=label,
        mtbf_s=planned.mtbf_s,
        intervals=_intervals(inputs, planned),
        ettr=_ettr(inputs, planned),
        closed=closed,
        simulated=simulated,
        simulated_share=planned.kept_share,
        goodput_range=interval(drawn["planned"]),
        at_period=[_at_period(name, setup, period_s) for name, setup in kinds],
        at_best=[_at_period(name, setup, own.period_s) for (name, setup), own in zip(kinds, best, strict=True)],
        best=best,
        savings=savings,
        decision=decision,
        bars=tornado(inputs, OPTIONS[decision]),
        sizes=size_rows(inputs, label),
        cost=_cost(inputs, planned, closed.value),
    )


def planned_option(plan: Plan) -> Option:
    """The set-up whose goodput is asked for: the strategy's saves, and the recovery layer that is there."""
    return Option("save", DEPLOYED[plan.recovery.layer])


def planned_values(plan: Plan, values: Values) -> Values:
    """With recovery.seconds every failure takes so long, whichever layer it would go to."""
    if plan.recovery.seconds is None:
        return values
    return {**values, **{f"recovery.{layer}_s": plan.recovery.seconds for layer in LAYERS}}


def label_of(inputs: Inputs) -> str:
    """What the answers rest on, in a word. Never "measured": no short test can measure a failure rate."""
    kinds = {each.kind for each in inputs.by_name.values()}
    if "extrapolated" in kinds:
        return "extrapolated"
    return "partly assumed" if "measured" in kinds else "assumed"


def refuse_period(plan: Plan, planned: SetUp, period_s: float) -> None:
    """A period at which the planned set-up does no work, or hardly ever completes a save."""
    if planned.work_s(period_s) <= 0:
        raise BadInput(
            f"period_s: {period_s:g} s leaves no time for work, a save of {plan.strategy} costs "
            f"{planned.save.cost_s:.4g} s; give a longer period"
        )
    slowest_s = max(seconds for _, seconds in planned.recoveries)
    whole_s = period_s + planned.save.durable_s + slowest_s
    if whole_s > LONGEST_PERIOD_MTBF * planned.mtbf_s:
        raise BadInput(
            f"period_s: with {period_s:g} s, a write of {planned.save.durable_s:.4g} s and a recovery of up to "
            f"{slowest_s:.4g} s, hardly an interval would end before the next failure (one in {planned.mtbf_s:.4g} s); "
            "give a shorter period or fewer nodes"
        )


# --- figures
def _intervals(inputs: Inputs, planned: SetUp) -> dict[str, Estimate]:
    """Best work between saves by each closed form, for delta = blocking_s; async_s is a period."""
    blocking_s, mtbf = planned.save.blocking_s, planned.mtbf_s
    exact = Estimate(formulas.exact_s(blocking_s, mtbf), True, "exact", "failures without memory")
    return {
        "young_s": formulas.young_s(blocking_s, mtbf),
        "daly_first_s": formulas.daly_first_s(blocking_s, mtbf),
        "daly_higher_s": formulas.daly_higher_s(blocking_s, mtbf),
        "exact_s": exact,
        "async_s": formulas.async_period_s(blocking_s, _slowdown(inputs, planned), planned.save.durable_s, mtbf),
    }


def _slowdown(inputs: Inputs, planned: SetUp) -> float:
    """sigma as stated or measured; else the share that the hidden cost is of the write's time."""
    stated = inputs.values.get("save.slowdown")
    if stated is not None:
        return stated
    save = planned.save
    background_s = save.durable_s - save.blocking_s
    return (save.cost_s - save.blocking_s) / background_s if background_s > 0 and save.cost_s < save.durable_s else 0.0


def _ettr(inputs: Inputs, planned: SetUp) -> Estimate:
    """u0: the mean recovery; dt: the period; w: the cost of a save."""
    restart_s = sum(share * seconds for share, seconds in planned.recoveries)
    return formulas.ettr_linear(1 / planned.mtbf_s, restart_s, inputs.period_s, planned.save.cost_s)


def _at_period(name: str, setup: SetUp, period_s: float) -> AtPeriod:
    real_s = max(period_s, setup.save.durable_s)
    work_s = setup.work_s(period_s)
    waits = setup.waits_for_writes(period_s)
    if work_s <= 0:
        return AtPeriod(name, real_s, None, None, waits)
    return AtPeriod(name, real_s, 1 - work_s / real_s, setup.goodput(period_s), waits)


def _best(name: str, setup: SetUp) -> Best:
    return Best(name, setup.best_period_s(), *setup.flat_region_s())


def _over_draws(inputs: Inputs, period_s: float) -> dict[str, list[float]]:
    """In each draw of the inputs: the planned goodput, and what each option saves."""
    found: dict[str, list[float]] = {name: [] for name in ("planned", *OPTIONS)}
    for values in draws(inputs, inputs.plan.simulation.seed):
        today = goodput(values, inputs.background, TODAY, period_s)
        own = planned_values(inputs.plan, values)
        found["planned"].append(goodput(own, inputs.background, planned_option(inputs.plan), period_s))
        for name, option in OPTIONS.items():
            found[name].append(goodput(values, inputs.background, option, period_s) - today)
    return found


def _part(name: str, shares: Any) -> Part:
    low, high = np.quantile(shares, [0.025, 0.975])
    return Part(name, float(shares.mean()), float(low), float(high))


def _cost(inputs: Inputs, planned: SetUp, useful_share: float) -> dict[str, float | None]:
    """Money in the currency of the price; GPU-hours a month of 730 hours."""
    price, gpus = inputs.values["cluster.price_per_gpu_hour"], float(inputs.plan.gpus)
    recovery_s = sum(share * seconds for share, seconds in planned.recoveries)
    gpu_hours = gpus * formulas.MONTH_HOURS
    period_s = max(inputs.period_s, planned.save.durable_s)
    return {
        "price_per_gpu_hour": price,
        "gpu_hours_a_month": gpu_hours,
        "money_a_month": gpu_hours * price,
        "lost_gpu_hours_a_month": gpu_hours * (1 - useful_share),
        "idle_per_day": formulas.idle_per_day(gpus, price, useful_share),
        "per_useful_gpu_hour": formulas.per_useful_gpu_hour(price, useful_share),
        "per_failure": formulas.per_failure(gpus, price, recovery_s, period_s, planned.save.durable_s),
    }


# --- plan.json
def to_json(found: Answer) -> dict[str, Any]:
    """plan.json. Every number is finite; what does not exist is null."""
    simulated = found.simulated
    return {
        "schema_version": PLAN_VERSION,
        "about": found.inputs.plan.about,
        "label": found.label,
        "period_s": found.inputs.period_s,
        "mtbf_s": found.mtbf_s,
        "intervals": {name: each.value for name, each in found.intervals.items()},
        "intervals_in_range": {name: each.in_range for name, each in found.intervals.items()},
        "ettr_linear": {"value": found.ettr.value, "in_range": found.ettr.in_range, "valid_for": found.ettr.valid_for},
        "goodput_closed": asdict(found.closed),
        "goodput_simulated": {
            "value": simulated.goodput * found.simulated_share,
            "standard_error": simulated.standard_error * found.simulated_share,
            "replicates": len(simulated.wall_s),
            "failures": float(simulated.failures.mean()),
            "parts": [asdict(part) for part in found.parts],
        },
        "goodput_range": dict(zip(("low", "high"), found.goodput_range, strict=True)),
        "at_period": [asdict(each) for each in found.at_period],
        "at_best_period": [asdict(each) for each in found.at_best],
        "best_period": [asdict(each) for each in found.best],
        "savings": [asdict(each) | {"label": found.label} for each in found.savings],
        "decision": found.decision,
        "sensitivity": [asdict(bar) | {"swing": bar.swing} for bar in found.bars],
        "sizes": [asdict(row) for row in found.sizes],
        "cost": found.cost,
        "inputs": [asdict(each) for each in found.inputs.by_name.values()],
    }
