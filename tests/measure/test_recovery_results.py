"""A whole recovery result, from event files to summary.json and to those who read it."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from bench.errors import BadInput
from bench.measure.accounted import Accounted
from bench.measure.compare import unpaired
from bench.measure.events import LaunchRecord
from bench.measure.series import series
from bench.measure.summary import summarise
from bench.plan.results import arm_of, layer_overhead, read, recoveries
from bench.results import ResultFolder
from bench.schema import FaultFigures, LayerFigures, Recovery, Summary
from tests.measure.results import result
from tests.measure.stories import ARM, Setting, in_new_processes, in_place, started, twin
from tests.measure.streams import run_json


def launches(folder: Path) -> list[LaunchRecord]:
    """Three blocks of a twin, a launch under each of three layers, and one that did not recover."""
    found = []
    for block in range(3):
        first = Setting(index=1 + 100 * block, block=block, check_s=0.02)
        stories = [twin(first)]
        for number, layer in enumerate(("in_process", "in_job", "requeue"), 1):
            setting = replace(first, layer=layer, index=first.index + number, step_s=0.1 + 0.001 * number)
            in_process = layer == "in_process"
            stories.append(in_place(setting, 7, 4) if in_process else in_new_processes(setting, 7, 4, kind="exception"))
        hung = started(replace(first, layer="none", index=first.index + 4))
        hung.steps(6)
        hung.strike("os_hang", hung.ranks[0])
        hung.end = "deadline"
        hung.over(5.0)
        found += [story.write(folder) for story in (*stories, hung)]
    return found


def run_content(**config: Any) -> dict[str, Any]:
    parts = {"checkpoint": {"arms": [ARM], "interval": 4}, "design": {"name": "recovery", "warmup_saves": 2}}
    return run_json(Setting().scenario, **{**parts, **config})


@pytest.fixture(scope="module")
def accounted(tmp_path_factory: pytest.TempPathFactory) -> Accounted:
    return Accounted.of(run_content(), launches(tmp_path_factory.mktemp("launches")))


@pytest.fixture
def written(tmp_path: Path, accounted: Accounted) -> Path:
    folder = ResultFolder.create(tmp_path, "machine", "recovery_local")
    folder.write_run(accounted.run)
    folder.write_derived(accounted.summary, accounted.samples, accounted.ledger)
    return folder.path


def test_the_summary_holds_every_episode_and_every_layer(accounted: Accounted) -> None:
    summary = accounted.summary
    assert [record.outcome for record in summary.recoveries].count("recovered") == 9
    assert [layer.layer for layer in summary.layers] == ["in_process", "in_job", "requeue", "none"]
    assert {verdict.claim for verdict in summary.verdicts} == {
        "recovery_in_process",
        "recovery_in_job",
        "recovery_orchestrator",
        "recovery_ratios",
        "load_dominates",
    }
    assert sum(row["share"] for row in summary.ledger) == pytest.approx(1)


def test_the_saves_of_twins_are_the_arms_figures_and_those_of_struck_launches_are_not(accounted: Accounted) -> None:
    (arm,) = accounted.summary.arms
    assert {sample.launch for sample in accounted.samples} == {51, 151, 251}
    assert arm.written_bytes == 2_000_000
    assert arm.blocking_s is not None
    assert arm.blocking_s.median == pytest.approx(0.3)
    assert arm.cost_s is None  # nothing to compare with


def test_recoveries_in_json_have_the_names_that_readers_rely_on(written: Path) -> None:
    summary = json.loads((written / "summary.json").read_text())
    first = summary["recoveries"][0]
    assert first.keys() == {field.name for field in fields(Recovery)}
    promised = (
        "launch episode fault layer layer_used node rank fault_step resumed_step lost_steps detect_s stop_s restart_s "
        "load_s first_step_s catch_up_s time_to_recover_s time_to_catch_up_s gpu_seconds_lost processes_kept attempts "
        "outcome resume_exact resume_consistent"
    )
    assert set(promised.split()) <= first.keys()
    layer = summary["layers"][0]
    assert layer.keys() == {field.name for field in fields(LayerFigures)}
    assert layer["faults"][0].keys() == {field.name for field in fields(FaultFigures)}
    assert layer["overhead_share"].keys() == {"median", "low", "high", "n", "interval"}


def test_the_planner_takes_recoveries_and_the_price_of_layers_from_it(written: Path) -> None:
    found = [read(written)]
    for layer, used in (("in_process", 1), ("in_job", 1), ("orchestrator", 1)):
        measured = recoveries(found, layer)
        assert len(measured) == used
        assert measured[0].whole.mean == pytest.approx(0.4 + 0.3 + 1.1 + 0.5 + 0.1, abs=0.01)
        assert measured[0].load_s == pytest.approx(0.5)
        assert measured[0].whole.total_bytes == 2_000_000
    price = layer_overhead(found, "in_job")
    assert price is not None
    assert price[0] == pytest.approx(1 - 0.1 / 0.102)
    assert "3 pairs" in price[1]


def test_a_plan_from_saves_that_cost_nobody_knows_what_says_what_to_measure(written: Path) -> None:
    with pytest.raises(BadInput, match="did not measure cost_s"):
        arm_of(read(written), ARM)


def test_two_recovery_results_can_be_compared(accounted: Accounted) -> None:
    found = unpaired(accounted, accounted)
    assert {row.outcome for row in found.rows} <= {"not_measured", "not_resolved"}
    assert not found.judged


def test_recovery_results_can_be_joined_to_a_series(accounted: Accounted) -> None:
    run = accounted.run | {"config": accounted.config | {"num_nodes": 2}}
    larger = replace(accounted, run=run, summary=replace(accounted.summary, num_nodes=2, world_size=4))
    content = series([accounted, larger]).to_json()
    assert json.loads(json.dumps(content, allow_nan=False))


def test_a_rehearsal_and_cpu_ranks_judge_ratios_only(accounted: Accounted) -> None:
    outcomes = {verdict.claim: verdict.outcome for verdict in accounted.summary.verdicts}
    assert outcomes["recovery_in_job"] == "not_measured"
    assert outcomes["recovery_ratios"] == "does_not_hold"  # all took as long


def test_a_checkpoint_result_has_neither(tmp_path: Path) -> None:
    summary: Summary = result(tmp_path, launches=1).summary
    assert (summary.recoveries, summary.layers) == ([], [])
    assert {verdict.claim for verdict in summary.verdicts} == {"sync_share_40", "async_efficiency_99"}


def test_an_interrupted_recovery_run_without_any_launch_is_accounted(tmp_path: Path) -> None:
    summary, samples, rows = summarise(run_content(), [])
    assert (summary.recoveries, summary.layers, samples, rows) == ([], [], [], [])
    assert summary.status == "invalid"
