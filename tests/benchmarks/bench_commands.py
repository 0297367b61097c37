"""What the driver's side costs: the time to the first word of help, and the driver's memory during a whole run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HELP_BOUND_S = 1.0
DRIVER_BOUND_MB = 300.0
REPEATS = 9

# Runs the command line in this process and then says what it cost. VmHWM is the peak of this program's own memory;
# ru_maxrss would be that of whoever started it, if that was larger (the kernel carries it over an exec).
COMMAND = """
import runpy, sys
sys.argv[0] = "bench"
try:
    runpy.run_module("bench", run_name="__main__", alter_sys=True)
except SystemExit as end:
    code = end.code or 0
status = open("/proc/self/status").read()
peak_kb = status.split("VmHWM:")[1].split()[0]
print("cost", code, peak_kb, "torch" in sys.modules)
"""


def cost_of(arguments: list[str]) -> tuple[float, bool]:
    """Peak memory in MB, and whether torch was loaded, of one command that must succeed."""
    command = [sys.executable, "-c", COMMAND, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    _, code, peak_kb, with_torch = done.stdout.splitlines()[-1].split()
    assert code == "0", done.stdout + done.stderr
    return int(peak_kb) * 1024 / 1e6, with_torch == "True"


def test_help_is_there_within_a_second_and_loads_no_torch(bounds):
    _, with_torch = cost_of(["--help"])
    assert not with_torch
    took = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "bench", "--help"], cwd=ROOT, capture_output=True, check=True)
        took.append(time.perf_counter() - start)
    bounds.hold("python -m bench --help", took, HELP_BOUND_S, "s")


@pytest.mark.timeout(600)
def test_the_driver_stays_small_during_a_run(tmp_path, bounds):
    pytest.importorskip("torch")
    folders = [f"results_dir={tmp_path}/results", f"work_dir={tmp_path}/work"]
    peak_mb, with_torch = cost_of(["run", "scenario=ckpt_smoke", *folders])
    assert not with_torch
    bounds.hold("the driver's memory at its peak, ckpt_smoke", [peak_mb], DRIVER_BOUND_MB, "MB")
