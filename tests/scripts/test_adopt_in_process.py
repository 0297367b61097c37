"""The smallest script does what it says: after a fault the same processes train on, to the end of an unbroken run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "adopt_in_process.py"


def train(folder: Path, *options: str) -> tuple[float, int, int]:
    """(final loss, step it resumed from, restarts in place)"""
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(folder), "20", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    match = re.search(r"loss ([\d.]+), resumed from step (\d+), restarted (\d+) times", done.stdout)
    assert match, done.stdout + done.stderr[-2000:]
    return float(match[1]), int(match[2]), int(match[3])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_that_restarts_in_place_ends_with_the_loss_of_an_unbroken_one(tmp_path: Path) -> None:
    unbroken, start, restarts = train(tmp_path / "unbroken")
    assert (start, restarts) == (0, 0)
    broken, start, restarts = train(tmp_path / "broken", "--fail-at", "13")
    assert (start, restarts) == (10, 1)
    assert broken == unbroken
