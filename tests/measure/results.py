"""Whole results that never ran: launches of known durations, accounted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure.accounted import Accounted
from bench.measure.events import read_launches
from bench.schema import SCHEMA_VERSION
from tests.measure.streams import ARMS, ArmSpec, Scenario, run_json, write_launch

BASE = Scenario(cycles=8, probe_bytes_per_s=50e6, verify=True, load_s=(0.3, 0.1))


def write_result(
    folder: Path,
    scenario: Scenario = BASE,
    launches: int = 3,
    noise: float = 0.02,
    arms: Sequence[str] = tuple(ARMS),
    **config: Any,
) -> dict[str, Any]:
    """Write the launches of a result and return its run.json. `noise`: how much launches differ, as a share."""
    rng = np.random.default_rng(launches)
    for index in range(1, launches + 1):
        factor = 1 + noise * float(rng.normal())
        specs = {name: _scaled(scenario.arms[name], factor) for name in arms}
        each = replace(scenario, arms=specs, index=index, block=index)
        write_launch(folder / "launches" / str(index), each)
    run = run_json(replace(scenario, arms={name: scenario.arms[name] for name in arms}), **config)
    return {"schema_version": SCHEMA_VERSION} | run


def _scaled(spec: ArmSpec, factor: float) -> ArmSpec:
    durable_s = None if spec.durable_s is None else spec.durable_s * factor
    return replace(spec, block_s=spec.block_s * factor, durable_s=durable_s)


def result(folder: Path, scenario: Scenario = BASE, **options: Any) -> Accounted:
    run = write_result(folder, scenario, **options)
    return Accounted.of(run, read_launches(folder / "launches"))


def slower(scenario: Scenario, arm: str, factor: float) -> Scenario:
    """The same work, an arm's saves and writes `factor` times as long."""
    return replace(scenario, arms={**scenario.arms, arm: _scaled(scenario.arms[arm], factor)})
