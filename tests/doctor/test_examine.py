"""The doctor from end to end, and what it does where a check makes no sense or breaks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config import Cluster
from bench.doctor import examine
from bench.doctor.base import Check
from bench.doctor.examine import GROUPS, Group, examined
from bench.errors import BadInput
from tests.doctor.cases import case, run


def test_everything_is_looked_at_on_this_machine_and_nothing_is_left(tmp_path, capsys):
    pytest.importorskip("torch")
    work, results = tmp_path / "work", tmp_path / "results"
    config = run(arms=("none", "sync_local", "nvrx_async"), work_dir=str(work), results_dir=str(results))
    code = examine.run(config, "json")
    found = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in found["checks"]}
    failed = {name: check["found"] for name, check in checks.items() if check["level"] == "fail"}
    assert (code, failed) == (0, {})
    assert found["level"] in ("ok", "warn")
    for name in (
        "torch",
        "NVRx",
        "all-reduce, gloo",
        "storage probe",
        "space",
        "placement",
        "cost, quick",
        "listening",
    ):
        assert checks[name]["level"] == "ok", checks[name]
    assert {check["group"] for check in found["checks"]} == {group.title for group in GROUPS}
    assert all(check["remedy"] for check in checks.values() if check["level"] in ("warn", "fail"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.title)
def test_a_machine_that_only_submits_skips_what_belongs_to_nodes(group):
    login = case(run(cluster="kubernetes", num_nodes=8))
    if group.where == "anywhere":
        assert login.on_node is False
        assert all(check.name != group.title for check in examined(group, login))
    else:
        (check,) = examined(group, login)
        assert (check.name, check.level) == (group.title, "skip")


@pytest.mark.parametrize(
    ("cluster", "checkpoints"),
    [
        ({"pvc": "bench"}, "/mnt/bench/checkpoints"),
        ({"pvc": "bench", "checkpoint_pvc": "fast"}, "/mnt/checkpoints"),
    ],
)
def test_in_a_pod_the_folders_are_those_of_the_runs_pods(monkeypatch, cluster, checkpoints):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    found = examine.case_of(replace(run(), cluster=Cluster(name="kubernetes", **cluster)))
    assert (found.checkpoint_dir, found.results_dir) == (Path(checkpoints), Path("/mnt/bench/results"))
    assert found.work_dir == Path("/mnt/node")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert examine.case_of(run(cluster="kubernetes")).results_dir == Path("results")


def test_a_check_that_breaks_is_a_warning_and_keeps_what_was_found_before():
    def breaks(_):
        yield Check("first", "ok", "there")
        raise OSError("no such device")

    first, broken = examined(Group("group", breaks), case())
    assert first.name == "first"
    assert (broken.level, broken.found) == ("warn", "could not be looked at: OSError: no such device")


def test_a_failed_check_makes_the_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(examine, "GROUPS", (Group("x", lambda _: iter([Check("y", "fail", "missing", "get it")])),))
    monkeypatch.setattr(examine, "case_of", case)
    assert examine.run(run()) == 1
    out = capsys.readouterr().out
    assert "fail y" in out
    assert "-> get it" in out
    assert "The run as asked would not work here: y." in out


def test_an_unknown_format_is_bad_input():
    with pytest.raises(BadInput, match="format: must be table or json, got 'xml'"):
        examine.run(run(), "xml")


def test_what_could_not_be_meant_anywhere_is_bad_input():
    with pytest.raises(BadInput, match="unknown strategy"):
        examine.case_of(run(arms=("sync_locl",)))
