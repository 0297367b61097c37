"""Every input of a plan with its value, unit, kind and source: what was measured, extrapolated, or only assumed.

Precedence: stated by the user, measured (scaled where the size differs), assumed. What a user states is "assumed" as
well: the planner has not seen it measured. Inputs that follow from others (checkpoint bytes, a save's cost) are listed
as `derived`, so that no sensitivity counts them twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bench.errors import BadInput
from bench.plan import results as measured
from bench.plan.config import LAYERS, Plan
from bench.plan.failures import Profile, profile
from bench.plan.results import Measured, Result
from bench.plan.scaling import Band, Point, scaled, scaled_recovery
from bench.plan.setup import Background, checkpoint_bytes, save_times

Kind = Literal["measured", "extrapolated", "assumed"]

STATED = "stated by you"
ASSUMED_PERIOD_S = 3600.0
TIMES_2, TIMES_4 = 2.0, 4.0  # how far an assumption may be off, in the sensitivity


@dataclass(frozen=True)
class Input:
    """One input. `low` and `high`: its interval where measured, bounds where extrapolated, else what is plausible."""

    name: str
    value: float
    unit: str
    kind: Kind
    source: str
    low: float | None = None
    high: float | None = None
    derived: bool = False

    @property
    def varies(self) -> bool:
        return not self.derived and self.low is not None and self.high is not None and self.low < self.high


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
    found.saves("save", plan.strategy)
    if not found.stated_save:
        found.saves("baseline", plan.baseline)
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
    found = measured.recoveries(results, layer)
    return tuple(value / each.whole.mean for each in found for value in each.whole.values if each.whole.mean > 0)


class _Gathered:
    """Collects inputs one group at a time; later groups use the sizes of the first."""

    def __init__(self, plan: Plan, results: Sequence[Result]) -> None:
        self.plan, self.results = plan, results
        self.inputs: dict[str, Input] = {}
        save = plan.save
        # A save described by hand stands for itself: nothing of it is filled in from another machine's store.
        self.stated_save = not results and (save.blocking_s is not None or save.cost_s is not None)

    def add(self, each: Input) -> None:
        self.inputs[each.name] = each

    def state(self, name: str, stated: float | None, unit: str, assumed: float, why: str, factor: float = 1.0) -> None:
        """A stated value, or an assumption that may be off by `factor` either way."""
        if stated is not None:
            self.add(Input(name, stated, unit, "assumed", STATED))
        else:
            spread = (assumed / factor, assumed * factor) if factor != 1.0 else (None, None)
            self.add(Input(name, assumed, unit, "assumed", why, *spread))

    # --- groups
    def sizes(self) -> None:
        cluster, model = self.plan.cluster, self.plan.model
        self.state("cluster.nodes", cluster.nodes, "nodes", 0, "")
        self.state("cluster.gpus_per_node", cluster.gpus_per_node, "GPUs", 0, "")
        price = "an example; 2 to 7 are common"
        self.state("cluster.price_per_gpu_hour", cluster.price_per_gpu_hour, "your currency", 4.0, price)
        if cluster.spares is not None:
            self.add(Input("cluster.spares", cluster.spares, "nodes", "assumed", STATED))
        self.state("cluster.repair_s", cluster.repair_s, "s", 6 * 3600.0, "a repair of 6 hours", TIMES_4)
        self.state("job.days", self.plan.job.days, "days", 90.0, "a quarter of a year")
        self.state("model.params", model.params, "parameters", 70e9, "a 70B model")
        self.state("model.bytes_per_param", model.bytes_per_param, "B", 12.0, "fp32 weights and Adam")

    @property
    def total_bytes(self) -> float:
        return self.inputs["model.params"].value * self.inputs["model.bytes_per_param"].value

    def store(self) -> None:
        storage = self.plan.storage
        if storage.write_bytes_per_s is None and (self.results or self.stated_save):
            return  # nothing follows from it
        rate = 1e9 * self.plan.cluster.nodes
        why = "1 GB/s for each node"
        self.state("storage.write_bytes_per_s", storage.write_bytes_per_s, "B/s", rate, why, TIMES_4)
        self.state("storage.concurrent_jobs", storage.concurrent_jobs, "jobs", 1, "")
        if not self.results:
            why = "device to host, each GPU"
            self.state("storage.staging_bytes_per_s_per_gpu", None, "B/s", 5e9, why, TIMES_4)

    def saves(self, prefix: str, arm: str) -> None:
        """blocking_s, durable_s, slowdown and cost_s of one arm, those of them that do not follow from others."""
        stated = self.plan.save if prefix == "save" else type(self.plan.save)()
        for figure, field in (("blocking_s", "blocking_s"), ("durable_s", "durable_s"), ("slowdown_share", "slowdown")):
            self._save_figure(f"{prefix}.{field}", getattr(stated, field), arm, figure)
        changed = stated != type(stated)()
        if stated.cost_s is not None or not changed:  # a changed S, L or sigma changes K with it
            self._save_figure(f"{prefix}.cost_s", stated.cost_s, arm, "cost_s")
        synchronous = self.stated_save and stated.durable_s is None
        if prefix == "save" and "save.slowdown" not in self.inputs and not synchronous:
            why = "share of wall time that steps lose while a write is in flight"
            self.add(Input("save.slowdown", 0.02, "share", "assumed", why, 0.0, 0.1))

    def _save_figure(self, name: str, stated: float | None, arm: str, figure: str) -> None:
        unit = "share" if figure == "slowdown_share" else "s"
        if stated is not None:
            self.add(Input(name, stated, unit, "assumed", STATED))
            return
        found = measured.save_figure(self.results, arm, figure)
        if not found:
            return
        if figure == "slowdown_share":  # a share of the time while the write is in flight: no size to scale it with
            self._share_figure(name, found[-1])
            return
        by_ranks = figure == "blocking_s" and name.startswith("save.")
        self._scaled(name, found, self._band(found, by_ranks))

    def _share_figure(self, name: str, found: Measured) -> None:
        low, high = (min(max(bound, 0.0), 0.99) for bound in found.interval())
        here = found.on_gpus and found.ranks == self.plan.gpus
        kind: Kind = "measured" if here else "extrapolated"
        self.add(Input(name, min(max(found.mean, 0.0), 0.99), "share", kind, found.source, low, high))

    def _band(self, found: Sequence[Measured], by_ranks: bool) -> Band:
        points = [point for each in found if (point := each.point(by_ranks)) is not None]
        if not points:
            raise BadInput(
                f"run: the bytes of a save are not on record ({found[0].source}); "
                "measure again with: python -m bench run"
            )
        return scaled(points, self.plan.gpus if by_ranks else self.plan.cluster.nodes, self.total_bytes)

    def _scaled(self, name: str, found: Sequence[Measured], band: Band) -> None:
        sources = "; ".join(each.source for each in found)
        if band.extrapolated:
            source = f"{sources}; {band.basis}"
            self.add(Input(name, band.typical_s, "s", "extrapolated", source, band.low, band.high))
            return
        here = [each for each in found if each.nodes == self.plan.cluster.nodes] or list(found)
        low, high = min(each.interval()[0] for each in here), max(each.interval()[1] for each in here)
        kind: Kind = "measured" if all(each.on_gpus for each in here) else "extrapolated"
        value = sum(each.mean for each in here) / len(here)
        self.add(Input(name, max(value, 0.0), "s", kind, sources, max(low, 0.0), max(high, 0.0)))

    # --- recovery and failures
    def recovery(self) -> None:
        published = {"orchestrator": 270.0, "in_job": 17.0, "in_process": 10.0}
        for layer in LAYERS:
            name = f"recovery.{layer}_s"
            stated = getattr(self.plan.recovery, f"{layer}_s")
            if layer == self.plan.recovery.layer and self.plan.recovery.seconds is not None:
                stated = self.plan.recovery.seconds
            found = measured.recoveries(self.results, layer)
            if stated is None and found:
                self._measured_recovery(name, found)
                continue
            why = "published by AWS for an 8B model on 2 to 8 nodes, without the load of a larger checkpoint"
            self.state(name, stated, "s", published[layer], why, TIMES_2)
        for layer in LAYERS[1:]:
            self._overhead(layer)
        self.add(Input("recovery.fails_share", self.plan.recovery.fails_share, "share", "assumed", "as configured"))

    def _measured_recovery(self, name: str, found: Sequence[measured.Recovered]) -> None:
        nodes = self.plan.cluster.nodes
        rest = [Point(max(each.whole.mean - each.load_s, 0.0), each.whole.nodes, 1.0) for each in found]
        band = scaled_recovery(rest, nodes)
        loads = [
            Point(each.load_s, each.whole.nodes, each.whole.total_bytes)
            for each in found
            if each.load_s > 0 and each.whole.total_bytes is not None
        ]
        if loads:
            load = scaled(loads, nodes, self.total_bytes)
            beyond = band.extrapolated or load.extrapolated
            basis = f"{band.basis}; loads: {load.basis}"
            band = Band(band.low + load.low, band.high + load.high, beyond, basis)
        self._scaled(name, [each.whole for each in found], band)

    def _overhead(self, layer: str) -> None:
        name, stated = f"recovery.{layer}_overhead_share", getattr(self.plan.recovery, f"{layer}_overhead_share")
        found = measured.layer_overhead(self.results, layer)
        if stated is None and found is not None:
            self.add(Input(name, max(found[0], 0.0), "share", "measured", found[1]))
        elif stated is not None:
            self.add(Input(name, stated, "share", "assumed", STATED))
        else:
            why = "no fault-free price was measured; 0.2 % can reverse a decision"
            self.add(Input(name, 0.0, "share", "assumed", why, 0.0, 0.002))

    def failures(self, mapping: Profile) -> None:
        failures = self.plan.failures
        assert failures.per_1000_node_days is not None
        low, high = sorted(failures.rate_range) if len(failures.rate_range) == 2 else (None, None)
        rate = failures.per_1000_node_days
        source = f"profile {failures.name}: {failures.source}"
        spread = (min(low, rate), max(high, rate)) if low is not None and high is not None else (None, None)
        self.add(Input("failures.per_1000_node_days", rate, "per 1,000 node-days", "assumed", source, *spread))
        sure = mapping.in_place_share
        self.add(
            Input(
                "failures.in_place_share",
                sure,
                "share",
                "assumed",
                failures.causes_source,
                sure,
                sure + mapping.unclear_share,
            )
        )
        if failures.gaps:
            return
        name, stated = "failures.weibull_shape", failures.weibull_shape
        if stated is not None:
            self.add(Input(name, stated, "", "assumed", STATED))
        else:
            self.add(Input(name, 1.0, "", "assumed", "failures without memory; clusters show 0.7 to 0.8", 0.7, 1.0))

    # --- what follows from the others
    def derived(self) -> None:
        values = {name: each.value for name, each in self.inputs.items()}
        size = checkpoint_bytes(values)
        self.derive("model.checkpoint_bytes", size, "B", "model.params x model.bytes_per_param")
        for prefix in ("save", "baseline"):
            times = save_times(values, prefix)
            for field in ("blocking_s", "cost_s", "durable_s"):
                name = f"{prefix}.{field}"
                if name not in self.inputs:
                    self.derive(name, getattr(times, field), "s", self._why(prefix, field))

    def derive(self, name: str, value: float, unit: str, why: str) -> None:
        """A derived input is extrapolated where a measurement stands behind it, else assumed."""
        prefix = name.split(".", maxsplit=1)[0]
        behind = [e.kind for e in self.inputs.values() if e.name.startswith(f"{prefix}.") and e.kind != "assumed"]
        self.add(Input(name, value, unit, "extrapolated" if behind else "assumed", why, derived=True))

    def _why(self, prefix: str, field: str) -> str:
        if field == "cost_s" and prefix == "save":
            return "blocking_s + slowdown x (durable_s - blocking_s)"
        if prefix == "baseline":
            return "a synchronous save takes as long as the strategy's write"
        if field == "durable_s":
            return "as long as the save blocks" if self.stated_save else "checkpoint bytes / storage.write_bytes_per_s"
        return "as long as the save costs" if self.stated_save else "bytes of one GPU / staging bandwidth"

    def period(self) -> None:
        stated, cost_s = self.plan.period_s, self.inputs["baseline.cost_s"].value
        if stated is not None:
            self.add(Input("period_s", stated, "s", "assumed", STATED))
        elif 4 * cost_s <= ASSUMED_PERIOD_S:
            self.add(Input("period_s", ASSUMED_PERIOD_S, "s", "assumed", "hourly saves"))
        else:
            self.add(Input("period_s", 4 * cost_s, "s", "assumed", "four times what a save of the baseline costs"))
