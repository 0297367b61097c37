"""A cell of the matrix: what came of a fault under a layer, said in a few letters."""

from __future__ import annotations

from bench.report.figures.matrix import Cell, cells
from tests.measure.made import recovery


def test_a_cell_says_how_long_and_how_often():
    assert Cell.of([recovery(seconds=2.0)]).text("in_job") == "2 s"
    assert Cell.of([recovery(seconds=2.0), recovery(seconds=4.5)]).text("in_job") == "3 s\n2/2"


def test_a_cell_names_what_happened_instead_and_how_often():
    mixed = Cell.of([recovery(seconds=2.0), recovery(seconds=None)])
    assert mixed.text("in_job") == "2 s\n1/2\nnot recovered 1/2"
    assert Cell.of([recovery(seconds=None, outcome="unavailable")]).text("in_job") == "unavailable"
    assert Cell.of([recovery(seconds=None)]).text("in_job") == "not\nrecovered"


def test_a_cell_names_the_layer_that_did_it_where_that_is_another():
    assert "by in_job" in Cell.of([recovery(layer="nested", layer_used="in_job")]).text("nested")


def test_cells_are_by_fault_in_words_and_layer():
    found = cells([recovery(), recovery(label="sigkill, at load"), recovery(layer="in_process")])
    assert set(found) == {("sigkill", "in_job"), ("sigkill, at load", "in_job"), ("sigkill", "in_process")}
