"""The smallest script does what it says, by the very command of its docstring."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "adopt_in_job.py"


def documented_command() -> tuple[dict[str, str], list[str]]:
    """Variables and words of the command in the docstring, up to the script."""
    text = ast.get_docstring(ast.parse(SCRIPT.read_text())) or ""
    words = shlex.split(re.search(r"TORCH_DISABLE.*?adopt_in_job\.py", text, re.DOTALL)[0].replace("\\\n", " "))
    assignments = dict(word.split("=", 1) for word in words if word.startswith("TORCH_"))
    return assignments, words[len(assignments) :]


def train(folder: Path, *options: str) -> tuple[float, int, int]:
    """(final loss, step it resumed from, restarts)"""
    variables, command = documented_command()
    env = os.environ | variables | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    words = [*command, str(folder), "20", *options]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    match = re.search(r"loss ([\d.]+), resumed from step (\d+), restarted (\d+) times", done.stdout)
    assert match, done.stdout + done.stderr[-2000:]
    return float(match[1]), int(match[2]), int(match[3])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_whose_rank_was_killed_ends_with_the_loss_of_an_unbroken_one(tmp_path: Path) -> None:
    unbroken, start, restarts = train(tmp_path / "unbroken")
    assert (start, restarts) == (0, 0)
    broken, start, restarts = train(tmp_path / "broken", "--fail-at", "13")
    assert (start, restarts) == (10, 1)
    assert broken == unbroken
