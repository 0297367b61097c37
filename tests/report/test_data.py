"""Results as reports read them: whole, unfinished, damaged, or kept without their events."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench.errors import BadInput
from bench.report.data import (
    async_arm,
    damage,
    dates,
    in_background,
    measured,
    read_result,
    saving_arms,
    summary_from_json,
    sync_arm,
    unfinished,
)
from bench.results import ResultFolder
from tests.report.made import checkpoint_result, recovery_result, write_run


@pytest.fixture
def folder(tmp_path) -> Path:
    return checkpoint_result(tmp_path / "result")


def kept(folder: Path) -> Path:
    """As a reference of which only what was derived is left."""
    result = read_result(folder, "run")
    ResultFolder(folder).write_derived(result.summary, result.samples, result.ledger)
    shutil.rmtree(folder / "launches")
    return folder


@pytest.mark.parametrize("make", [checkpoint_result, recovery_result])
def test_what_is_kept_of_a_result_reads_back_as_it_was_derived(make, tmp_path):
    folder = make(tmp_path / "result")
    whole = read_result(folder, "run")
    again = read_result(kept(folder), "run")
    assert again.launches == []
    assert (again.summary, again.samples, again.ledger) == (whole.summary, whole.samples, whole.ledger)
    for arm in whole.arms:
        assert measured(again, arm) == measured(whole, arm)


def test_a_summary_survives_json(recoveries, checkpoints):
    for result in (checkpoints, recoveries):
        assert summary_from_json(json.loads(json.dumps(result.summary.to_json()))) == result.summary


def test_a_summary_of_another_version_or_a_broken_one_is_refused(folder):
    path = kept(folder) / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 9}))
    with pytest.raises(BadInput, match=r"run: summary\.json has schema version 9, this suite reads 1"):
        read_result(folder, "run")
    path.write_text("{")
    with pytest.raises(BadInput, match="not readable JSON"):
        read_result(folder, "run")


def test_a_run_that_has_not_launched_anything_yet_is_named_so(folder, tmp_path):
    empty = write_run(tmp_path / "empty", json.loads((folder / "run.json").read_text()))
    with pytest.raises(BadInput, match=r"run: .*empty holds no launch yet, so there is nothing to report"):
        read_result(empty, "run")


def test_an_unfinished_run_says_how_much_is_on_record(folder):
    assert unfinished(read_result(folder, "run")) is None
    path = folder / "launches" / "3" / "launch.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "running"}))
    assert unfinished(read_result(folder, "run")) == "2 of 3 launches have ended"
    shutil.rmtree(folder / "launches" / "2")
    assert unfinished(read_result(folder, "run")) == "1 of 3 launches have ended"


def test_damaged_event_files_are_counted(folder):
    assert damage(read_result(folder, "run")) is None
    worker, other = sorted((folder / "launches" / "1" / "events").glob("worker-*"))
    worker.write_text(worker.read_text().replace('{"kind":"begin","name":"step"', "{broken", 2))
    other.write_text(other.read_text()[:-20])
    (folder / "launches" / "1" / "events" / "worker-n0-r9-1-1.jsonl").write_text("not an event\n")
    text = damage(read_result(folder, "run"))
    assert "2 damaged" in text
    assert "1 torn" in text
    assert "1 unreadable file" in text


def test_the_published_arms_stand_for_their_kind_and_otherwise_the_cheapest(checkpoints, folder):
    assert (sync_arm(checkpoints).name, async_arm(checkpoints).name) == ("sync_local", "nvrx_async")
    assert [arm.name for arm in saving_arms(checkpoints)] == ["sync_local", "nvrx_async"]
    assert [arm.name for arm in checkpoints.summary.arms if in_background(arm)] == ["nvrx_async"]


def test_the_days_of_a_result_are_those_of_its_occasions(checkpoints):
    assert dates(checkpoints) == ["2026-11-29"]
