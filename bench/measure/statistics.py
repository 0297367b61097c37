"""Statistics of small samples: pure functions on sequences of floats. Units of the results are those of the values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import comb, erfc, exp, hypot, isfinite, log, sqrt

import numpy as np

from bench.schema import Figure

CONFIDENCE = 0.95
LEAST_FOR_INTERVAL = 6  # with 5 values even the whole range covers the median in 94 % of samples only
LEAST_GROUPS = 3  # fewer launches do not show how launches differ
FLOOR = 0.80  # confidence of the interval within which a clustered one never shrinks


def figure(values: Sequence[float]) -> Figure | None:
    """Median of `values` with its 95 % interval, or the range when there are fewer than 6; None for no values.

    Raises ValueError for a value that is not finite: missing values are left out by the caller, never passed as NaN.
    """
    if not values:
        return None
    if not all(isfinite(value) for value in values):
        raise ValueError("a figure needs finite values; leave out what was not measured")
    ordered = sorted(float(value) for value in values)
    median = float(np.median(ordered))
    if len(ordered) < LEAST_FOR_INTERVAL:
        return Figure(median, ordered[0], ordered[-1], len(ordered), "range")
    low, high = median_interval(ordered)
    return Figure(median, low, high, len(ordered), "ci95")


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Confidence interval of the median by interpolated order statistics; raises ValueError if n is too small.

    T. P. Hettmansperger and S. J. Sheather, "Confidence intervals based on interpolated order statistics",
    Statistics & Probability Letters 4 (1986) 75-79. Without an assumption on the distribution's shape; the
    interpolation between neighbouring order statistics is nearly exact for many shapes.
    """
    ordered, n = sorted(values), len(values)
    if n == 0 or _coverage(n, 1) < confidence:
        raise ValueError(f"{n} values are too few for a {confidence:.0%} interval of the median")
    k = 1  # the narrowest pair of order statistics, k-th lowest and k-th highest, that still covers enough
    while _coverage(n, k + 1) >= confidence:
        k += 1
    wide, narrow = _coverage(n, k), _coverage(n, k + 1)
    excess = (wide - confidence) / (wide - narrow)
    inward = (n - k) * excess / (k + (n - 2 * k) * excess)  # 0: the k-th value itself, 1: the next one inwards
    low = (1 - inward) * ordered[k - 1] + inward * ordered[k]
    high = (1 - inward) * ordered[n - k] + inward * ordered[n - k - 1]
    return float(low), float(high)


def _coverage(n: int, k: int) -> float:
    """Probability that the k-th lowest and the k-th highest of n values enclose the distribution's median."""
    return 1 - 2 * sum(comb(n, i) for i in range(k)) / (1 << n)


# --- values in groups -------------------------------------------------------------------------------------------------
def clustered_figure(values: Sequence[float], groups: Sequence[Hashable], positive: bool = False) -> Figure | None:
    """Median of `values` that come in groups (the cycles of one launch), with an interval that holds for new groups.

    Values of one group resemble each other, so n of them say less than n independent ones: pooled order statistics
    cover the median in 55 to 80 % of experiments where half of the variance lies between launches. Here the interval
    is the pooled median +/- t(k - 1) s / sqrt(k), s the standard deviation of the k groups' own medians: the exact
    interval of a balanced one-way random effects model (S. R. Searle, G. Casella and C. E. McCulloch, Variance
    Components, 1992, section 3.6), with medians in place of means. Three medians can agree by chance, so it never is
    narrower than the pooled 80 % interval. Simulated coverage for k = 3 ... 6, 4 to 12 values a group, intraclass
    correlations 0 ... 0.5, normal and skewed: 0.94 to 0.975 (tests/measure/test_coverage.py).

    Fewer than 3 groups do not tell how groups differ: the pooled interval, named "within_run". Groups of a single value
    are independent values, and fewer than 6 values have a range: see `figure`. `positive`: a quantity that is greater
    than 0 by nature (not: whose values happen to be) is treated in logs, so that its interval is so too.
    """
    if len(values) != len(groups):
        raise ValueError(f"{len(values)} values need as many groups, got {len(groups)}")
    if positive and values and min(values) > 0:
        of_logs = clustered_figure([log(value) for value in values], groups)
        return None if of_logs is None else _mapped(of_logs, exp)
    pooled, k = figure(values), len(set(groups))
    if pooled is None or pooled.interval == "range" or k == len(values):
        return pooled
    if k < LEAST_GROUPS:
        return Figure(pooled.median, pooled.low, pooled.high, pooled.n, "within_run")
    centre = _Centre.of(values, groups)
    reach = _t_quantile(centre.freedom) * centre.error
    low, high = min(centre.median - reach, centre.low), max(centre.median + reach, centre.high)
    return Figure(pooled.median, low, high, pooled.n, "ci95")


