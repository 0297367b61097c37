"""The tables of a report as CSV: every column is in the dictionary; unknown is an empty cell, never 0."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.measure.accounted import Accounted
from bench.report import dictionary
from bench.report.page.objections import objections

FIGURE_PARTS = ("low", "high", "n", "interval")


def tables(result: Accounted) -> dict[str, list[dict[str, Any]]]:
    """The rows of every table that the result has; figures are still nested."""
    summary = result.summary
    found: dict[str, Iterable[Mapping[str, Any]]] = {
        "arms": map(asdict, summary.arms),
        "samples": map(asdict, result.samples),
        "ledger": map(asdict, result.ledger),
        "sweep": summary.sweep,
        "recoveries": map(asdict, summary.recoveries),
        "layers": map(asdict, summary.layers),
        "checks": map(asdict, summary.checks),
        "verdicts": map(asdict, summary.verdicts),
        "objections": map(asdict, objections(result)),
    }
    return {name: listed for name, rows in found.items() if (listed := [dict(row) for row in rows])}


def write_tables(result: Accounted, folder: Path) -> list[Path]:
    """NAME.csv of every table that has rows, and dictionary.csv, in `folder`, which exists."""
    paths = [_write(folder / f"{name}.csv", [flat(row) for row in rows]) for name, rows in tables(result).items()]
    told = [dict(zip(("table", "column", "unit", "meaning"), row, strict=True)) for row in dictionary.rows()]
    return [*paths, _write(folder / "dictionary.csv", told)]


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """One level: a figure becomes NAME, NAME_low ...; lists and other records become JSON."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and {"median", *FIGURE_PARTS} == value.keys():
            found[name] = value["median"]
            found |= {f"{name}_{part}": value[part] for part in FIGURE_PARTS}
        elif isinstance(value, dict | list):
            found[name] = json.dumps(value)
        else:
            found[name] = value
    return found


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, _columns(rows), restval="", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: "" if value is None else value for name, value in row.items()})
    return path


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """All columns, the parts of a figure beside it also where the first rows do not have it."""
    found = list(dict.fromkeys(name for row in rows for name in row))
    parts = {name: [f"{name}_{part}" for part in FIGURE_PARTS if f"{name}_{part}" in found] for name in found}
    own = {part for each in parts.values() for part in each}
    return [column for name in found if name not in own for column in (name, *parts[name])]
