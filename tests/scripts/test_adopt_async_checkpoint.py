"""The smallest script does what it says: it saves asynchronously, and a resumed run ends where an unbroken one does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "adopt_async_checkpoint.py"


def train(folder: Path, steps: int) -> tuple[float, int]:
    """(final loss, step it resumed from)"""
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(SCRIPT), str(folder), str(steps)], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    match = re.search(r"loss ([\d.]+), resumed from step (\d+)", done.stdout)
    assert match, done.stdout
    return float(match[1]), int(match[2])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_resumed_run_ends_with_the_loss_of_an_unbroken_one(tmp_path: Path) -> None:
    first, _ = train(tmp_path / "broken", 10)
    resumed, start = train(tmp_path / "broken", 20)
    unbroken, _ = train(tmp_path / "unbroken", 20)
    assert start == 10
    assert resumed == unbroken
    assert resumed < first
    assert not list((tmp_path / "broken").glob("*.tmp"))
