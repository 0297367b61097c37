"""From the launches of a result to summary.json, the samples and the ledger: the whole account, always derived anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Literal

from bench.measure.arms import Account, arm_figures
from bench.measure.calibration import calibration_checks
from bench.measure.crossover import crossover
from bench.measure.events import LaunchRecord
from bench.measure.layers import layer_figures
from bench.measure.ledger import ledger
from bench.measure.recoveries import pairs, recoveries
from bench.measure.recovery_verdicts import recovery_verdicts
from bench.measure.saves import samples
from bench.measure.shares import Period, period_of
from bench.measure.sweep import Point, at_interval, points, resting_interval
from bench.measure.validity import Evidence, checks
from bench.measure.verdicts import ASYNC_ARM, verdicts
from bench.schema import STRUCK, Arm, Check, LedgerRow, Sample, Summary, Verdict, strategy_of


def summarise(run: dict[str, Any], launches: list[LaunchRecord]) -> tuple[Summary, list[Sample], list[LedgerRow]]:
    """Account for a result.

    `run`: the content of run.json. `launches`: of all occasions, the pilots included; a pilot's saves and ledger are in
    the returned lists, but in no figure of the summary.
    """
    config, environment = run["config"], run["environment"]
    launches = sorted(launches, key=lambda launch: launch.index)
    saving = [launch for launch in launches if launch.kind != STRUCK]  # saves that a fault may break are no samples
    found = samples(saving, config["design"]["warmup_saves"])
    rows = ledger(launches)
    struck = pairs(launches)
    recovered = recoveries(struck)
    layers = layer_figures(struck, recovered, rows)
    account = account_of(config, launches, found, rows)
    arms = [arm_figures(name, account) for name in config["checkpoint"]["arms"]]
    sweep = points(found, config["checkpoint"]["arms"]) if config["design"]["name"] == "sweep" else []
    evidence = Evidence(launches, account.samples, rows, arms, config, environment, sweep, recovered, layers)
    results = checks(evidence) + _calibration(config, found)
    device: Literal["cpu", "cuda"] = "cuda" if environment["device"] == "cuda" else "cpu"
    own_sync = bool(config["storage"]["fsync"])
    if config["design"]["name"] == "recovery":
        judged = recovery_verdicts(recovered, device == "cuda" and config["cluster"]["name"] != "emulated")
    else:
        judged = verdicts(arms, account.period) + _crossovers(arms, sweep)
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
        verdicts=judged,
        recoveries=recovered,
        layers=layers,
        probe_bytes_per_s=account.probe_bytes_per_s(own_sync),
        synced_probe_bytes_per_s=None if own_sync else account.probe_bytes_per_s(True),
        d2h_bytes_per_s=account.d2h_bytes_per_s,
        sweep=[point.to_json() for point in sweep],
        stamps=stamps(config, device),
        time_unit="GPU-seconds" if device == "cuda" else "slot-seconds",
    )
    return summary, found, rows


def account_of(
    config: dict[str, Any], launches: Sequence[LaunchRecord], found: Sequence[Sample], rows: Sequence[LedgerRow]
) -> Account:
    """What the arms' figures rest on: everything, or a sweep's longest interval."""
    chosen = at_interval(launches, resting_interval(config["design"]["name"], found))
    indices = {launch.index for launch in chosen}
    account = Account(config, chosen, [s for s in found if s.launch in indices], rows, Period(""))
    return replace(account, period=stated_period(config, chosen, account.samples))


def stamps(config: dict[str, Any], device: str) -> list[str]:
    """What every reader of the figures must know before the first of them."""
    found = []
    if config["cluster"]["name"] == "emulated":
        found.append("REHEARSAL on emulated nodes: these are not figures of a cluster")
    if device == "cpu":
        found.append("cpu: no GPU took part, so nothing here says what a GPU's steps and copies cost")
    if config["train"]["compute"] == "paced":
        found.append("paced: interference not measured, as steps wait and compute nothing")
    if device == "cpu" and _needs_cuda_calls(config):
        found.append("cpu-shim: NVRx's unconditional CUDA calls are no-ops in arms of this result")
    if config["storage"].get("throttle_bytes_per_s") is not None:
        found.append("throttled: the store was made slow for this run (storage.throttle_bytes_per_s)")
    return found


def _needs_cuda_calls(config: dict[str, Any]) -> bool:
    """Whether an arm runs library code that calls CUDA whether there is one or not."""
    arms, published = config["checkpoint"]["arms"], config["checkpoint"].get("api") == "torch_async"
    strategies = {strategy_of(arm) for arm in arms}
    # An arm that syncs beside others takes the own function, whatever checkpoint.api says.
    return bool(strategies & {"nvrx_local", "nvrx_dcp"}) or (published and "nvrx_async" in arms)


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


def _crossovers(arms: Sequence[Arm], sweep: Sequence[Point]) -> list[Verdict]:
    """In a sweep: of the published arm, else of the first that writes in the background."""
    background = [arm for arm in arms if arm.durable_s and arm.blocking_s and arm.durable_s.low > arm.blocking_s.high]
    judged = [arm for arm in arms if arm.name == ASYNC_ARM] or background
    if not sweep or not judged:
        return []
    arm = judged[0]
    return [crossover(arm.name, [p for p in sweep if p.arm == arm.name], arm.cost_s, arm.durable_s)]


def _calibration(config: dict[str, Any], found: Sequence[Sample]) -> list[Check]:
    if config["design"]["name"] != "calibrate":
        return []
    return calibration_checks(found, config["checkpoint"]["synthetic"], config["train"]["step_s"])


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
