"""A node's runner as a process: what it says when it cannot begin."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

from bench import design
from bench.config import Run
from bench.results import ResultFolder

ROOT = Path(__file__).resolve().parents[2]


def test_a_node_local_folder_that_cannot_be_made_ends_the_runner_with_one_line(tmp_path, free_port):
    (tmp_path / "file").touch()
    folder = ResultFolder(tmp_path / "result")
    (folder.path / "launches").mkdir(parents=True)
    config = Run(device="cpu")
    launches = [launch.to_json() for launch in design.plan(config)]
    occasion = {"started": 1.0, "launches": launches}
    folder.write_run({"config": dataclasses.asdict(config), "token": "0123456789abcdef", "occasions": [occasion]})
    words = ["--result", str(folder.path), "--node", "0", "--host", "127.0.0.1", "--port", str(free_port)]
    words += ["--work-dir", str(tmp_path / "file" / "work"), "--checkpoint-dir", str(tmp_path), "--device", "cpu"]
    command = [sys.executable, "-m", "bench.node", *words]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "work_dir" in line]
    assert line.startswith(f"bench: node 0: work_dir: {tmp_path}/file/work cannot be made (Not a directory); give")
    assert "Traceback" not in done.stderr
