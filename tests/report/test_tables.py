"""Tables as CSV: figures side by side with their intervals, unknown as empty cells."""

from __future__ import annotations

import csv
import json

from bench.report.tables import flat, write_tables


def rows_of(folder, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_figure_becomes_five_columns_and_a_list_becomes_json():
    figure = {"median": 1.0, "low": 0.5, "high": 2.0, "n": 9, "interval": "ci95"}
    found = flat({"cost_s": figure, "none": None, "medians": [1.0, 2.0], "phases": {"stage": 0.1}})
    assert found["cost_s"] == 1.0
    assert (found["cost_s_low"], found["cost_s_high"], found["cost_s_n"]) == (0.5, 2.0, 9)
    assert found["none"] is None
    assert json.loads(found["medians"]) == [1.0, 2.0]
    assert json.loads(found["phases"]) == {"stage": 0.1}


def test_what_is_unknown_is_an_empty_cell_and_the_parts_of_a_figure_stand_beside_it(tmp_path, checkpoints):
    write_tables(checkpoints, tmp_path)
    none, sync, _ = rows_of(tmp_path, "arms")
    assert (none["name"], none["durable_s"], none["durable_s_low"]) == ("none", "", "")
    assert float(sync["durable_s_low"]) <= float(sync["durable_s"]) <= float(sync["durable_s_high"])
    columns = list(sync)
    assert columns.index("durable_s_low") == columns.index("durable_s") + 1
    assert len(rows_of(tmp_path, "samples")) == len(checkpoints.samples)


def test_episodes_and_layers_are_tables_of_a_result_with_faults(tmp_path, recoveries):
    write_tables(recoveries, tmp_path)
    episodes = rows_of(tmp_path, "recoveries")
    assert {row["layer"] for row in episodes} == {"in_process", "in_job"}
    assert {row["outcome"] for row in episodes} == {"recovered"}
    assert len(rows_of(tmp_path, "layers")) == 2
    assert not (tmp_path / "sweep.csv").exists(), "no sweep was measured"
