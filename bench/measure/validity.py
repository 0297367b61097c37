"""Every validity check, in the order in which a reader needs them; each with level, reason and remedy."""

from __future__ import annotations

from collections.abc import Callable

from bench.measure import check_record, check_saves, check_storage
from bench.measure.evidence import Evidence
from bench.schema import Check

__all__ = ["CHECKS", "Evidence", "checks"]

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


def checks(evidence: Evidence) -> list[Check]:
    """The result of every check, the passed ones included."""
    return [check(evidence) for check in CHECKS]
