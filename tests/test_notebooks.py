"""The notebooks: committed without outputs, defining nothing themselves, and running from top to bottom."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells(path: Path, kind: str) -> list[dict]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def test_there_is_one():
    assert "capacity_planning" in {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path):
    assert [cell["id"] for cell in cells(path, "code") if cell["outputs"] or cell["execution_count"]] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_defines_nothing_itself(path):
    for cell in cells(path, "code"):
        nodes = list(ast.walk(ast.parse("".join(cell["source"]))))
        assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda) for node in nodes), cell["id"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_can_be_given_parameters_and_explains_what_it_shows(path):
    tagged = [cell for cell in cells(path, "code") if "parameters" in cell["metadata"].get("tags", [])]
    assert len(tagged) == 1
    assert len(cells(path, "markdown")) >= 5


@pytest.mark.slow
def test_the_capacity_plan_runs_and_reads_like_a_document(tmp_path, monkeypatch):
    papermill = pytest.importorskip("papermill", reason="make setup-notebooks installs it")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    source, done = ROOT / "notebooks" / "capacity_planning.ipynb", tmp_path / "done.ipynb"
    parameters = {"preset": "budget_512", "overrides": ["simulation.replicates=50", "cluster.nodes=128"]}
    papermill.execute_notebook(str(source), str(done), parameters, cwd=str(tmp_path), progress_bar=False)
    executed = cells(done, "code")
    text = "".join("".join(output.get("text", "")) for cell in executed for output in cell["outputs"])
    for part in ("1024 GPUs in 128 nodes", "The two honest lines", "Nothing here was measured", "For the review"):
        assert part in text
    pictures = [output for cell in executed for output in cell["outputs"] if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
