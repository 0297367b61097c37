"""The result folder: fresh, never overwritten, refused when it is not one or of another version."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pandas as pd
import pytest

from bench import results
from bench.errors import BadInput
from bench.results import ResultFolder, busy_s, write_json
from bench.schema import SCHEMA_VERSION, LedgerRow, Sample, Summary

NOON = datetime(2030, 1, 2, 12, 0, 0, tzinfo=timezone.utc)
SAMPLE = dict.fromkeys(("cost_s", "hidden_s", "durable_s", "slowdown_share", "period_s", "arrive_s", "peers_s"))
SAMPLE |= dict.fromkeys(("write_s", "written_bytes", "write_bytes_per_s", "dirty_bytes", "control_step_s"))


class Noon(datetime):
    @classmethod
    def now(cls, tz=None):
        return NOON


@pytest.fixture
def noon(monkeypatch):
    monkeypatch.setattr(results, "datetime", Noon)


@pytest.fixture
def folder(tmp_path) -> ResultFolder:
    made = ResultFolder.create(tmp_path / "results", "machine", "scenario")
    made.write_run({"token": "abc"})
    return made


def summary() -> Summary:
    return Summary(
        scenario="ckpt_smoke",
        machine="machine",
        device="cpu",
        rehearsal=False,
        design="quick",
        world_size=2,
        num_nodes=1,
        versions={"torch": None},
        status="valid",
        interrupted=False,
        checks=[],
        budget={},
        arms=[],
        ledger=[],
        verdicts=[],
    )


def test_a_folder_is_named_by_machine_scenario_and_utc_time_and_latest_points_to_it(tmp_path, noon):
    folder = ResultFolder.create(tmp_path, "machine", "ckpt_smoke")
    assert not (tmp_path / "latest").exists(), "there is no run.json to be found yet"
    folder.point_latest()
    assert folder.path == tmp_path / "machine" / "ckpt_smoke" / "2030-01-02T12-00-00Z"
    assert (tmp_path / "latest").resolve() == folder.path
    assert not Path((tmp_path / "latest").readlink()).is_absolute()


def test_latest_moves_on_to_the_newest(tmp_path):
    ResultFolder.create(tmp_path, "machine", "one").point_latest()
    second = ResultFolder.create(tmp_path, "machine", "two")
    second.point_latest()
    assert (tmp_path / "latest").resolve() == second.path


def test_an_existing_folder_is_never_written_to(tmp_path, noon):
    first = ResultFolder.create(tmp_path, "machine", "ckpt_smoke")
    first.write_run({"token": "first"})
    with pytest.raises(BadInput, match=r"results_dir: .* exists already and is never overwritten"):
        ResultFolder.create(tmp_path, "machine", "ckpt_smoke")
    assert first.read_run()["token"] == "first"


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"results_dir: .* cannot be written"):
        ResultFolder.create(tmp_path / "file", "machine", "ckpt_smoke")


def test_run_json_carries_the_schema_version(folder):
    assert json.loads((folder.path / "run.json").read_text()) == {"schema_version": SCHEMA_VERSION, "token": "abc"}
    assert ResultFolder.open(folder.path, "resume").path == folder.path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is no result folder"),
        ("{", "is not readable JSON"),
        ('{"schema_version": 99}', "has schema version 99, this suite reads 1"),
        ("{}", "has schema version None"),
    ],
)
def test_what_is_no_result_of_this_version_is_refused_by_the_options_name(tmp_path, content, message):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(BadInput, match=f"^append: .*{message}") as caught:
        ResultFolder.open(tmp_path, "append")
    assert "\n" not in str(caught.value)


def test_a_launch_is_written_with_the_folders_that_its_runners_ship_into(folder):
    assert folder.read_launch(3) is None
    folder.write_launch(3, {"status": "running"})
    folder.write_launch(3, {"status": "ok"})
    assert folder.read_launch(3) == {"status": "ok"}
    assert {path.name for path in folder.launch_dir(3).iterdir()} == {"launch.json", "events", "logs", "faults"}


def test_an_unfinished_attempt_is_set_aside_and_kept(folder):
    folder.set_aside(0)
    for attempt in range(2):
        folder.write_launch(0, {"attempt": attempt})
        (folder.launch_dir(0) / "events" / "worker.jsonl").write_text(f"{attempt}")
        folder.set_aside(0)
    assert folder.read_launch(0) is None
    attempts = folder.launch_dir(0) / "attempts"
    kept = [
        (json.loads((attempts / n / "launch.json").read_text()), (attempts / n / "events/worker.jsonl").read_text())
        for n in "01"
    ]
    assert kept == [({"attempt": 0}, "0"), ({"attempt": 1}, "1")]


def test_json_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "summary.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}


def test_derived_tables_hold_a_row_a_save_and_a_row_a_slot_and_category(folder):
    sample = Sample(0, 0, 1, "none", 2, 9, True, 0.5, during_steps=3, phases={"stage": 0.25}, **SAMPLE)
    folder.write_derived(summary(), [sample, sample], [LedgerRow(0, "0/0", None, "startup", 2.5)])
    samples = pd.read_parquet(folder.path / "samples.parquet")
    ledger = pd.read_parquet(folder.path / "ledger.parquet")
    assert (len(samples), samples.blocking_s[0], json.loads(samples.phases[0])) == (2, 0.5, {"stage": 0.25})
    assert samples.cost_s.isna().all()
    assert ledger.to_dict("records") == [
        {"launch": 0, "slot": "0/0", "arm": None, "category": "startup", "seconds": 2.5}
    ]
    assert json.loads((folder.path / "summary.json").read_text())["versions"] == {"torch": None}


def test_a_result_without_saves_can_be_written(folder):
    folder.write_derived(summary(), [], [])
    assert len(pd.read_parquet(folder.path / "samples.parquet")) == 0


def test_a_launch_had_its_nodes_from_its_start_to_its_end_but_for_the_engines_queue():
    asked, back = {"asked": 30.0, "start": 1}, {"back": 100.0}
    assert busy_s({}) == 0.0
    assert busy_s({"started": 10.0}) == 0.0
    assert busy_s({"started": 10.0, "ended": 25.0}) == 15.0
    assert busy_s({"started": 10.0, "relaunches": [asked]}) == 20.0
    assert busy_s({"started": 10.0, "relaunches": [asked | back], "ended": 105.0}) == 25.0
    assert busy_s({"started": 10.0, "relaunches": [asked], "ended": 105.0}) == 20.0, "lost in the queue"
