"""Statistics of small samples: pure functions on sequences of floats. Units of the results are those of the values."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, erfc, exp, isfinite, log, sqrt

import numpy as np

from bench.schema import Figure

CONFIDENCE = 0.95
LEAST_FOR_INTERVAL = 6  # with 5 values even the whole range covers the median in 94 % of samples only


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


def ratio_figure(pairs: Sequence[tuple[float, float]]) -> Figure | None:
    """Median ratio over pairs (numerator, denominator), each taken in logs; None for no pairs."""
    of_logs = figure([log_ratio(*pair) for pair in pairs])
    if of_logs is None:
        return None
    return Figure(exp(of_logs.median), exp(of_logs.low), exp(of_logs.high), of_logs.n, of_logs.interval)


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
