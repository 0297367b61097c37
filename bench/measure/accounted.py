"""A result with everything that was derived from it, as comparisons and series need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.measure.events import LaunchRecord
from bench.measure.shares import Period
from bench.measure.summary import account_of, summarise
from bench.schema import Arm, LedgerRow, Sample, Summary


@dataclass(frozen=True)
class Accounted:
    """`run`: the content of run.json. `samples`: of all launches; the arms' figures rest on `measured` only."""

    run: dict[str, Any]
    launches: Sequence[LaunchRecord]
    summary: Summary
    samples: Sequence[Sample]
    ledger: Sequence[LedgerRow]

    @classmethod
    def of(cls, run: dict[str, Any], launches: list[LaunchRecord]) -> Accounted:
        return cls(run, launches, *summarise(run, launches))

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.run["config"]
        return config

    @property
    def arms(self) -> dict[str, Arm]:
        return {arm.name: arm for arm in self.summary.arms}

    def measured(self, arm: str) -> list[Sample]:
        """The saves that the arm's figures rest on."""
        found = account_of(self.config, self.launches, self.samples, self.ledger).samples
        return [sample for sample in found if sample.arm == arm and sample.measured]

    @property
    def period(self) -> Period:
        """The stated period, as a compute time or a wall time even where each save had its own."""
        stated = account_of(self.config, self.launches, self.samples, self.ledger).period
        if not stated.measured:
            return stated
        computes = [
            sample.period_s - sample.cost_s
            for arm in self.arms
            for sample in self.measured(arm)
            if sample.period_s is not None and sample.cost_s is not None
        ]
        return Period("the scenario's period", compute_s=median(computes) if computes else None)

    def blocks(self) -> dict[int, tuple[int, int]]:
        """(occasion, block) of each launch by its index."""
        return {launch.index: launch.block for launch in self.launches}
