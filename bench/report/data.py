"""A result as a report needs it: accounted from its events, or as it was accounted when only that was kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from bench.errors import BadInput
from bench.measure.accounted import Accounted
from bench.measure.events import LaunchRecord
from bench.measure.saves import CONTROL_ARM
from bench.measure.sweep import resting_interval
from bench.measure.verdicts import ASYNC_ARM, SYNC_ARM
from bench.report.accounts import read_account
from bench.results import ResultFolder
from bench.schema import (
    SCHEMA_VERSION,
    Arm,
    Check,
    FaultFigures,
    Figure,
    LayerFigures,
    LedgerRow,
    Recovery,
    Sample,
    Summary,
    Verdict,
)

ENDED = ("ok", "failed", "skipped")  # status of a launch that nothing more is to come of


# --- reading
def read_result(path: Path, key: str) -> Accounted:
    """The result at `path`, from its events; where these were not kept, as its summary tells it. Raises BadInput."""
    folder = ResultFolder.open(path, key)
    if any(folder.path.glob("launches/*/launch.json")):
        return read_account(path, key)
    if (folder.path / "summary.json").is_file():
        return _as_kept(folder, key)
    raise BadInput(
        f"{key}: {path} holds no launch yet, so there is nothing to report; wait for the first, or run again"
    )


def _as_kept(folder: ResultFolder, key: str) -> Accounted:
    try:
        content = json.loads((folder.path / "summary.json").read_text())
    except ValueError:
        raise BadInput(f"{key}: {folder.path / 'summary.json'} is not readable JSON; the result is damaged") from None
    if content.get("schema_version") != SCHEMA_VERSION:
        raise BadInput(
            f"{key}: summary.json has schema version {content.get('schema_version')!r}, "
            f"this suite reads {SCHEMA_VERSION}; use the suite that wrote it"
        )
    samples = [Sample(**row | {"phases": json.loads(row["phases"])}) for row in _rows(folder.path / "samples.parquet")]
    ledger = [LedgerRow(**row) for row in _rows(folder.path / "ledger.parquet")]
    return Accounted(folder.read_run(), [], summary_from_json(content), samples, ledger)


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    from pyarrow import parquet  # a third of a second: only where events were not kept

    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


def summary_from_json(content: Mapping[str, Any]) -> Summary:
    """A Summary from the content of summary.json; unknown fields raise TypeError."""
    parts = {
        "checks": [Check(**check) for check in content["checks"]],
        "arms": [Arm(**_figures(arm)) for arm in content["arms"]],
        "verdicts": [Verdict(**verdict) for verdict in content["verdicts"]],
        "recoveries": [Recovery(**recovery) for recovery in content["recoveries"]],
        "layers": [_layer(layer) for layer in content["layers"]],
    }
    return Summary(**_figures(content) | parts)


def _layer(content: Mapping[str, Any]) -> LayerFigures:
    found = [FaultFigures(**_figures(fault) | {"parts": _figures(fault["parts"])}) for fault in content["faults"]]
    return LayerFigures(**_figures(content) | {"faults": found})


def _figures(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record, figures as such."""
    names = {field.name for field in fields(Figure)}
    return {
        name: Figure(**value) if isinstance(value, dict) and value.keys() == names else value
        for name, value in record.items()
    }


# --- what a reader asks of it
def measured_launches(result: Accounted) -> list[LaunchRecord]:
    """All but the pilots."""
    return [launch for launch in result.launches if launch.kind != "pilot"]


def measured(result: Accounted, arm: str) -> list[Sample]:
    """The saves that the arm's figures rest on, also where the events that tell of them were not kept."""
    if result.launches:
        return result.measured(arm)
    interval = resting_interval(result.summary.design, result.samples)
    found = [save for save in result.samples if save.arm == arm and save.measured]
    return [save for save in found if interval is None or save.interval_steps == interval]


def saving_arms(result: Accounted) -> list[Arm]:
    """The arms that save, with a known cost."""
    return [arm for arm in result.summary.arms if arm.name != CONTROL_ARM and arm.cost_s is not None]


def in_background(arm: Arm) -> bool:
    """Its writes outlast its saves, by what was measured."""
    return arm.durable_s is not None and arm.blocking_s is not None and arm.durable_s.median > arm.blocking_s.median


def sync_arm(result: Accounted) -> Arm | None:
    """The published synchronous arm, else the cheapest one measured."""
    found = [arm for arm in saving_arms(result) if not in_background(arm)]
    return _preferred(found, SYNC_ARM)


def async_arm(result: Accounted) -> Arm | None:
    """The published asynchronous arm, else the cheapest that writes in the background."""
    return _preferred([arm for arm in saving_arms(result) if in_background(arm)], ASYNC_ARM)


def _preferred(arms: list[Arm], name: str) -> Arm | None:
    named = [arm for arm in arms if arm.name == name]
    return named[0] if named else min(arms, key=_median_cost, default=None)


def _median_cost(arm: Arm) -> float:
    return arm.cost_s.median if arm.cost_s is not None else float("inf")


def struck(result: Accounted) -> list[Recovery]:
    """The episodes of faults that struck; none in a result without faults."""
    return [each for each in result.summary.recoveries if each.episode is not None]


def damage(result: Accounted) -> str | None:
    """What of the events is damaged and was left out, in words; None for nothing."""
    found: Counter[str] = Counter()
    for launch in result.launches:
        for stream in (*launch.workers, *launch.writers, *launch.runners):
            found.update(stream.problems)
        found["unreadable file"] += len(launch.unreadable)
    parts = [f"{count} {name.replace('_', ' ')}" for name, count in found.items() if count]
    return ", ".join(parts) or None


def unfinished(result: Accounted) -> str | None:
    """How much of what was planned is on record, where that is not all of it."""
    planned = sum(len(occasion["launches"]) for occasion in result.run["occasions"])
    ended = sum(launch.launch.get("status") in ENDED for launch in result.launches)
    if not result.launches or (ended >= planned and not result.summary.interrupted):
        return None
    return f"{ended} of {planned} launches have ended" if planned else "the run was interrupted"


def dates(result: Accounted) -> list[str]:
    """The days on which the result was measured, one an occasion."""
    return [str(occasion["date"])[:10] for occasion in result.run["occasions"] if "date" in occasion]


def counted(result: Accounted) -> str:
    """ "n = 12 saves an arm in 4 launches": what figures over saves rest on."""
    counts = sorted({arm.cycles for arm in result.summary.arms if arm.cost_s})
    launches = max((arm.launches for arm in result.summary.arms), default=0)
    n = "no saves" if not counts else f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"n = {n} saves an arm in {launches} launch{'es' * (launches != 1)}"
