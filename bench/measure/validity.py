"""Every validity check, in the order in which a reader needs them; each with level, reason and remedy."""

from __future__ import annotations

from collections.abc import Callable

from bench.measure import check_period, check_record, check_recovery, check_saves, check_storage
from bench.measure.evidence import Evidence
from bench.schema import Check

__all__ = ["CHECKS", "RECOVERY_CHECKS", "Evidence", "checks"]

CHECKS: tuple[Callable[[Evidence], Check], ...] = (
    check_record.launches,
    check_saves.arms_present,
    check_saves.enough_saves,
    check_saves.warmup,
    check_saves.content,
    check_record.events,
    check_record.unattributed,
    check_record.clocks,
    check_record.leftovers,
    check_record.machine_busy,
    check_saves.saturated,
    check_period.extrapolation,
    check_saves.sweep_agrees,
    check_saves.drift,
    check_saves.outlying,
    check_saves.client_memory,
    check_storage.probe_ceiling,
    check_storage.probe_drift,
    check_storage.burst,
    check_storage.cold_loads,
    check_storage.one_file_system,
)

# Of a result of design=recovery, whose saves are there for the recoveries.
RECOVERY_CHECKS: tuple[Callable[[Evidence], Check], ...] = (
    check_recovery.launches,
    check_recovery.faults_fired,
    check_recovery.resumed_state,
    check_recovery.recovery_points,
    check_recovery.enough_episodes,
    check_recovery.timeouts,
    check_recovery.false_alarms,
    check_recovery.layer_prices,
    check_recovery.outlived,
    check_record.events,
    check_record.unattributed,
    check_record.clocks,
    check_record.leftovers,
    check_record.machine_busy,
    check_storage.one_file_system,
)


def checks(evidence: Evidence) -> list[Check]:
    """The result of every check, the passed ones included."""
    chosen = RECOVERY_CHECKS if evidence.config["design"]["name"] == "recovery" else CHECKS
    return [check(evidence) for check in chosen]
