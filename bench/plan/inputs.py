"""Every input of a plan with its value, unit, kind and source: what was measured, extrapolated, or only assumed.

Precedence: stated by the user, from results, assumed. What a user states counts as assumed as well: the planner has not
seen it measured. What follows from other inputs (checkpoint bytes, a save's cost) is listed as `derived`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.plan import measured
from bench.plan.config import LAYERS, Plan, Save
from bench.plan.failures import Profile, profile
from bench.plan.label import CONFIGURED, STATED, Input, Kind
from bench.plan.measured import Target
from bench.plan.results import Result, recoveries
from bench.plan.setup import Background, SaveKind, checkpoint_bytes, save_times, write_s

TIMES_2, TIMES_4 = 2.0, 4.0  # how far an assumption may be off, in the sensitivity
ASSUMED_PERIOD_S = 3600.0
PUBLISHED_RECOVERY_S = {"orchestrator": 270.0, "in_job": 17.0, "in_process": 10.0}
AWS = "published by AWS for an 8B model on 2 to 8 nodes, without the load of a larger checkpoint"


@dataclass(frozen=True)
class Inputs:
    """All inputs of a plan by name, and what stands behind them."""

    plan: Plan
    by_name: dict[str, Input]
    background: Background
    results: tuple[Result, ...] = ()

    @property
    def values(self) -> dict[str, float]:
        """The independent ones: all that is not derived."""
        return {name: each.value for name, each in self.by_name.items() if not each.derived}

    @property
    def period_s(self) -> float:
        return self.by_name["period_s"].value


def gather(plan: Plan, results: Sequence[Result]) -> Inputs:
    """Join what was stated, measured and assumed. BadInput where a result lacks what the plan needs."""
    found = _Gathered(plan, results)
    found.sizes()
    found.store()
    found.saves("save", plan.strategy, plan.save)
    found.saves("baseline", plan.baseline, Save())
    found.recovery()
    mapping = profile(plan.failures)
    found.failures(mapping)
    found.derived()
    found.period()
    spread = {layer: values for layer in LAYERS if (values := _spread(results, layer))}
    gaps = tuple(float(gap) for gap in plan.failures.gaps)
    return Inputs(plan, found.inputs, Background(mapping, gaps, plan.storage.shared_every, spread), tuple(results))


def _spread(results: Sequence[Result], layer: str) -> tuple[float, ...]:
    """Measured recoveries relative to their result's mean: the shape that every size takes over."""
    found = recoveries(results, layer)
    return tuple(value / each.whole.mean for each in found for value in each.whole.values if each.whole.mean > 0)


