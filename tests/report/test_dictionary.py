"""The data dictionary is the schema, both ways: no column without a meaning, no meaning without a column."""

from __future__ import annotations

import csv
from dataclasses import fields

import pytest

from bench import schema
from bench.measure.sweep import Point
from bench.report import dictionary
from bench.report.page.objections import Objection
from bench.report.tables import FIGURE_PARTS, tables, write_tables

RECORDS = {
    "arms": schema.Arm,
    "samples": schema.Sample,
    "ledger": schema.LedgerRow,
    "sweep": Point,
    "recoveries": schema.Recovery,
    "layers": schema.LayerFigures,
    "checks": schema.Check,
    "verdicts": schema.Verdict,
    "objections": Objection,
}


def test_every_table_is_described():
    assert set(dictionary.TABLES) == set(RECORDS)


@pytest.mark.parametrize("table", sorted(RECORDS))
def test_a_table_describes_exactly_the_fields_of_its_record(table):
    assert set(dictionary.TABLES[table]) == {field.name for field in fields(RECORDS[table])}


@pytest.mark.parametrize(("table", "column"), [(row[0], row[1]) for row in dictionary.rows()])
def test_the_unit_is_that_of_the_name(table, column):
    unit, meaning = dictionary.TABLES[table][column]
    ends = {"_s": "s", "_bytes": "bytes", "_share": "share of 1", "_bytes_per_s": "bytes/s", "_steps": "steps"}
    suffix = next((end for end in sorted(ends, key=len, reverse=True) if column.endswith(end)), None)
    if suffix is not None and not column.startswith("launch_medians"):
        assert ends[suffix] in unit
    assert len(meaning) >= 5
    assert not meaning.endswith(".")


def test_every_column_that_is_written_is_in_the_dictionary_that_is_written_with_it(tmp_path, checkpoints, recoveries):
    for name, result in (("saves", checkpoints), ("faults", recoveries)):
        folder = tmp_path / name
        folder.mkdir()
        written = {path.stem: path for path in write_tables(result, folder)}
        assert set(written) == {*tables(result), "dictionary"}
        with written.pop("dictionary").open() as file:
            described = {(row["table"], row["column"]) for row in csv.DictReader(file)}
        for table, path in written.items():
            with path.open() as file:
                columns = next(csv.reader(file))
            bare = [each for each in columns if not part_of_a_figure(each, columns)]
            assert {(table, column) for column in bare} <= described


def part_of_a_figure(column: str, columns: list[str]) -> bool:
    base, _, part = column.rpartition("_")
    return part in FIGURE_PARTS and base in columns
