"""Notebooks without Jupyter: parameters, cells in order, what the last expression shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.errors import BadInput
from bench.report.notebook import execute, folder, path_of


def write(path: Path, *cells: tuple[str, str, list[str]]) -> Path:
    content = [
        {"cell_type": kind, "metadata": {"tags": tags}, "source": source.splitlines(keepends=True)}
        for kind, source, tags in cells
    ]
    path.write_text(json.dumps({"cells": content}))
    return path


def test_cells_run_in_order_and_show_their_last_expression(tmp_path):
    path = write(
        tmp_path / "n.ipynb",
        ("markdown", "# A", []),
        ("code", "run = 1", ["parameters"]),
        ("code", "import math\n\ndouble = 2 * run\nmath.sqrt(double)", []),
        ("code", "total = double + 1", []),
    )
    done = execute(path, {"run": 8})
    assert [cell.shown for cell in done.cells] == [None, None, 4.0, None]
    assert done.variables["total"] == 17
    assert [cell.kind for cell in done.cells] == ["markdown", "code", "code", "code"]


def test_without_parameters_the_notebooks_own_values_hold(tmp_path):
    path = write(tmp_path / "n.ipynb", ("code", "run = 3", ["parameters"]), ("code", "run", []))
    assert execute(path, {}).cells[1].shown == 3


def test_a_parameter_that_the_notebook_does_not_have_is_an_error(tmp_path):
    path = write(tmp_path / "n.ipynb", ("code", "run = 3", ["parameters"]))
    with pytest.raises(KeyError, match=r"n\.ipynb has no parameter rum"):
        execute(path, {"rum": 1})


def test_what_a_cell_raises_is_raised(tmp_path):
    path = write(tmp_path / "n.ipynb", ("code", "1 / 0", []))
    with pytest.raises(ZeroDivisionError):
        execute(path, {})


def test_the_notebooks_are_found_by_name():
    assert path_of("report").parent == folder()
    with pytest.raises(BadInput, match=r"notebook: no notebook 'reprot'; did you mean report"):
        path_of("reprot")
