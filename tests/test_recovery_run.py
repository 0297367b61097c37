"""Whole runs with faults, as a user starts them: real ranks are struck, and what brought them back is in the result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.whole_runs import carried_through

ROOT = Path(__file__).resolve().parent.parent


def run(path: Path, scenario: str, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    command = [sys.executable, "-m", "bench", "run", f"scenario={scenario}", "machine=here", *words]
    command += [f"results_dir={path / 'results'}", f"work_dir={path / 'work'}"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    summary = path / "results" / "latest" / "summary.json"
    assert summary.is_file(), done.stdout + done.stderr
    return done, json.loads(summary.read_text())


def came_back(summary: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    """Outcome and the layer that did it, by "fault/layer"."""
    return {f"{r['fault']}/{r['layer']}": (r["outcome"], r["layer_used"]) for r in summary["recoveries"]}


@pytest.mark.slow
def test_the_smoke_run_recovers_each_fault_by_the_layer_it_is_meant_for(tmp_path):
    done, summary = run(tmp_path, "recovery_smoke")
    assert carried_through(done.returncode, tmp_path / "results" / "latest"), done.stdout
    assert came_back(summary) == {
        "exception/in_process": ("recovered", "in_process"),
        "sigkill/in_job": ("recovered", "in_job"),
        "oom_host/in_job": ("recovered", "in_job"),
        "exception/nested": ("recovered", "in_process"),
        "sigkill/requeue": ("recovered", "requeue"),
    }
    for recovery in summary["recoveries"]:
        assert recovery["resume_exact"] is True, recovery
        assert recovery["resume_consistent"] is True, recovery
        parts = [recovery[f"{part}_s"] for part in ("detect", "stop", "restart", "load", "first_step")]
        assert None not in parts, recovery
        assert sum(parts) == pytest.approx(recovery["time_to_recover_s"], abs=0.002)
    assert [path for path in (tmp_path / "work").rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_two_faults_in_one_launch_are_two_episodes_and_the_end_is_still_exact(tmp_path):
    words = ["recovery.layers=[in_process]", "recovery.only=[]", "faults.per_launch=2"]
    words += ["faults.given=[{kind: exception, rank: 1}, {kind: collective_hang, rank: 0}]"]
    _, summary = run(tmp_path, "recovery_smoke", *words)
    first, second = summary["recoveries"]
    assert [(r["fault"], r["outcome"], r["episode"]) for r in (first, second)] == [
        ("exception", "recovered", 0),
        ("collective_hang", "recovered", 1),
    ]
    assert first["resume_exact"] is True
    assert second["resume_exact"] is True


@pytest.mark.slow
def test_a_spare_rank_takes_the_place_of_a_killed_one_and_the_world_keeps_its_size(tmp_path):
    words = ["recovery.layers=[in_process]", "recovery.only=[]", "recovery.reserve=1"]
    _, summary = run(tmp_path, "recovery_smoke", *words, "faults.given=[{kind: sigkill, rank: 0}]")
    (recovery,) = summary["recoveries"]
    assert (recovery["outcome"], recovery["layer_used"]) == ("recovered", "in_process")
    assert recovery["world_size_before"] == recovery["world_size_after"] == 2
    assert recovery["resume_exact"] is True
    launches = json.loads((tmp_path / "results" / "latest" / "run.json").read_text())["occasions"][0]["launches"]
    (struck,) = [launch["index"] for launch in launches if launch["kind"] == "recovery"]
    ledger = pd.read_parquet(tmp_path / "results" / "latest" / "ledger.parquet")
    assert set(ledger[ledger.launch == struck].slot) == {"0/0", "1/0", "1/1"}


@pytest.mark.slow
def test_a_fault_that_the_layer_cannot_undo_is_a_result_and_the_run_goes_on(tmp_path):
    words = ["recovery.layers=[none, requeue]", "recovery.only=[sigkill/none, sigkill/requeue]"]
    done, summary = run(tmp_path, "recovery_smoke", *words, "faults.given=[{kind: sigkill, rank: 0}]")
    assert carried_through(done.returncode, tmp_path / "results" / "latest"), done.stdout
    assert came_back(summary) == {
        "sigkill/none": ("not_recovered", None),
        "sigkill/requeue": ("recovered", "requeue"),
    }


@pytest.mark.slow
def test_a_second_fault_before_the_ranks_have_joined_again_is_recovered_in_place_too(tmp_path):
    words = ["recovery.layers=[in_process]", "recovery.only=[]", "checkpoint.arms=[nvrx_async]"]
    words += ["faults.given=[{kind: exception, rank: 1, options: {again: 1}}]"]
    _, summary = run(tmp_path, "recovery_smoke", *words)
    (recovery,) = summary["recoveries"]
    assert (recovery["outcome"], recovery["layer_used"], recovery["attempts"]) == ("recovered", "in_process", 2)
    assert recovery["resume_exact"] is True