def shift_figure(
    base: Sequence[float], base_groups: Sequence[Hashable], new: Sequence[float], new_groups: Sequence[Hashable]
) -> Figure | None:
    """Median of `new` less that of `base`, of independent experiments; None if either is empty. `n`: the smaller.

    From 3 groups on either side: Welch's interval on the groups' medians (B. L. Welch, Biometrika 34 (1947) 28-35, his
    degrees of freedom rounded down), never narrower than what the two pooled 80 % intervals give together. Otherwise
    the two pooled 95 % intervals combined, named "within_run", and with fewer than 6 values the range of all
    differences. Two intervals combine by the squares of their arms (G. Y. Zou and A. Donner, Statistics in Medicine 27
    (2008) 1693-1702). Simulated coverage over the grid of `clustered_figure`: 0.94 to 0.98.
    """
    ours, theirs = figure(new), figure(base)
    if ours is None or theirs is None:
        return None
    n, shift = min(ours.n, theirs.n), ours.median - theirs.median
    if "range" in (ours.interval, theirs.interval):
        return Figure(shift, ours.low - theirs.high, ours.high - theirs.low, n, "range")
    if min(len(set(base_groups)), len(set(new_groups))) < LEAST_GROUPS:
        return Figure(shift, *_combined(_ends(ours), _ends(theirs)), n, "within_run")
    a, b = _Centre.of(new, new_groups), _Centre.of(base, base_groups)
    low, high = _combined((a.low, a.median, a.high), (b.low, b.median, b.high))
    reach = _t_quantile(_welch_freedom(a, b)) * hypot(a.error, b.error)
    return Figure(shift, min(shift - reach, low), max(shift + reach, high), n, "ci95")


def shift_ratio(
    base: Sequence[float], base_groups: Sequence[Hashable], new: Sequence[float], new_groups: Sequence[Hashable]
) -> Figure | None:
    """Ratio of the medians, new / base: `shift_figure` in logs. Raises ValueError for a value not greater than 0."""
    if min([*base, *new], default=1.0) <= 0:
        raise ValueError("a ratio in logs needs values greater than 0")
    of_logs = shift_figure([log(v) for v in base], base_groups, [log(v) for v in new], new_groups)
    return None if of_logs is None else _mapped(of_logs, exp)


def _mapped(figure: Figure, by: Callable[[float], float]) -> Figure:
    """The figure of a quantity on another scale; `by` grows with its argument."""
    return Figure(by(figure.median), by(figure.low), by(figure.high), figure.n, figure.interval)


@dataclass(frozen=True)
class _Centre:
    """A pooled median, its standard error as the groups' medians show it, and the pooled interval at FLOOR."""

    median: float
    error: float
    freedom: int
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], groups: Sequence[Hashable]) -> _Centre:
        members: dict[Hashable, list[float]] = {}
        for value, group in zip(values, groups, strict=True):
            members.setdefault(group, []).append(value)
        medians = [float(np.median(group)) for group in members.values()]
        error = float(np.std(medians, ddof=1)) / sqrt(len(medians))
        return cls(float(np.median(values)), error, len(medians) - 1, *median_interval(values, FLOOR))


def _ends(figure: Figure) -> tuple[float, float, float]:
    return figure.low, figure.median, figure.high


def _combined(new: tuple[float, float, float], base: tuple[float, float, float]) -> tuple[float, float]:
    """Interval of a difference from the (low, middle, high) of its parts."""
    shift = new[1] - base[1]
    return shift - hypot(new[1] - new[0], base[2] - base[1]), shift + hypot(new[2] - new[1], base[1] - base[0])


def _welch_freedom(a: _Centre, b: _Centre) -> int:
    """Degrees of freedom of the difference, rounded down; 1 or more."""
    parts = a.error**4 / a.freedom + b.error**4 / b.freedom
    return max(int((a.error**2 + b.error**2) ** 2 / parts), 1) if parts > 0 else a.freedom + b.freedom