class _Gathered:
    """Collects inputs one group at a time; later groups use the sizes of the first."""

    def __init__(self, plan: Plan, results: Sequence[Result]) -> None:
        self.plan, self.results = plan, results
        self.inputs: dict[str, Input] = {}
        # A save described by hand stands for itself: nothing of it is filled in from an assumed store.
        self.by_hand = not results and (plan.save.blocking_s is not None or plan.save.cost_s is not None)

    def add(self, each: Input) -> None:
        self.inputs[each.name] = each

    def state(self, name: str, stated: float, unit: str, source: str = STATED) -> None:
        self.add(Input(name, stated, unit, "assumed", source))

    def assume(self, name: str, stated: float | None, unit: str, value: float, why: str, factor: float = 1.0) -> None:
        """A stated value, else an assumption that may be off by `factor` either way."""
        if stated is not None:
            self.state(name, stated, unit)
        else:
            spread = (value / factor, value * factor) if factor != 1.0 else (None, None)
            self.add(Input(name, value, unit, "assumed", why, *spread))

    @property
    def values(self) -> dict[str, float]:
        return {name: each.value for name, each in self.inputs.items() if not each.derived}

    # --- sizes and the store
    def sizes(self) -> None:
        cluster, model = self.plan.cluster, self.plan.model
        self.state("cluster.nodes", cluster.nodes, "nodes", CONFIGURED)
        self.state("cluster.gpus_per_node", cluster.gpus_per_node, "GPUs", CONFIGURED)
        price = "an example; 2 to 7 are common"
        self.assume("cluster.price_per_gpu_hour", cluster.price_per_gpu_hour, "your currency", 4.0, price)
        if cluster.spares is not None:
            self.state("cluster.spares", cluster.spares, "nodes")
        self.assume("cluster.repair_s", cluster.repair_s, "s", 6 * 3600.0, "a repair of 6 hours", TIMES_4)
        self.assume("job.days", self.plan.job.days, "days", 90.0, "a quarter of a year")
        self.assume("model.params", model.params, "parameters", 70e9, "a 70B model")
        self.assume("model.bytes_per_param", model.bytes_per_param, "B", 12.0, "fp32 weights and Adam")

    def store(self) -> None:
        storage = self.plan.storage
        if storage.write_bytes_per_s is None and (self.results or self.by_hand):
            return  # nothing follows from it
        rate, why = 1e9 * self.plan.cluster.nodes, "1 GB/s for each node"
        self.assume("storage.write_bytes_per_s", storage.write_bytes_per_s, "B/s", rate, why, TIMES_4)
        self.state("storage.concurrent_jobs", storage.concurrent_jobs, "jobs", CONFIGURED)
        if not self.results and not self.by_hand:
            why = "device to host, each GPU"
            self.assume("storage.staging_bytes_per_s_per_gpu", None, "B/s", 5e9, why, TIMES_4)

    @property
    def target(self) -> Target:
        values = self.values
        store_s = write_s(values) if self.plan.storage.write_bytes_per_s is not None else None
        return Target(self.plan.cluster.nodes, self.plan.gpus, checkpoint_bytes(values), store_s)

    # --- saves
    def saves(self, prefix: str, arm: str, stated: Save) -> None:
        """From results, with what was stated in its place; a stated S, L or sigma changes a measured K with it."""
        if self.results:
            for each in measured.save_inputs(prefix, self.results, arm, self.target):
                self.add(each)
        units = {"blocking_s": "s", "cost_s": "s", "durable_s": "s", "slowdown": "share"}
        given = {name: getattr(stated, name) for name in units if getattr(stated, name) is not None}
        if given and "cost_s" not in given:
            self.inputs.pop(f"{prefix}.cost_s", None)
        for name, value in given.items():
            self.state(f"{prefix}.{name}", value, units[name])
        if prefix == "save":
            self._assume_slowdown(synchronous=self.by_hand and stated.durable_s is None)

    def _assume_slowdown(self, synchronous: bool) -> None:
        known = {"save.slowdown", "save.cost_s"} & set(self.inputs)
        if not synchronous and not known:
            why = "share of wall time that steps lose while a write is in flight"
            self.add(Input("save.slowdown", 0.02, "share", "assumed", why, 0.0, 0.1))

    # --- recovery and failures
    def recovery(self) -> None:
        for layer in LAYERS:
            self._recovery_of(layer)
        for layer in LAYERS[1:]:
            self._overhead_of(layer)
        self.state("recovery.fails_share", self.plan.recovery.fails_share, "share", CONFIGURED)

    def _recovery_of(self, layer: str) -> None:
        stated = getattr(self.plan.recovery, f"{layer}_s")
        if layer == self.plan.recovery.layer and self.plan.recovery.seconds is not None:
            stated = self.plan.recovery.seconds
        found = measured.recovery_input(layer, self.results, self.target) if stated is None else None
        if found is not None:
            self.add(found)
        else:
            self.assume(f"recovery.{layer}_s", stated, "s", PUBLISHED_RECOVERY_S[layer], AWS, TIMES_2)

    def _overhead_of(self, layer: str) -> None:
        name = f"recovery.{layer}_overhead_share"
        stated = getattr(self.plan.recovery, f"{layer}_overhead_share")
        found = measured.overhead_input(layer, self.results)
        if stated is not None:
            self.state(name, stated, "share")
        elif found is not None:
            self.add(found)
        else:
            why = "no fault-free price was measured; 0.2 % can reverse a decision"
            self.add(Input(name, 0.0, "share", "assumed", why, 0.0, 0.002))

    def failures(self, mapping: Profile) -> None:
        failures, rate = self.plan.failures, self.plan.failures.per_1000_node_days
        assert rate is not None
        spread = (min(*failures.rate_range, rate), max(*failures.rate_range, rate)) if failures.rate_range else ()
        source = f"profile {failures.name}: {failures.source}"
        self.add(Input("failures.per_1000_node_days", rate, "per 1,000 node-days", "assumed", source, *spread))
        sure = mapping.in_place_share
        bounds = (sure, sure + mapping.unclear_share)
        self.add(Input("failures.in_place_share", sure, "share", "assumed", failures.causes_source, *bounds))
        if failures.weibull_shape is not None:
            self.state("failures.weibull_shape", failures.weibull_shape, "")
        elif not failures.gaps:
            why = "failures without memory; clusters show 0.7 to 0.8"
            self.add(Input("failures.weibull_shape", 1.0, "", "assumed", why, 0.7, 1.0))

    # --- what follows from the others
    def derived(self) -> None:
        size = checkpoint_bytes(self.values)
        self._derive("model.checkpoint_bytes", size, "B", "model.params x model.bytes_per_param")
        kinds: tuple[SaveKind, ...] = ("save", "baseline")
        for prefix in kinds:
            times = save_times(self.values, prefix)
            for field in ("blocking_s", "cost_s", "durable_s"):
                if f"{prefix}.{field}" not in self.inputs:
                    self._derive(f"{prefix}.{field}", getattr(times, field), "s", self._why(prefix, field))

    def _derive(self, name: str, value: float, unit: str, why: str) -> None:
        """Extrapolated where anything extrapolated stands behind it, else assumed: nobody measured it itself."""
        prefixes = ("save.", "baseline.") if name.startswith("baseline.") else (name.split(".", maxsplit=1)[0] + ".",)
        behind = {each.kind for each in self.inputs.values() if each.name.startswith(prefixes)}
        kind: Kind = "extrapolated" if "extrapolated" in behind else "assumed"
        self.add(Input(name, value, unit, kind, why, derived=True))

    def _why(self, prefix: str, field: str) -> str:
        if prefix == "baseline" and "baseline.cost_s" not in self.values:
            return "a synchronous save takes as long as the strategy's write"
        if field == "cost_s":
            return "blocking_s + slowdown x (durable_s - blocking_s)"
        if self.by_hand or f"{prefix}.cost_s" in self.values:
            return "a synchronous save: blocked as long as it costs, durable when it returns"
        return (
            "checkpoint bytes / storage bandwidth" if field == "durable_s" else "bytes of one GPU / staging bandwidth"
        )

    def period(self) -> None:
        cost_s = self.inputs["baseline.cost_s"].value
        long_enough = 4 * cost_s <= ASSUMED_PERIOD_S
        value = ASSUMED_PERIOD_S if long_enough else 4 * cost_s
        why = "hourly saves" if long_enough else "four times what a save of the baseline costs"
        self.assume("period_s", self.plan.period_s, "s", value, why)
