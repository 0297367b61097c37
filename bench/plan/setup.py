"""From a flat set of input values to a job that saves and fails: what a choice of saves and recovery layers amounts to.

Everything that a sensitivity varies is a number in `Values`; everything that follows from those is derived here, each
time anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp, log, sqrt
from typing import Literal

from bench.plan import formulas
from bench.plan.failures import Class, Profile
from bench.plan.simulate import FailureClass, Gaps, JobModel

Values = Mapping[str, float]
SaveKind = Literal["save", "baseline"]
LEAST_WORK_S = 1.0  # saves closer together than this are no plan


@dataclass(frozen=True)
class Background:
    """What goes into every set-up and is no number that a sensitivity varies."""

    profile: Profile
    trace: tuple[float, ...] = ()  # gaps between failures to resample
    shared_every: int = 1  # every so-many-th save reaches the store, the others stay on their nodes
    spread: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # recoveries by layer, with a mean of 1


# --- saves
@dataclass(frozen=True)
class SaveTimes:
    """Seconds of one save, blocking_s <= cost_s <= durable_s."""

    blocking_s: float  # S
    cost_s: float  # K
    durable_s: float  # L


def checkpoint_bytes(values: Values) -> float:
    return values["model.params"] * values["model.bytes_per_param"]


def write_s(values: Values) -> float:
    """Seconds that the store needs for one checkpoint, shared with the other jobs that save."""
    return checkpoint_bytes(values) * values["storage.concurrent_jobs"] / values["storage.write_bytes_per_s"]


def save_times(values: Values, kind: SaveKind) -> SaveTimes:
    """S, K and L of a save, what is not among the values derived from what is.

    A blocking time stated alone, or a cost stated alone, is a synchronous save (S = K = L). With nothing stated or
    measured, an asynchronous save blocks for the staging of each GPU's bytes and is durable when the store has them.
    The synchronous baseline blocks for the whole write, and so does the baseline of a save that was described by hand.
    """
    blocking_s, cost_s, durable_s = (values.get(f"{kind}.{name}") for name in ("blocking_s", "cost_s", "durable_s"))
    if kind == "baseline" and blocking_s is None and cost_s is None:
        whole_s = save_times(values, "save").durable_s
        return SaveTimes(whole_s, whole_s, whole_s)
    if blocking_s is None and cost_s is not None and durable_s is None:
        blocking_s = cost_s
    if durable_s is None:
        durable_s = blocking_s if blocking_s is not None else write_s(values)
    if blocking_s is None:
        blocking_s = min(_staging_s(values), durable_s)
    durable_s = max(durable_s, blocking_s)
    if cost_s is None:
        cost_s = blocking_s + values.get(f"{kind}.slowdown", 0.0) * (durable_s - blocking_s)
    cost_s = max(cost_s, blocking_s)  # a hidden cost below 0 is noise, not a gain to plan with
    return SaveTimes(blocking_s, cost_s, max(durable_s, cost_s))


def _staging_s(values: Values) -> float:
    gpus = values["cluster.nodes"] * values["cluster.gpus_per_node"]
    return checkpoint_bytes(values) / gpus / values["storage.staging_bytes_per_s_per_gpu"]


# --- failures
def mtbf_s(values: Values) -> float:
    return formulas.mtbf_s(values["cluster.nodes"], values["failures.per_1000_node_days"])


def failure_classes(
    values: Values, background: Background, layers: frozenset[str], latency_s: float
) -> tuple[FailureClass, ...]:
    """The failures by the layer that they are recovered by: the lowest deployed one that handles them.

    A failure that needs another node is handled in place only where a spare stands by; otherwise the whole job starts
    again, and waits for the repair where there is no node at all (cluster.spares=0). A failed node takes its local
    copies with it. The last class is what failed recoveries fall back on.
    """
    shares: dict[tuple[str, bool], float] = {("orchestrator", False): 0.0}
    hot_spare = values.get("cluster.spares", 0) >= 1
    for each in background.profile.classes:
        in_place = _in_place(values, background.profile, each)
        for share, needs_node in ((each.share * in_place, False), (each.share * (1 - in_place), True)):
            can = (not needs_node or hot_spare) and each.layer != "orchestrator"
            layer = _lowest_deployed(each.layer, layers) if can else "orchestrator"
            if needs_node and layer == "in_process":  # ranks of another node have to be started by somebody
                layer = _lowest_deployed("in_job", layers)
            if share > 0:
                shares[layer, needs_node] = shares.get((layer, needs_node), 0.0) + share
    last = ("orchestrator", False)
    ordered = [*(key for key in shares if key != last), last]
    return tuple(_failure_class(values, background, key, shares[key], latency_s) for key in ordered)


def _in_place(values: Values, profile: Profile, each: Class) -> float:
    """Share of a class that a restart on the same nodes can help: of unclear ones what failures.in_place_share says."""
    if each.in_place != "unclear":
        return float(each.in_place == "yes")
    beyond = values["failures.in_place_share"] - profile.in_place_share
    return min(max(beyond / profile.unclear_share, 0.0), 1.0)


def _lowest_deployed(lowest: str, layers: frozenset[str]) -> str:
    order = ("in_process", "in_job", "orchestrator")
    return next(layer for layer in order[order.index(lowest) :] if layer in layers or layer == "orchestrator")


def _failure_class(
    values: Values, background: Background, key: tuple[str, bool], share: float, latency_s: float
) -> FailureClass:
    layer, needs_node = key
    mean_s = values[f"recovery.{layer}_s"]
    return FailureClass(
        name=f"{layer}{' on another node' if needs_node else ''}",
        share=share,
        recovery_s=tuple(mean_s * factor for factor in background.spread.get(layer, (1.0,))),
        every=background.shared_every if needs_node else 1,
        latency_s=latency_s,
        needs_node=needs_node,
        fails_share=0.0 if layer == "orchestrator" else values["recovery.fails_share"],
    )


# --- the whole
@dataclass(frozen=True)
class SetUp:
    """One choice, ready to be evaluated. Goodputs are useful shares of all GPU time, idle spares included."""

    save: SaveTimes
    classes: tuple[FailureClass, ...]
    mtbf_s: float
    gaps: Gaps
    spares: int | None
    repair_s: float
    kept_share: float  # of GPU time after the layers' fault-free price and the spares that stand idle

    def work_s(self, period_s: float) -> float:
        """tau; not above 0 where the period leaves no time for it."""
        return period_s - self.save.cost_s

    def waits_for_writes(self, period_s: float) -> bool:
        """Saves would come before the last write has ended."""
        return period_s < self.save.durable_s

    @property
    def recoveries(self) -> list[tuple[float, float]]:
        """(share, seconds) as the closed forms take them: failed attempts and waits for a repair included."""
        pairs = [pair for each in self.classes for pair in self._recoveries_of(each)]
        return [(share, seconds) for share, seconds in pairs if share > 0]

    def _recoveries_of(self, each: FailureClass) -> list[tuple[float, float]]:
        wait_s = self.repair_s if each.needs_node and self.spares == 0 else 0.0
        last_s = sum(self.classes[-1].recovery_s) / len(self.classes[-1].recovery_s)
        share = each.share / len(each.recovery_s)
        found = []
        for seconds in each.recovery_s:
            found.append((share * (1 - each.fails_share), wait_s + seconds))
            found.append((share * each.fails_share, wait_s + seconds + last_s))
        return found

    @property
    def tiered(self) -> bool:
        return any(each.every > 1 for each in self.classes)

    def closed(self, period_s: float) -> formulas.Estimate:
        """Long-run goodput by the closed form of this set-up; 0 where the period leaves no time for work."""
        name = "vaidya_1997" if self.save.durable_s > self.save.cost_s else "daly_2006"
        limits = "gaps without memory" + (", spares that never run out" if self.spares else "")
        good = self.gaps == Gaps() and not self.spares
        if self.work_s(period_s) <= 0:
            return formulas.Estimate(0.0, False, name, "a period longer than the cost of a save")
        if self.tiered:
            estimate = self._layered(period_s)
            return formulas.Estimate(
                max(estimate.value, 0.0) * self.kept_share,
                good and estimate.in_range,
                estimate.formula,
                estimate.valid_for,
            )
        value = formulas.goodput(
            self.work_s(period_s), self.save.cost_s, self.save.durable_s, self.recoveries, self.mtbf_s
        )
        return formulas.Estimate(value * self.kept_share, good, name, limits)

    def _layered(self, period_s: float) -> formulas.Estimate:
        period_s = max(period_s, self.save.durable_s)
        rows = []
        for each in self.classes:
            pairs = self._recoveries_of(each)
            recovery_s = sum(share * seconds for share, seconds in pairs) / each.share if each.share else 0.0
            rows.append((each.share, recovery_s, each.every * period_s / 2 + self.save.durable_s))
        return formulas.layered_goodput_first_order(period_s, self.save.cost_s, rows, self.mtbf_s)

    def goodput(self, period_s: float) -> float:
        return self.closed(period_s).value

    def best_period_s(self) -> float:
        """The period of the highest goodput, to 1e-4: at the optimum that costs nothing."""
        least = max(self.save.durable_s, self.save.cost_s + LEAST_WORK_S)
        return _highest(self.goodput, least, max(2 * least, 20 * self.mtbf_s + least))

    def flat_region_s(self, within: float = 0.01) -> tuple[float, float]:
        """Periods around the best whose goodput is at least (1 - within) of its own."""
        best_s = self.best_period_s()
        enough = (1 - within) * self.goodput(best_s)
        low = _edge(lambda p: self.goodput(p) >= enough, best_s, max(self.save.cost_s, 1e-3))
        high = _edge(lambda p: self.goodput(p) >= enough, best_s, 100 * (best_s + self.mtbf_s))
        return low, high

    def job_model(self, period_s: float) -> JobModel:
        save = self.save
        return JobModel(
            self.work_s(period_s),
            save.blocking_s,
            save.cost_s,
            save.durable_s,
            self.mtbf_s,
            self.classes,
            self.gaps,
            spares=self.spares,
            repair_s=self.repair_s,
        )


def build(values: Values, background: Background, kind: SaveKind, layers: frozenset[str]) -> SetUp:
    """The set-up of one kind of save and the recovery layers deployed below the orchestrator."""
    save = save_times(values, kind)
    spares = int(values["cluster.spares"]) if "cluster.spares" in values else None
    nodes = values["cluster.nodes"]
    kept = nodes / (nodes + (spares or 0))
    for layer in sorted(layers):
        kept *= 1 - values.get(f"recovery.{layer}_overhead_share", 0.0)
    return SetUp(
        save,
        failure_classes(values, background, layers, save.durable_s),
        mtbf_s(values),
        Gaps(values.get("failures.weibull_shape", 1.0), background.trace),
        spares,
        values["cluster.repair_s"],
        kept,
    )


def _highest(of: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one peak is highest between two positive bounds, by golden section in logs."""
    golden = (sqrt(5) - 1) / 2
    a, b = log(low), log(high)
    while b - a > 1e-4:
        left, right = b - golden * (b - a), a + golden * (b - a)
        if of(exp(left)) >= of(exp(right)):
            b = right
        else:
            a = left
    return min(max(exp((a + b) / 2), low), high)


def _edge(holds: Callable[[float], bool], inside: float, outside: float) -> float:
    """The last point from `inside` to `outside` at which a condition holds, by bisection in logs."""
    if holds(outside):
        return outside
    a, b = log(inside), log(outside)
    for _ in range(40):
        middle = (a + b) / 2
        a, b = (middle, b) if holds(exp(middle)) else (a, middle)
    return exp(a)
