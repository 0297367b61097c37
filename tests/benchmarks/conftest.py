"""What `make bench` shows: one table of what was measured, how far it spread and the bound that it is held to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest


@dataclass(frozen=True)
class Row:
    what: str
    unit: str
    median: float
    quartiles: tuple[float, float]
    n: int
    bound: float

    def __str__(self) -> str:
        low, high = self.quartiles
        values = f"{self.median:>9.4g} {low:>9.4g} {high:>9.4g} {self.n:>5} {self.bound:>9.4g}"
        return f"{self.what:58} {values} {self.unit}"


HEAD = f"{'':58} {'median':>9} {'quartile':>9} {'quartile':>9} {'n':>5} {'bound':>9}"
ROWS: list[Row] = []


class Bounds:
    """Takes down samples of a quantity and fails the test when their median reaches the bound."""

    def hold(self, what: str, samples: Sequence[float], bound: float, unit: str) -> None:
        low, median, high = (float(value) for value in np.quantile(samples, (0.25, 0.5, 0.75)))
        ROWS.append(Row(what, unit, median, (low, high), len(samples), bound))
        assert median < bound, f"{what}: {median:.4g} {unit}, the bound is {bound:.4g}"


@pytest.fixture
def bounds() -> Bounds:
    return Bounds()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if ROWS:
        terminalreporter.section("what the instrument costs")
        terminalreporter.line(HEAD)
        for row in ROWS:
            terminalreporter.line(str(row))
        load, cpus = os.getloadavg()[0], os.cpu_count() or 1
        if load > cpus:  # one core's worth of it is this run's own
            terminalreporter.line(
                f"load of the last minute: {load:.1f} on {cpus} CPUs. These are upper bounds; end other work, run again"
            )
