"""The check of a GPU machine: what it says where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import environment

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "gpu_check.sh"


def check(tmp_path: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ) | {"PYTHON": sys.executable, "RESULTS": str(tmp_path / "results")} | variables
    return subprocess.run(["bash", SCRIPT, *words], env=env, capture_output=True, text=True, check=False)


def test_without_a_gpu_it_ends_with_2_and_one_line(tmp_path):
    pytest.importorskip("torch")
    if environment.gpus():
        pytest.skip("there is a GPU")
    ended = check(tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("gpu_check: no GPU answers through NVML; ")
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_without_torch_it_ends_with_2_and_one_line(tmp_path):
    ended = check(tmp_path, PYTHON="false")
    assert ended.returncode == 2
    assert ended.stderr == "gpu_check: false has no torch; make setup, or give PYTHON=PATH\n"


@pytest.mark.slow
def test_rehearsed_on_cpus_every_step_is_run_and_its_end_is_on_record(tmp_path):
    pytest.importorskip("torch")
    ended = check(tmp_path, "--rehearse", LIMIT_S="850")
    (out,) = (tmp_path / "results" / "cpu-rehearsal" / "gpu_check").iterdir()
    codes = {step["step"]: step["exit_code"] for step in json.loads((out / "steps.json").read_text())}
    sure = ("doctor", "ckpt_1", "ckpt_2")
    assert [codes.get(name) for name in sure] == [0, 0, 0], [(out / f"{name}.txt").read_text() for name in sure]
    assert ended.returncode == (1 if any(codes.values()) else 0)
    assert all((out / f"{name}.txt").stat().st_size > 0 for name in codes)
    assert json.loads((out / "environment.json").read_text())["gpus"] == []
