"""Intervals deserve their name: simulated experiments on two levels, and how often the interval holds the truth.

A launch has an effect of its own, and each of its cycles noise, skewed or not; `icc`, the intraclass correlation, is
the part of the variance that lies between launches. The number of launches and cycles is fixed beforehand, as the
designs fix it: a budget ends a run between launches, never by what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.measure.shares import Period, arm_shares
from bench.measure.statistics import clustered_figure, figure, shift_figure
from bench.schema import Figure, Sample

EXPERIMENTS = 1000  # a standard error of 0.007 at 95 %
LOW, HIGH = 0.92, 0.98
MIDDLE_S, SPREAD_S = 0.5, 0.05  # of K: median of a cycle without effects, standard deviation of its noise
COMPUTE_S = 2.0

Noise = Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.float64]]
NOISES: dict[str, Noise] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "lognormal": lambda rng, size: (rng.lognormal(sigma=0.5, size=size) - 1) / 0.604,
    "exponential": lambda rng, size: rng.exponential(size=size) - np.log(2),
}
GRID = [
    (noise, icc, launches, cycles)
    for noise, icc in (("normal", 0.0), ("lognormal", 0.1), ("exponential", 0.25), ("lognormal", 0.5))
    for launches in (3, 4, 6)
    for cycles in (4, 12)
]
grid = pytest.mark.parametrize(("noise", "icc", "launches", "cycles"), GRID)


def draw(rng: np.random.Generator, noise: str, icc: float, shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """K in seconds: experiments x launches x cycles."""
    effect = np.sqrt(icc / (1 - icc)) * rng.normal(size=(*shape[:2], 1))
    return MIDDLE_S + SPREAD_S * (effect + NOISES[noise](rng, shape))


@cache
def truth(noise: str, icc: float) -> float:
    """Median of a cycle of a new launch."""
    return float(np.median(draw(np.random.default_rng(0), noise, icc, (1, 1_000_000, 1))))


def experiments(noise: str, icc: float, launches: int, cycles: int, seed: int) -> Iterator[NDArray[np.float64]]:
    yield from draw(np.random.default_rng(seed), noise, icc, (EXPERIMENTS, launches, cycles))


def groups(values: NDArray[np.float64]) -> list[int]:
    return np.repeat(np.arange(values.shape[0]), values.shape[1]).tolist()


def covers(found: Figure | None, value: float) -> bool:
    assert found is not None
    assert found.interval == "ci95"
    return found.low <= value <= found.high


def save(cost_s: float, launch: int) -> Sample:
    known = {"blocking_s": cost_s / 2, "durable_s": cost_s / 2, "cost_s": cost_s, "control_step_s": 0.1}
    names = [name for name, field in Sample.__dataclass_fields__.items() if "None" in str(field.type)]
    content = dict.fromkeys(names) | known | {"launch": launch, "occasion": 0, "cycle": 2, "arm": "a", "save": 2}
    return Sample(**content, step=1, measured=True, during_steps=0)


@grid
def test_the_interval_of_the_cost_holds_the_median_of_new_launches(
    noise: str, icc: float, launches: int, cycles: int
) -> None:
    value = truth(noise, icc)
    drawn = experiments(noise, icc, launches, cycles, seed=1)
    coverage = np.mean([covers(clustered_figure(x.ravel().tolist(), groups(x)), value) for x in drawn])
    assert LOW <= coverage <= HIGH


@pytest.mark.parametrize(("noise", "icc", "launches", "cycles"), GRID[::4])
def test_the_interval_of_the_share_holds_the_share_at_the_median_cost(
    noise: str, icc: float, launches: int, cycles: int
) -> None:
    """K / (C + K) grows with K, so that its median is the share at the median of K."""
    value = truth(noise, icc) / (COMPUTE_S + truth(noise, icc))
    period = Period("", compute_s=COMPUTE_S)
    covered = []
    for x in experiments(noise, icc, launches, cycles, seed=2):
        saves = [save(cost_s, launch) for cost_s, launch in zip(x.ravel().tolist(), groups(x), strict=True)]
        covered.append(covers(arm_shares(saves, period)["share"], value))
    assert LOW <= np.mean(covered) <= HIGH


@pytest.mark.parametrize(("noise", "icc", "launches", "cycles"), GRID[1::3])
def test_the_interval_of_a_difference_of_two_results_holds_nought_where_nothing_differs(
    noise: str, icc: float, launches: int, cycles: int
) -> None:
    """To 0.985: with 3 launches a side the rounding of Welch's degrees of freedom costs a little width."""
    ours = experiments(noise, icc, launches, cycles, seed=3)
    theirs = experiments(noise, icc, launches, cycles, seed=4)
    covered = [
        covers(shift_figure(a.ravel().tolist(), groups(a), b.ravel().tolist(), groups(b)), 0.0)
        for a, b in zip(ours, theirs, strict=True)
    ]
    assert LOW <= np.mean(covered) <= HIGH + 0.005


def test_pooling_the_cycles_of_launches_that_differ_would_claim_too_much() -> None:
    """Why the interval is not the one of independent values."""
    value = truth("lognormal", 0.5)
    found = [figure(x.ravel().tolist()) for x in experiments("lognormal", 0.5, 3, 12, seed=5)]
    assert np.mean([covers(each, value) for each in found]) < 0.7
