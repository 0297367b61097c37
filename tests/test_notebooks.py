"""The notebooks: committed without outputs, defining nothing themselves, and running from top to bottom."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.report.html import JUPYTER_ONLY
from bench.report.notebook import execute
from bench.report.page.markup import Block
from tests.report.made import checkpoint_result, recovery_result, references

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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_only_words_for_jupyter_name_its_parameters(path):
    for cell in cells(path, "markdown"):
        if JUPYTER_ONLY not in cell["metadata"].get("tags", []) and path.stem != "capacity_planning":
            assert "run all cells" not in "".join(cell["source"])


@pytest.mark.parametrize("name", ["report", "claim_40_percent", "recovery", "compare"])
def test_a_section_asks_a_question_says_how_it_was_answered_and_what_it_does_not_say(name):
    text = "\n".join("".join(cell["source"]) for cell in cells(ROOT / "notebooks" / f"{name}.ipynb", "markdown"))
    assert text.count("**Question.**") == text.count("**What it does not say.**") >= 1
    assert text.count("**Method.**") >= text.count("**Question.**")


# --- run by papermill, as an analyst does
def run_by_papermill(name: str, parameters: Mapping[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    papermill = pytest.importorskip("papermill", reason="make setup-notebooks installs it")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    source, done = ROOT / "notebooks" / f"{name}.ipynb", folder / f"{name}.ipynb"
    papermill.execute_notebook(str(source), str(done), dict(parameters), cwd=str(folder), progress_bar=False)
    return done


def shown(path: Path) -> list[str]:
    """The HTML of every code cell's output, in order."""
    outputs = [output for cell in cells(path, "code") for output in cell["outputs"]]
    return ["".join(output["data"]["text/html"]) for output in outputs if "text/html" in output.get("data", {})]


def test_jupyter_shows_the_same_as_the_report(tmp_path, monkeypatch):
    pytest.importorskip("papermill", reason="make setup-notebooks installs it")
    result = checkpoint_result(tmp_path / "result")
    done = run_by_papermill("claim_40_percent", {"run": str(result)}, tmp_path, monkeypatch)
    here = execute(ROOT / "notebooks" / "claim_40_percent.ipynb", {"run": str(result)})
    blocks = [cell.shown for cell in here.cells if isinstance(cell.shown, Block)]
    assert shown(done) == [block._repr_html_() for block in blocks]
    assert len(blocks) > 6


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted(references()))
def test_the_notebooks_run_on_the_reference_results(scenario, tmp_path, monkeypatch):
    pytest.importorskip("papermill", reason="make setup-notebooks installs it")
    result = references()[scenario]
    names = ["recovery"] if scenario.startswith("recovery") else ["report", "claim_40_percent"]
    for name in names:
        html = "".join(shown(run_by_papermill(name, {"run": str(result)}, tmp_path, monkeypatch)))
        assert "Recommendation: " in html
        assert "data:image/svg+xml" in html


@pytest.mark.slow
def test_the_notebooks_on_faults_sizes_and_changes_run(tmp_path, monkeypatch):
    pytest.importorskip("papermill", reason="make setup-notebooks installs it")
    one, other = checkpoint_result(tmp_path / "one"), checkpoint_result(tmp_path / "other")
    struck = recovery_result(tmp_path / "struck")
    parts = {
        "recovery": ({"run": str(struck)}, "in_process: from a fault"),
        "compare": ({"base": str(one), "new": str(other)}, "Ratios of medians"),
        "series": ({"runs": [str(one), str(other)]}, "Seconds, medians with"),
    }
    for name, (parameters, part) in parts.items():
        assert part in "".join(shown(run_by_papermill(name, parameters, tmp_path, monkeypatch)))


@pytest.mark.slow
def test_an_executed_notebook_can_be_sent_on_as_html(tmp_path, monkeypatch):
    pytest.importorskip("nbconvert", reason="make setup-notebooks installs it")
    done = run_by_papermill("report", {"run": str(checkpoint_result(tmp_path / "result"))}, tmp_path, monkeypatch)
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--no-input", "--embed-images", str(done)]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    assert "Recommendation: " in done.with_suffix(".html").read_text()


@pytest.mark.slow
def test_the_capacity_plan_runs_and_reads_like_a_document(tmp_path, monkeypatch):
    parameters = {"preset": "budget_512", "overrides": ["simulation.replicates=50", "cluster.nodes=128"]}
    done = run_by_papermill("capacity_planning", parameters, tmp_path, monkeypatch)
    executed = cells(done, "code")
    text = "".join("".join(output.get("text", "")) for cell in executed for output in cell["outputs"])
    for part in ("1024 GPUs in 128 nodes", "The two honest lines", "Nothing here was measured", "For the review"):
        assert part in text
    pictures = [output for cell in executed for output in cell["outputs"] if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