_T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)  # 1 to 9 degrees of freedom
_Z_975 = 1.959964


def _t_quantile(freedom: int) -> float:
    """97.5 % quantile of Student's t; above 9 degrees by Fisher's expansion (Abramowitz and Stegun 26.7.5)."""
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    z, v = _Z_975, freedom
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + terms[0] / v + terms[1] / v**2 + terms[2] / v**3


# --- other statistics -------------------------------------------------------------------------------------------------
def harmonic_mean(rates: Sequence[float]) -> float | None:
    """The rate of equal amounts of work done at these rates one after the other; None for none.

    Raises ValueError for a rate that is not greater than 0.
    """
    if not rates:
        return None
    if min(rates) <= 0:
        raise ValueError("rates must be greater than 0")
    return len(rates) / sum(1 / rate for rate in rates)


def log_ratio(numerator: float, denominator: float) -> float:
    """ln(numerator / denominator) of one pair: exchanging the two changes its sign only, so ratios can be averaged.

    Raises ValueError unless both are greater than 0.
    """
    if numerator <= 0 or denominator <= 0:
        raise ValueError(f"a ratio in logs needs values greater than 0, got {numerator} and {denominator}")
    return log(numerator) - log(denominator)


def ratio_figure(pairs: Sequence[tuple[float, float]], groups: Sequence[Hashable]) -> Figure | None:
    """Median ratio over pairs (numerator, denominator) in groups, each pair taken in logs; None for no pairs."""
    of_logs = clustered_figure([log_ratio(*pair) for pair in pairs], groups)
    return None if of_logs is None else _mapped(of_logs, exp)


def outliers(values: Sequence[float], resolution: float = 0.0) -> list[int]:
    """Indices of values beyond Tukey's outer fences, 3 interquartile ranges outside the quartiles; for marking only.

    Distances up to `resolution` (same unit as the values) are never far.
    J. W. Tukey, Exploratory Data Analysis (1977), chapter 2. Fewer than 4 values have no quartiles worth the name.
    """
    if len(values) < 4:
        return []
    lower, upper = np.quantile(values, [0.25, 0.75])
    reach = max(3 * float(upper - lower), resolution)
    return [i for i, value in enumerate(values) if value < lower - reach or value > upper + reach]


def drift_p(values: Sequence[float]) -> float | None:
    """Two-sided p of "no trend" for values in order of time (Mann-Kendall); None for fewer than 4 values.

    H. B. Mann, Econometrica 13 (1945) 245-259. Exact distribution up to 50 values without ties, else the normal
    approximation with continuity and tie correction (M. G. Kendall, Rank Correlation Methods, 1955).
    """
    n = len(values)
    if n < 4:
        return None
    array = np.asarray(values, dtype=np.float64)
    score = int(np.sign(array[None, :] - array[:, None])[np.triu_indices(n, 1)].sum())  # later minus earlier
    _, ties = np.unique(array, return_counts=True)
    if n <= 50 and len(ties) == n:
        return _exact_kendall_p(n, score)
    variance = (n * (n - 1) * (2 * n + 5) - int((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    return 1.0 if variance == 0 else min(1.0, erfc(max(abs(score) - 1, 0) / sqrt(2 * variance)))


def _exact_kendall_p(n: int, score: int) -> float:
    """P(|score of a random order of n values| >= |score|), by counting orders by their inversions."""
    counts = [1]
    for size in range(2, n + 1):  # inserting one more value adds 0 ... size - 1 inversions
        longer = [0] * (len(counts) + size - 1)
        for inversions, orders in enumerate(counts):
            for added in range(size):
                longer[inversions + added] += orders
        counts = longer
    pairs = n * (n - 1) // 2
    extreme = sum(orders for inversions, orders in enumerate(counts) if abs(pairs - 2 * inversions) >= abs(score))
    return extreme / sum(counts)


def zero_event_bound(exposure: float) -> float:
    """Upper 95 % bound of an event rate when none was seen in `exposure` (hours, steps ...): 3 / exposure.

    The "rule of three": exp(-3) is 0.05. J. A. Hanley and A. Lippman-Hand, JAMA 249 (1983) 1743-1745.
    """
    if exposure <= 0:
        raise ValueError(f"an exposure must be greater than 0, got {exposure}")
    return 3 / exposure
