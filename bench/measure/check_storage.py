"""Validity of the storage figures: the probe as a ceiling, bursts, one file system for results and checkpoints."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from bench.measure.events import LaunchRecord
from bench.measure.evidence import Evidence, Level, answer, instants, listed
from bench.measure.loads import loads
from bench.schema import Check, syncs

ABOVE_PROBE = 1.1
PROBE_DRIFT_SHARE = 0.20
CACHED_SHARE = 0.10


def job_probes_bytes_per_s(launch: LaunchRecord, synced: bool) -> dict[str, float]:
    """Storage probe of a launch, with fsync or without, by moment ("before", "after").

    Nodes write at the same time, so their rates add.
    """
    rates: defaultdict[str, float] = defaultdict(float)
    for event in instants(launch, "probe"):
        if bool(event["fsync"]) == synced:
            rates[str(event["when"])] += float(event["bytes_per_s"])
    return dict(rates)


def _probe(evidence: Evidence, synced: bool) -> float | None:
    """Median over all launches, in bytes/s; None: the storage was not probed like this."""
    rates = [rate for launch in evidence.launches for rate in job_probes_bytes_per_s(launch, synced).values()]
    return median(rates) if rates else None


def _to_probe(evidence: Evidence) -> str:
    """What to do for a probe that is missing."""
    if evidence.config["storage"].get("probe", True):
        return "see the notes in launches/<k>/events/runner-*: the probe failed, or no pilot showed its size"
    return "set storage.probe=true"


def probe_ceiling(evidence: Evidence) -> Check:
    """No arm writes faster than the probe with its own fsync setting, which is meant to be the storage's ceiling."""
    probes = {synced: rate for synced in (False, True) if (rate := _probe(evidence, synced)) is not None}
    if not probes:
        return answer("probe_ceiling", "note", "the storage was not probed", _to_probe(evidence))
    fsync = evidence.config["storage"]["fsync"]
    ratios = {
        arm.name: arm.write_bytes_per_s.median / probes[synced]
        for arm in evidence.arms
        if arm.write_bytes_per_s is not None and (synced := syncs(arm.name, fsync)) in probes
    }
    above = [f"{name} ({ratio:.2f} x)" for name, ratio in ratios.items() if ratio > ABOVE_PROBE]
    reason = f"saves write faster than the probe: {listed(above)}" if above else "no save writes faster than the probe"
    return answer(
        "probe_ceiling",
        "warn" if above else "ok",
        reason,
        "storage_ceiling_share is no ceiling here: storage was slower when probed, or caches",
    )


def probe_drift(evidence: Evidence) -> Check:
    """The storage's own speed stays the same from launch to launch."""
    spreads = [spread for synced in (False, True) if (spread := _probe_spread(evidence, synced)) is not None]
    if not spreads:
        probing = evidence.config["storage"].get("probe", True)
        remedy = "set launches=3" if probing else "set storage.probe=true and launches=3"
        return answer("probe_drift", "note", "fewer than two launches were probed", remedy)
    spread = max(spreads)
    level: Level = "warn" if spread > PROBE_DRIFT_SHARE else "ok"
    reason = f"the probe's bandwidth varies by {spread:.0%} between launches"
    return answer("probe_drift", level, reason, "shared or bursting storage: measure on more occasions (append=PATH)")


def _probe_spread(evidence: Evidence, synced: bool) -> float | None:
    """Largest less smallest median of a launch, as a share of the launches' median; None for fewer than two."""
    probes = [job_probes_bytes_per_s(launch, synced) for launch in evidence.launches]
    by_launch = [median(rates.values()) for rates in probes if rates]
    return (max(by_launch) - min(by_launch)) / median(by_launch) if len(by_launch) > 1 else None


def burst(evidence: Evidence) -> Check:
    """Nothing writes faster than what is provisioned for ever. Unsynced writes end in memory, and say nothing of it."""
    limit = evidence.config["storage"]["provisioned_bytes_per_s"]
    if limit is None:
        return answer("burst", "ok", "no provisioned bandwidth is configured (storage.provisioned_bytes_per_s)", "")
    rates = {
        arm.name: arm.write_bytes_per_s.median
        for arm in evidence.arms
        if arm.write_bytes_per_s is not None and syncs(arm.name, evidence.config["storage"]["fsync"])
    }
    rates |= {} if (probe := _probe(evidence, True)) is None else {"the probe": probe}
    if not rates:
        reason = "no speed of synced writes was measured, and others are the page cache's"
        return answer("burst", "note", reason, "measure with storage.fsync=true")
    faster = [f"{name} ({rate / limit:.2f} x)" for name, rate in rates.items() if rate > limit]
    reason = (
        f"faster than the provisioned bandwidth: {listed(faster)}" if faster else "within the provisioned bandwidth"
    )
    return answer(
        "burst", "warn" if faster else "ok", reason, "burst credits run out: write until they are spent, then measure"
    )


def cold_loads(evidence: Evidence) -> Check:
    """Did cold loads come from the storage?"""
    cold = [load for load in loads(evidence.measured_launches) if load.cold]
    known = [(load, load.cached_share) for load in cold if load.cached_share is not None]
    if not known:
        reason = "no cold load whose share from the page cache is known"
        return answer(
            "cold_loads", "note", reason, "loads are timed after each launch of an arm that keeps checkpoints"
        )
    cached = {load.arm: share for load, share in sorted(known, key=lambda pair: pair[1]) if share > CACHED_SHARE}
    reason = f"at most {CACHED_SHARE:.0%} of a cold load was in the page cache before it"
    if cached:
        served = listed(f"{arm} {share:.0%}" for arm, share in cached.items())
        reason = f"load served from the page cache, share that stayed there: {served}"
    remedy = "load_cold_s is too short here: a checkpoint folder on a file system that lets pages go (not tmpfs)"
    return answer("cold_loads", "warn" if cached else "ok", reason, remedy)


def one_file_system(evidence: Evidence) -> Check:
    """Results and checkpoints should not share a file system, or recording slows the saves."""
    shared = evidence.environment.get("one_filesystem")
    remedy = "give storage.dir=PATH on the file system that checkpoints are to go to"
    if shared is None:
        return answer(
            "one_file_system", "note", "not known whether results and checkpoints share a file system", remedy
        )
    if not shared:
        return answer("one_file_system", "ok", "results and checkpoints are on different file systems", "")
    level: Level = "note" if evidence.config["cluster"]["name"] in ("local", "emulated") else "warn"
    return answer("one_file_system", level, "results and checkpoints are on one file system", remedy)
