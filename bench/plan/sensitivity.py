"""How far the answer moves with its inputs: all of them at once (a range), and each alone (a tornado)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from bench.plan.formulas import DAY_S
from bench.plan.inputs import Inputs
from bench.plan.label import Input
from bench.plan.savings import TODAY, Option, saved_share, setup_of
from bench.plan.simulate import simulate

DRAWS = 300
SIMULATED_FAILURES = 200  # of a replicate; what gaps and spares change shows long before
SIMULATED_REPLICATES = 200
NO_SPARES = "another node at hand"
ONLY_SIMULATED = ("failures.weibull_shape",)  # closed forms know no gaps but those without memory


@dataclass(frozen=True)
class Bar:
    """One input of the tornado: the saving (share of GPU time) with the input at its low and at its high end."""

    name: str
    kind: str
    low: float | None
    high: float | None
    at_low: float
    at_high: float
    ends: str | None = None  # the ends in words, where they are no two values of one input

    @property
    def swing(self) -> float:
        return abs(self.at_high - self.at_low)


def draws(inputs: Inputs, seed: int, count: int = DRAWS) -> Iterator[dict[str, float]]:
    """Values with every uncertain input drawn from its range, evenly by factors where the range allows it.

    Inputs of one group lie at the same place of their ranges.
    """
    rng = np.random.default_rng(seed)
    groups = _groups(inputs)
    for _ in range(count):
        values = inputs.values
        for members in groups.values():
            values |= _at(members, float(rng.random()))
        yield values


def _groups(inputs: Inputs) -> dict[str, list[Input]]:
    """The uncertain inputs by what moves them: most by themselves."""
    found: dict[str, list[Input]] = {}
    for each in inputs.by_name.values():
        if each.varies:
            found.setdefault(each.group or each.name, []).append(each)
    return found


def _at(members: Sequence[Input], place: float) -> dict[str, float]:
    """Values at a place of the ranges: 0 the low ends, 1 the high ones."""
    return {each.name: _between(each, place) for each in members}


def _between(each: Input, place: float) -> float:
    assert each.low is not None
    assert each.high is not None
    if each.low > 0:
        return exp(log(each.low) + place * (log(each.high) - log(each.low)))
    return each.low + place * (each.high - each.low)


def interval(values: list[float]) -> tuple[float, float]:
    """The middle 95 % of values over draws."""
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def tornado(inputs: Inputs, option: Option) -> list[Bar]:
    """The saving of an option against today's set-up with each input at its ends, widest first.

    Inputs without an effect are left out.
    """
    closed = _closed(inputs, option)
    bars = [_bar(name, each, closed) for name, each in _groups(inputs).items() if name not in ONLY_SIMULATED]
    bars += _spares(inputs, closed)
    bars += _gaps(inputs, option)
    return sorted((bar for bar in bars if bar.swing > 1e-9), key=lambda bar: bar.swing, reverse=True)


Response = Callable[[dict[str, float]], float]


def _closed(inputs: Inputs, option: Option) -> Response:
    return lambda changed: saved_share(inputs.values | changed, inputs.background, option, inputs.period_s)


def _bar(name: str, members: Sequence[Input], response: Response) -> Bar:
    low, high = (response(_at(members, place)) for place in (0.0, 1.0))
    first = members[0]
    if name == first.name:
        return Bar(name, first.kind, first.low, first.high, low, high)
    return Bar(name, first.kind, None, None, low, high, f"best to worst, {len(members)} inputs")


def _spares(inputs: Inputs, response: Response) -> list[Bar]:
    """None at all against what was stated: without one a restart in place earns nothing for hardware causes."""
    stated = inputs.by_name.get("cluster.spares")
    if stated is not None and stated.value == 0:
        return []
    without, now = response({"cluster.spares": 0.0}), response({})
    return [Bar(NO_SPARES, "assumed", None, None, without, now, "never to as configured")]


def _gaps(inputs: Inputs, option: Option) -> list[Bar]:
    """The shape of the gaps between failures, simulated: its effect on the saving is added to the closed form's."""
    each = inputs.by_name.get("failures.weibull_shape")
    if each is None or not each.varies or each.low is None or each.high is None:
        return []
    closed = _closed(inputs, option)({})
    effect = _simulated_saving(inputs, option, each.low) - _simulated_saving(inputs, option, 1.0)
    return [Bar(each.name, each.kind, each.low, each.high, closed + effect, closed)]


def _simulated_saving(inputs: Inputs, option: Option, shape: float) -> float:
    """Both set-ups meet the same failures (one seed), so that their difference is not drowned by luck."""
    values = inputs.values | {"failures.weibull_shape": shape}
    goodputs = []
    for each in (TODAY, option):
        setup = setup_of(values, inputs.background, each)
        if setup.work_s(inputs.period_s) <= 0:
            goodputs.append(0.0)
            continue
        horizon_s = min(values["job.days"] * DAY_S, SIMULATED_FAILURES * setup.mtbf_s)
        seed = inputs.plan.simulation.seed
        simulated = simulate(setup.job_model(inputs.period_s), horizon_s, SIMULATED_REPLICATES, seed)
        goodputs.append(simulated.goodput * setup.kept_share)
    return goodputs[1] - goodputs[0]
