"""The figures of one arm, over its measured saves and over its launches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.measure.check_storage import job_probes_bytes_per_s
from bench.measure.content import content_verified
from bench.measure.events import LaunchRecord
from bench.measure.limits import limited_by
from bench.measure.loads import load_figure, loads
from bench.measure.memory import peak_figures
from bench.measure.shares import Period, arm_shares, period_at_share
from bench.measure.statistics import clustered_figure, figure
from bench.measure.verdicts import SYNC_SHARE
from bench.schema import Arm, Figure, LedgerRow, Sample, strategy_of, syncs


@dataclass(frozen=True)
class Account:
    """What the figures of all arms rest on; in a sweep the launches at the longest interval, and the pilots."""

    config: dict[str, Any]  # fields of bench.config.Run
    launches: Sequence[LaunchRecord]
    samples: Sequence[Sample]
    ledger: Sequence[LedgerRow]
    period: Period

    def probe_bytes_per_s(self, synced: bool) -> Figure | None:
        """Storage probe of the job, before and after each launch, with fsync or without."""
        rates = [(rate, each.index) for each in self.launches for rate in job_probes_bytes_per_s(each, synced).values()]
        return clustered_figure([rate for rate, _ in rates], [index for _, index in rates], positive=True)

    @property
    def d2h_bytes_per_s(self) -> Figure | None:
        """Pinned device-to-host bandwidth of one GPU: every rank of every launch measures its own link."""
        rates = [
            (float(event["bytes_per_s"]), launch.index)
            for launch in self.launches
            for worker in launch.workers
            for event in worker.named("d2h")
        ]
        return clustered_figure([rate for rate, _ in rates], [index for _, index in rates], positive=True)


def sample_figure(samples: Iterable[Sample], name: str, positive: bool = False) -> Figure | None:
    """The figure of one field over `samples`, which come in launches; `positive`: greater than 0 by nature."""
    known = [(value, sample.launch) for sample in samples if (value := getattr(sample, name)) is not None]
    return clustered_figure([value for value, _ in known], [launch for _, launch in known], positive)


def arm_figures(name: str, account: Account) -> Arm:
    """The figures of one arm over its measured saves."""
    measured = [sample for sample in account.samples if sample.arm == name and sample.measured]
    loaded = loads([launch for launch in account.launches if launch.kind != "pilot"])
    cost_s = sample_figure(measured, "cost_s")
    written = [sample.written_bytes for sample in measured if sample.written_bytes is not None]
    return Arm(
        name=name,
        strategy=strategy_of(name),
        cycles=sum(sample.cost_s is not None for sample in measured),
        launches=len({sample.launch for sample in measured}),
        cost_s=cost_s,
        blocking_s=sample_figure(measured, "blocking_s", positive=True),
        hidden_s=sample_figure(measured, "hidden_s"),
        durable_s=sample_figure(measured, "durable_s", positive=True),
        first_save_s=sample_figure(_first_saves(name, account), "blocking_s", positive=True),
        step_s=sample_figure(measured, "control_step_s", positive=True),
        load_cold_s=load_figure(loaded, name, cold=True),
        load_warm_s=load_figure(loaded, name, cold=False),
        period_at_40_s=period_at_share(cost_s.median, SYNC_SHARE) if cost_s else None,
        written_bytes=round(median(written)) if written else None,
        dirty_bytes=sample_figure(measured, "dirty_bytes"),
        content_verified=content_verified(account.launches, name),
        goodput=_goodput(name, account),
        slowdown_share=sample_figure(measured, "slowdown_share"),
        launch_medians_cost_s=_launch_medians(measured),
        delete_s=sample_figure(measured, "delete_s", positive=True),
        flush_s=_flush(name, account.launches),
        **_speeds(name, measured, account),
        **arm_shares(measured, account.period),
        **peak_figures(account.launches, name),
    )


def _first_saves(name: str, account: Account) -> list[Sample]:
    """The first save of each launch; the pilots' are no measurement, those after the measured part are not first."""
    pilots = {launch.index for launch in account.launches if launch.kind == "pilot"}
    return [s for s in account.samples if s.arm == name and s.save == 0 and s.cycle >= 0 and s.launch not in pilots]


def _launch_medians(measured: Sequence[Sample]) -> list[float]:
    """Median K of each launch, in the order of launches: how much launches differ."""
    by_launch: dict[int, list[float]] = {}
    for sample in measured:
        if sample.cost_s is not None:
            by_launch.setdefault(sample.launch, []).append(sample.cost_s)
    return [median(by_launch[launch]) for launch in sorted(by_launch)]


def _flush(name: str, launches: Sequence[LaunchRecord]) -> Figure | None:
    """Seconds that a later fsync of the newest checkpoint took; of nodes that flush together the slowest counts."""
    found = []
    for launch in launches:
        events = [event for worker in launch.workers for event in worker.named("flush") if event["arm"] == name]
        if events and launch.kind != "pilot":
            found.append(max(float(event["seconds"]) for event in events))
    return figure(found)


# --- speeds against their ceilings ------------------------------------------------------------------------------------
def _speeds(name: str, measured: Sequence[Sample], account: Account) -> dict[str, Any]:
    """Writing and staging, the shares of their ceilings, and what bounds the arm.

    The ceiling of writing is the probe with the arm's own fsync setting; where there is none, the share is not known.
    """
    rates, staged = sample_figure(measured, "write_bytes_per_s", positive=True), _staging(measured, account)
    storage_share = _share_of(rates, account.probe_bytes_per_s(syncs(name, account.config["storage"]["fsync"])))
    staging_share = _share_of(staged, account.d2h_bytes_per_s)
    return {
        "write_s": sample_figure(measured, "write_s", positive=True),
        "write_bytes_per_s": rates,
        "storage_ceiling_share": storage_share,
        "staging_bytes_per_s": staged,
        "staging_ceiling_share": staging_share,
        "limited_by": limited_by(measured, storage_share, staging_share),
    }


def _share_of(rate: Figure | None, ceiling: Figure | None) -> float | None:
    return rate.median / ceiling.median if rate is not None and ceiling is not None else None


def _staging(measured: Sequence[Sample], account: Account) -> Figure | None:
    """Bytes of a rank's part over the slowest rank's time in the phase "stage"."""
    ranks = account.config["num_nodes"] * account.config["ranks_per_node"]
    rates = [
        (sample.written_bytes / ranks / stage_s, sample.launch)
        for sample in measured
        if sample.written_bytes and (stage_s := sample.phases.get("stage"))
    ]
    return clustered_figure([rate for rate, _ in rates], [launch for _, launch in rates], positive=True)


# --- ledger -----------------------------------------------------------------------------------------------------------
def _goodput(name: str, account: Account) -> float | None:
    """Useful share of all slot-seconds of the arm's own launches (full design: a launch belongs to one arm)."""
    own = {launch.index for launch in account.launches if launch.kind == "full" and launch.launch["arms"] == [name]}
    wall_s = sum(row.seconds for row in account.ledger if row.launch in own)
    useful_s = sum(row.seconds for row in account.ledger if row.launch in own and row.category == "useful")
    return useful_s / wall_s if wall_s > 0 else None
