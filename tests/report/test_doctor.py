"""Findings as people and programs read them."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from bench.doctor.base import Check
from bench.report.doctor import Screen, print_json, to_json
from tests.doctor.cases import run

CHECKS = [
    Check("GPUs", "fail", "8 needed on this node, found: none", "run on a node with GPUs"),
    Check("checkpoint store", "warn", "a word " * 40, "another place"),
    Check("all-reduce, nccl", "skip", "no GPU"),
    Check("Python", "ok", "Python 3.11"),
]


def shown(width: int) -> str:
    file = io.StringIO()
    screen = Screen(Console(file=file, width=width, highlight=False))
    screen.head(run(num_nodes=2))
    assert screen.group("group", iter(CHECKS)) == CHECKS
    screen.verdict(CHECKS)
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_nothing_is_cut_off_and_no_line_is_too_long(width):
    text = shown(width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    assert " ".join(text.split()).count("a word") == 40


def test_a_remedy_stands_below_what_was_found():
    lines = [line.split() for line in shown(100).splitlines()]
    (at,) = [number for number, line in enumerate(lines) if line[:2] == ["fail", "GPUs"]]
    assert lines[at + 1][:4] == ["->", "run", "on", "a"]


def test_the_end_counts_levels_from_the_worst_on_and_names_what_failed():
    text = shown(100)
    assert "1 fail, 1 warn, 1 skip, 1 ok" in text
    assert text.rstrip().endswith("The run as asked would not work here: GPUs.")


def test_without_failures_the_end_says_so():
    file = io.StringIO()
    Screen(Console(file=file, width=80)).verdict(CHECKS[1:])
    assert file.getvalue().rstrip().endswith("Nothing stands in the way of the run.")


@pytest.mark.parametrize(("checks", "level"), [(CHECKS, "fail"), (CHECKS[1:], "warn"), (CHECKS[2:], "ok"), ([], "ok")])
def test_the_record_has_the_worst_level_and_every_check_with_its_group(checks, level):
    found = to_json(run(), {"group": checks})
    assert found["level"] == level
    assert [each["group"] for each in found["checks"]] == ["group"] * len(checks)
    assert found["schema_version"] == 1


def test_the_json_form_is_json_and_nothing_else(capsys):
    print_json(run(), {"group": CHECKS})
    assert len(json.loads(capsys.readouterr().out)["checks"]) == len(CHECKS)
