"""From the launches of a result to summary.json, the samples and the ledger: the whole account, always derived anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Literal

from bench.measure.calibration import calibration_checks
from bench.measure.content import content_verified
from bench.measure.events import LaunchRecord
from bench.measure.ledger import ledger
from bench.measure.saves import samples
from bench.measure.shares import Period, arm_shares, period_at_share, period_of
from bench.measure.statistics import figure
from bench.measure.validity import Evidence, checks, job_probes_bytes_per_s
from bench.measure.verdicts import SYNC_SHARE, verdicts
from bench.schema import Arm, Check, Figure, LedgerRow, Sample, Summary


def summarise(run: dict[str, Any], launches: list[LaunchRecord]) -> tuple[Summary, list[Sample], list[LedgerRow]]:
    """Account for a result.

    `run`: the content of run.json. `launches`: of all occasions, the pilots included; a pilot's saves and ledger are in
    the returned lists, but in no figure of the summary.
    """
    config, environment = run["config"], run["environment"]
    launches = sorted(launches, key=lambda launch: launch.index)
    found = samples(launches, config["design"]["warmup_saves"])
    rows = ledger(launches)
    period = stated_period(config, launches, found)
    arms = [_arm(name, config, launches, found, rows, period) for name in config["checkpoint"]["arms"]]
    evidence = Evidence(launches, found, rows, arms, config, environment)
    results = checks(evidence) + _calibration(config, found)
    device: Literal["cpu", "cuda"] = "cuda" if environment["device"] == "cuda" else "cpu"
    summary = Summary(
        scenario=config["scenario"],
        machine=environment["machine"],
        device=device,
        rehearsal=config["cluster"]["name"] == "emulated",
        design=config["design"]["name"],
        world_size=config["num_nodes"] * config["ranks_per_node"],
        num_nodes=config["num_nodes"],
        versions=environment["versions"],
        status=_status(results),
        interrupted=bool(run["interrupted"]),
        checks=results,
        budget=run["budget"],
        arms=arms,
        ledger=_ledger_totals(rows, {launch.index for launch in launches if launch.kind != "pilot"}),
        verdicts=verdicts(arms, period),
        probe_bytes_per_s=figure(_probes(launches)),
        time_unit="GPU-seconds" if device == "cuda" else "slot-seconds",
    )
    return summary, found, rows


def stated_period(config: dict[str, Any], launches: Sequence[LaunchRecord], found: Sequence[Sample]) -> Period:
    """The period at which shares are stated: the user's, else the scenario's.

    One compute time serves all arms: the median control step over all of them, as no write is in flight during it.
    """
    steps = [s.control_step_s for s in found if s.measured and s.control_step_s is not None]
    control_step_s = median(steps) if steps else None
    return period_of(config["job"], config["design"]["name"], _interval_steps(config, launches), control_step_s)


def _interval_steps(config: dict[str, Any], launches: Sequence[LaunchRecord]) -> int | None:
    """Steps between saves: as configured, or as the last pilot settled "auto"."""
    configured = config["checkpoint"]["interval"]
    if configured != "auto":
        return int(configured)
    settled = [launch.launch["interval"] for launch in launches if isinstance(launch.launch.get("interval"), int)]
    return settled[-1] if settled else None


def _status(results: Iterable[Check]) -> Literal["valid", "warn", "invalid"]:
    levels = {check.level for check in results}
    return "invalid" if "invalid" in levels else "warn" if "warn" in levels else "valid"


def _probes(launches: Sequence[LaunchRecord]) -> list[float]:
    return [rate for launch in launches for rate in job_probes_bytes_per_s(launch).values()]


def _calibration(config: dict[str, Any], found: Sequence[Sample]) -> list[Check]:
    if config["design"]["name"] != "calibrate":
        return []
    return calibration_checks(found, config["checkpoint"]["synthetic"], config["train"]["step_s"])


# --- arms -------------------------------------------------------------------------------------------------------------
def _arm(
    name: str,
    config: dict[str, Any],
    launches: Sequence[LaunchRecord],
    found: Sequence[Sample],
    rows: Sequence[LedgerRow],
    period: Period,
) -> Arm:
    """The figures of one arm over its measured saves."""
    measured = [sample for sample in found if sample.arm == name and sample.measured]
    pilots = {launch.index for launch in launches if launch.kind == "pilot"}
    first = [s for s in found if s.arm == name and s.save == 0 and s.cycle >= 0 and s.launch not in pilots]
    cost_s, rates = _figure(measured, "cost_s"), _figure(measured, "write_bytes_per_s")
    written = _values(measured, "written_bytes")
    probes = _probes(launches)
    return Arm(
        name=name,
        strategy=name,
        cycles=sum(sample.cost_s is not None for sample in measured),
        launches=len({sample.launch for sample in measured}),
        cost_s=cost_s,
        blocking_s=_figure(measured, "blocking_s"),
        hidden_s=_figure(measured, "hidden_s"),
        durable_s=_figure(measured, "durable_s"),
        first_save_s=_figure(first, "blocking_s"),
        step_s=_figure(measured, "control_step_s"),
        load_cold_s=_figure(measured, "load_cold_s"),
        load_warm_s=_figure(measured, "load_warm_s"),
        period_at_40_s=period_at_share(cost_s.median, SYNC_SHARE) if cost_s else None,
        written_bytes=round(median(written)) if written else None,
        write_bytes_per_s=rates,
        storage_ceiling_share=rates.median / median(probes) if rates and probes else None,
        dirty_bytes=_figure(measured, "dirty_bytes"),
        content_verified=content_verified(launches, name),
        goodput=_goodput(name, launches, rows) if config["design"]["name"] == "full" else None,
        slowdown_share=_figure(measured, "slowdown_share"),
        launch_medians_cost_s=_launch_medians(measured),
        **arm_shares(measured, period),
    )


def _values(found: Iterable[Sample], name: str) -> list[float]:
    return [value for sample in found if (value := getattr(sample, name)) is not None]


def _figure(found: Iterable[Sample], name: str) -> Figure | None:
    return figure(_values(found, name))


def _launch_medians(measured: Sequence[Sample]) -> list[float]:
    """Median K of each launch, in the order of launches: how much launches differ."""
    by_launch: dict[int, list[float]] = {}
    for sample in measured:
        if sample.cost_s is not None:
            by_launch.setdefault(sample.launch, []).append(sample.cost_s)
    return [median(by_launch[launch]) for launch in sorted(by_launch)]


# --- ledger -----------------------------------------------------------------------------------------------------------
def _goodput(arm: str, launches: Sequence[LaunchRecord], rows: Sequence[LedgerRow]) -> float | None:
    """Useful share of all slot-seconds of the arm's own launches (full design: a launch belongs to one arm)."""
    own = {launch.index for launch in launches if launch.kind == "full" and launch.launch["arms"] == [arm]}
    wall_s = sum(row.seconds for row in rows if row.launch in own)
    useful_s = sum(row.seconds for row in rows if row.launch in own and row.category == "useful")
    return useful_s / wall_s if wall_s > 0 else None


def _ledger_totals(rows: Iterable[LedgerRow], included: set[int]) -> list[dict[str, Any]]:
    """Sums over launches and slots: {arm, category, seconds, share}; shares of all slot-seconds included."""
    seconds: defaultdict[tuple[str | None, str], float] = defaultdict(float)
    for row in rows:
        if row.launch in included:
            seconds[row.arm, row.category] += row.seconds
    wall_s = sum(seconds.values())
    return [
        {"arm": arm, "category": category, "seconds": total, "share": total / wall_s if wall_s > 0 else None}
        for (arm, category), total in seconds.items()
    ]
