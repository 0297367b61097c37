"""Closed forms of checkpointing under failures. Pure functions of seconds; shares and goodputs are fractions of 1.

Symbols, as in the literature:
  delta  `blocking_s`  a save blocks the training thread
  C      `cost_s`      what a save costs in all (K of METHOD.md); blocking_s where nothing is hidden
  L      `latency_s`   from the call of a save until it can be loaded, >= C; equal to it for a synchronous save
  tau    `work_s`      useful work between two saves
  P      `period_s`    time from one save to the next, max(tau + C, L)
  R      `recovery_s`  from a failure to the first new step
  M      `mtbf_s`      mean time between failures of the whole job, 1 / (nodes x rate of a node)

A formula that is only valid in a range returns an `Estimate`, which says whether the arguments lie in it. Formulas that
return a float are exact for their model: failures without memory (exponential gaps) at every moment of wall time.
Arguments outside a formula's domain raise ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import e, exp, expm1, log, log1p, sqrt

DAY_S = 86400.0
MONTH_HOURS = 730.0  # a twelfth of 365 days
EXPONENT_LIMIT = 700.0  # exp overflows soon after; such an interval is never completed

YOUNG_LIMIT = (
    0.01  # delta / M up to which Young lies within 5 %, and Daly's first order within 3 %, of the exact optimum
)
ETTR_LIMIT = 0.3  # N lambda (u0 + dt/2) beyond which the linear ratio is pessimistic
ETTR_WRITE_LIMIT = 0.1  # w / dt beyond which dt stands neither for work nor for the period within 1 %
FIRST_ORDER_LIMIT = 0.3  # expected loss to failures beyond which a first order is no estimate


@dataclass(frozen=True)
class Estimate:
    """The value of a formula, whether its arguments lie in its range of validity, and that range in words."""

    value: float
    in_range: bool
    formula: str
    valid_for: str


def mtbf_s(nodes: float, per_1000_node_days: float) -> float:
    """Mean time between failures (s) of a job on `nodes` nodes, from failures per 1,000 node-days."""
    _above_zero(nodes=nodes, per_1000_node_days=per_1000_node_days)
    return 1000 * DAY_S / (nodes * per_1000_node_days)


# --- best work between saves ------------------------------------------------------------------------------------------
def young_s(blocking_s: float, mtbf_s: float) -> Estimate:
    """tau* = sqrt(2 delta M), for delta much smaller than M.

    J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974) 530-531.
    """
    _checked(blocking_s, mtbf_s)
    small = blocking_s <= YOUNG_LIMIT * mtbf_s
    return Estimate(
        sqrt(2 * blocking_s * mtbf_s), small, "young_1974", f"a save of at most {YOUNG_LIMIT:.0%} of the MTBF"
    )


def daly_first_s(blocking_s: float, mtbf_s: float) -> Estimate:
    """tau* = sqrt(2 delta M) - delta, for delta much smaller than M; negative for delta > 2 M.

    J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006) 303-312.
    """
    young = young_s(blocking_s, mtbf_s)
    return Estimate(young.value - blocking_s, young.in_range, "daly_2006_first_order", young.valid_for)


def daly_higher_s(blocking_s: float, mtbf_s: float) -> Estimate:
    """tau* = sqrt(2 delta M) [1 + sqrt(delta/2M)/3 + (delta/2M)/9] - delta for delta < 2 M, else M (Daly 2006)."""
    _checked(blocking_s, mtbf_s)
    ratio = blocking_s / (2 * mtbf_s)
    series = sqrt(2 * blocking_s * mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - blocking_s
    return Estimate(series if ratio < 1 else mtbf_s, ratio < 1, "daly_2006_higher_order", "a save of less than 2 MTBF")


def exact_s(blocking_s: float, mtbf_s: float) -> float:
    """tau* = M [1 + W0(-exp(-1 - delta/M))]: exact for exponential failures, whatever the recovery takes.

    Where the derivative of `wall_s` by tau is zero: (tau/M - 1) exp(tau/M - 1) = -exp(-1 - delta/M). Relative error
    below 1e-6 for delta/M >= 1e-10.
    """
    _checked(blocking_s, mtbf_s)
    return mtbf_s * (1 + lambert_w0(-exp(-1 - blocking_s / mtbf_s)))


def async_period_s(blocking_s: float, slowdown_share: float, latency_s: float, mtbf_s: float) -> Estimate:
    """P* = max(sqrt(2 (delta + sigma L) M), L): a period, not the work in it; one write in flight at a time.

    First order of Vaidya's model (see `async_interval_s`), for delta + sigma L much smaller than M and L below M.
    """
    _checked(blocking_s, mtbf_s)
    _share(slowdown_share=slowdown_share)
    _at_least(latency_s, blocking_s, "latency_s", "blocking_s")
    overhead_s = blocking_s + slowdown_share * latency_s
    good = overhead_s <= YOUNG_LIMIT * mtbf_s and latency_s <= mtbf_s
    value = max(sqrt(2 * overhead_s * mtbf_s), latency_s)
    return Estimate(value, good, "async_first_order", f"a cost of at most {YOUNG_LIMIT:.0%} of the MTBF, L below it")


def lambert_w0(x: float) -> float:
    """The principal branch of w exp(w) = x, for -1/e <= x; W0 >= -1. ValueError below -1/e.

    Halley's iteration from the series at the branch point, from log1p in the middle and from log(x) - log(log(x)) for
    large x (R. M. Corless et al., "On the Lambert W function", Adv. Comput. Math. 5 (1996) 329-359). Near -1/e the
    result has half of the argument's digits, as any result must that is computed from a rounded argument.
    """
    offset = e * x + 1
    if offset < -1e-12:
        raise ValueError(f"Lambert W0 needs an argument of at least -1/e, got {x}")
    if offset <= 0:
        return -1.0
    w = _lambert_start(x, sqrt(2 * offset))
    for _ in range(50):
        error = w * exp(w) - x
        slope = exp(w) * (w + 1)
        step = error / (slope - (w + 2) * error / (2 * (w + 1)))
        w -= step
        if abs(step) <= 1e-15 * (1 + abs(w)):
            break
    return w


def _lambert_start(x: float, p: float) -> float:
    if x < -0.25:
        return -1 + p - p * p / 3 + 11 * p**3 / 72
    return log1p(x) if x < e else log(x) - log(log(x))


# --- expected time ----------------------------------------------------------------------------------------------------
def recovery_factor_s(mtbf_s: float, recoveries: Sequence[tuple[float, float]], can_fail: bool = True) -> float:
    """M + expected time lost from a failure until the job runs again, for (share of failures, R seconds) per class.

    With failures striking during recovery as well, which then begins anew with the new failure's class:
    M / sum(share_i exp(-R_i / M)), for one class M exp(R/M). Without: M + sum(share_i R_i). Shares must add up to 1.
    """
    _above_zero(mtbf_s=mtbf_s)
    if abs(sum(share for share, _ in recoveries) - 1) > 1e-9:
        raise ValueError("the shares of the failure classes must add up to 1")
    if not can_fail:
        return mtbf_s + sum(share * seconds for share, seconds in recoveries)
    succeeds = sum(share * exp(-seconds / mtbf_s) for share, seconds in recoveries)
    return mtbf_s / succeeds if succeeds > 0 else float("inf")


def wall_s(
    useful_s: float, work_s: float, cost_s: float, recovery_s: float, mtbf_s: float, can_fail: bool = True
) -> float:
    """Expected wall time (s) of `useful_s` of work with synchronous saves; exact for exponential failures.

    Recovery that can fail: M exp(R/M) (exp((tau + delta)/M) - 1) Ts/tau (Daly 2006); recovery without
    failures: (M + R)(exp((tau + delta)/M) - 1) Ts/tau. Infinite where no interval would ever be completed.
    """
    per_interval_s = async_interval_s(work_s, cost_s, cost_s, [(1.0, recovery_s)], mtbf_s, can_fail)
    return per_interval_s * useful_s / work_s


def async_interval_s(
    work_s: float,
    cost_s: float,
    latency_s: float,
    recoveries: Sequence[tuple[float, float]],
    mtbf_s: float,
    can_fail: bool = True,
) -> float:
    """Expected wall time (s) from one completed save to the next; exact for exponential failures.

    F exp((L - C)/M) (exp((tau + C)/M) - 1), with F = `recovery_factor_s`; for one class of failures and F = M exp(R/M)
    this is N. H. Vaidya, "Impact of checkpoint latency on overhead ratio of a checkpointing scheme", IEEE Trans.
    Computers 46 (1997) 942-947. A failure falls back on the last completed save. Where the next save would begin
    before the write ends (tau + C < L) it waits: C becomes L - tau.
    """
    _checked(cost_s, mtbf_s)
    _above_zero(work_s=work_s)
    _at_least(latency_s, cost_s, "latency_s", "cost_s")
    period_s = max(work_s + cost_s, latency_s)
    exponent = (latency_s - (period_s - work_s) + period_s) / mtbf_s
    if exponent > EXPONENT_LIMIT:
        return float("inf")
    ahead = exp((latency_s - (period_s - work_s)) / mtbf_s)
    return recovery_factor_s(mtbf_s, recoveries, can_fail) * ahead * expm1(period_s / mtbf_s)


def goodput(
    work_s: float,
    cost_s: float,
    latency_s: float,
    recoveries: Sequence[tuple[float, float]],
    mtbf_s: float,
    can_fail: bool = True,
) -> float:
    """Useful share of wall time in the long run: tau / `async_interval_s`. Exact for exponential failures."""
    return work_s / async_interval_s(work_s, cost_s, latency_s, recoveries, mtbf_s, can_fail)


def async_goodput_first_order(
    period_s: float, cost_s: float, latency_s: float, recovery_s: float, mtbf_s: float
) -> Estimate:
    """(1 - C/P)(1 - (R + P/2 + L)/M), with C = delta + sigma L; for losses to failures of at most 0.3. Can go negative.

    Work lost per failure counts from the last completed save: P/2 + L seconds of wall time in the mean.
    """
    return layered_goodput_first_order(period_s, cost_s, [(1.0, recovery_s, period_s / 2 + latency_s)], mtbf_s)


def layered_goodput_first_order(
    period_s: float, cost_s: float, classes: Sequence[tuple[float, float, float]], mtbf_s: float
) -> Estimate:
    """(1 - C/P)(1 - sum(share_i (R_i + lost_i)) / M) for classes (share of failures, R_i, lost_i), seconds.

    Each class of failures goes to the lowest layer that handles it and has its own newest usable checkpoint, as in
    multi-level checkpointing: A. Moody et al. (SCR), SC 2010; L. Bautista-Gomez et al. (FTI), SC 2011.
    """
    _checked(cost_s, mtbf_s)
    _above_zero(period_s=period_s)
    loss = sum(share * (recovery_s + lost_s) for share, recovery_s, lost_s in classes) / mtbf_s
    value = (1 - cost_s / period_s) * (1 - loss)
    return Estimate(
        value,
        loss <= FIRST_ORDER_LIMIT and cost_s < period_s,
        "layers_first_order",
        "losses to failures of at most 0.3",
    )


def ettr_linear(failures_per_s: float, restart_s: float, interval_s: float, write_s: float) -> Estimate:
    """Effective training time ratio (1 - N lambda (u0 + dt/2)) / (1 + w/dt); can go negative outside its range.

    A. Kokolis et al., "Revisiting reliability in large-scale machine learning research clusters", arXiv 2410.21680.
    `failures_per_s` is N lambda of the job, `restart_s` u0, `interval_s` dt, `write_s` w. Pessimistic once
    N lambda (u0 + dt/2) > 0.3; w must be small against dt, as dt stands for the work and for the period alike.
    """
    _above_zero(failures_per_s=failures_per_s, interval_s=interval_s)
    _not_negative(restart_s=restart_s, write_s=write_s)
    loss = failures_per_s * (restart_s + interval_s / 2)
    value = (1 - loss) / (1 + write_s / interval_s)
    good = loss <= ETTR_LIMIT and write_s <= ETTR_WRITE_LIMIT * interval_s
    return Estimate(
        value,
        good,
        "ettr_linear",
        f"N lambda (u0 + dt/2) of at most {ETTR_LIMIT}, w of at most {ETTR_WRITE_LIMIT:.0%} of dt",
    )


# --- cost -------------------------------------------------------------------------------------------------------------
def idle_per_day(gpus: float, price_per_gpu_hour: float, goodput: float) -> float:
    """Money a day for GPU time that is not useful: 24 G p (1 - goodput)."""
    return 24 * gpus * price_per_gpu_hour * (1 - goodput)


def per_useful_gpu_hour(price_per_gpu_hour: float, goodput: float) -> float | None:
    """Money for an hour of useful GPU time: p / goodput; None where nothing is useful."""
    return price_per_gpu_hour / goodput if goodput > 0 else None


def per_failure(gpus: float, price_per_gpu_hour: float, recovery_s: float, period_s: float, latency_s: float) -> float:
    """Money that one failure costs in the mean: G p (R + P/2 + L) / 3600. First order: no second failure meanwhile."""
    return gpus * price_per_gpu_hour * (recovery_s + period_s / 2 + latency_s) / 3600


# --- domains ----------------------------------------------------------------------------------------------------------
def _checked(cost_s: float, mtbf_s: float) -> None:
    _not_negative(cost_s=cost_s)
    _above_zero(mtbf_s=mtbf_s)


def _above_zero(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be greater than 0, got {value}")


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"{name} must be 0 or more, got {value}")


def _share(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be a share of 0 or more and less than 1, got {value}")


def _at_least(value: float, least: float, name: str, other: str) -> None:
    if value < least:
        raise ValueError(f"{name} must not be below {other}: {value} < {least}")
