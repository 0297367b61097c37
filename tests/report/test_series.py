"""`report`: one result as after its run, several as a series over sizes with its file."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bench.__main__ import main
from bench.errors import BadInput
from bench.report.series import report
from bench.report.terminal import Terminal
from tests.measure.results import BASE, write_result


def save(folder: Path, *arguments, **options) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(write_result(folder, *arguments, **options)))
    return folder


@pytest.fixture(scope="module")
def sizes(tmp_path_factory) -> list[Path]:
    """One and two nodes, the same bytes in all."""
    folder = tmp_path_factory.mktemp("sizes")
    halves = {name: replace(spec, shard_bytes=spec.shard_bytes // 2) for name, spec in BASE.arms.items()}
    return [save(folder / "one"), save(folder / "two", replace(BASE, nodes=2, arms=halves))]


def said(*words: str) -> tuple[int, str]:
    file = io.StringIO()
    return report(words, Terminal(Console(file=file, width=100, highlight=False))), file.getvalue()


def test_one_result_is_shown_as_after_its_run(sizes):
    code, text = said(f"run={sizes[0]}")
    assert code == 0
    for part in ("What a checkpoint costs", "true cost K", "sync_share_40", "status:", f"result: {sizes[0]}"):
        assert part in text
    assert text.splitlines()[-1] == f"report: {sizes[0] / 'report.html'}"
    assert (sizes[0] / "figures" / "share_period.svg").is_file()


def test_the_report_goes_where_it_is_asked_to_and_a_trace_with_it(sizes, tmp_path):
    target = tmp_path / "new" / "place"
    code, text = said(f"run={sizes[0]}", f"out={target}", "trace=true", "launch=2", "notebook=claim_40_percent")
    assert code == 0
    assert "Do synchronous checkpoints cost 40 %" in (target / "report.html").read_text()
    assert json.loads((target / "trace_launch_2.json").read_text())["traceEvents"]
    assert f"trace:  {target / 'trace_launch_2.json'}" in text


def test_on_the_terminal_alone_nothing_is_written(sizes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = save(tmp_path / "plain", launches=1)
    before = sorted(folder.rglob("*"))
    assert "report:" not in said(f"run={folder}", "format=terminal")[1]
    assert sorted(folder.rglob("*")) == before


def test_an_invalid_result_ends_with_1(tmp_path):
    folder = save(tmp_path / "bad", replace(BASE, gap_s=0.05))
    code, text = said(f"run={folder}")
    assert code == 1
    assert "invalid: unattributed" in text


def test_several_make_a_series_with_a_column_a_size_and_its_verdicts(sizes, tmp_path):
    code, text = said(f"run=[{sizes[1]},{sizes[0]}]", f"out={tmp_path}")
    assert code == 0
    assert text.index("1 x 2, 2.00 MB") < text.index("2 x 2, 2.00 MB")
    assert "write_time_flat: holds. A write of nvrx_async on 4 ranks (2 nodes) takes" in text
    assert "crossover: not measured." in text
    content = json.loads((tmp_path / "series.json").read_text())
    assert [entry["num_nodes"] for entry in content["results"]] == [1, 2]
    assert "What changes with size?" in (tmp_path / "series.html").read_text()
    assert (tmp_path / "series_figures" / "over_sizes.svg").is_file()
    assert said(f"run=[{sizes[1]},{sizes[0]}]", f"out={tmp_path / 'own.json'}")[0] == 0
    assert json.loads((tmp_path / "own.json").read_text()) == content


def test_the_file_of_a_series_goes_to_the_current_folder(sizes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said(f"run=[{sizes[0]},{sizes[1]}]", "format=terminal")
    assert [path.name for path in tmp_path.iterdir()] == ["series.json"]


def test_results_that_differ_in_more_than_size_are_refused_and_nothing_is_written(sizes, tmp_path):
    other = save(tmp_path / "other", storage={"fsync": False, "provisioned_bytes_per_s": None})
    with pytest.raises(BadInput, match=r"a series may differ in world size and bytes only.*storage\.fsync"):
        said(f"run=[{sizes[0]},{other}]", f"out={tmp_path}")
    assert not (tmp_path / "series.json").exists()


BAD = {
    "no result": (["run=nowhere"], "run: nowhere is no result folder"),
    "no latest result": ([], "run: results/latest is no result folder"),
    "a format that there is not": (["run=ONE", "format=pdf"], "format: must be html or terminal, got 'pdf'"),
    "a notebook that there is not": (["run=ONE", "notebook=x"], "notebook: no notebook 'x'"),
    "a launch without a trace": (["run=ONE", "launch=1"], "launch: goes with trace=true"),
    "a launch that is no number": (["run=ONE", "trace=true", "launch=x"], "launch: must be the number of a launch"),
    "a trace that is no yes or no": (["run=ONE", "trace=1"], "trace: must be true or false"),
    "a notebook of a series": (["run=[ONE,TWO]", "notebook=report"], "notebook: goes with one result"),
    "a result twice": (["run=[ONE,ONE]"], "run: names a result twice"),
    "a folder that is not there": (["run=[ONE,TWO]", "out=no/where.json"], "out: no does not exist"),
    "an unknown key": (["runs=x"], "runs: no such key; did you mean run"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(case, sizes, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, message = BAD[case]
    names = {"ONE": str(sizes[0]), "TWO": str(sizes[1])}
    for name, path in names.items():
        words = [word.replace(name, path) for word in words]
    assert main(["report", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"bench: {message}")
    assert err.count("\n") == 1


def test_a_result_without_launches_or_with_unknown_events_is_refused(sizes, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "run.json").write_text((sizes[0] / "run.json").read_text())
    with pytest.raises(BadInput, match="holds no launch yet"):
        said(f"run={empty}")
    newer = save(tmp_path / "newer", launches=1)
    file = next((newer / "launches" / "1" / "events").glob("worker*"))
    file.write_text(file.read_text().replace('"version":1', '"version":9', 1))
    with pytest.raises(BadInput, match="event version 9 is unknown"):
        said(f"run={newer}")


def test_help_is_at_hand(capsys):
    assert main(["report", "-h"]) == 0
    assert "series.json" in capsys.readouterr().out
