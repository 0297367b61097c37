"""The bars of the GPU time: they add up to the ledger, whatever they are of."""

from __future__ import annotations

import pytest

from bench.report.data import read_result
from bench.report.figures.gpu_time import TOGETHER, bars, says
from tests.measure.streams import ARMS, Scenario, run_json, write_launch
from tests.report.made import write_run


def test_the_last_bar_holds_every_second_of_the_measured_launches(checkpoints):
    found = {bar.name: bar for bar in bars(checkpoints)}
    assert list(found) == ["none", "sync_local", "nvrx_async", TOGETHER]
    assert found[TOGETHER].total_s == pytest.approx(sum(row.seconds for row in checkpoints.ledger))
    assert found["sync_local"].seconds["ckpt_stall"] > found["nvrx_async"].seconds["ckpt_stall"]
    assert "startup" not in found["sync_local"].seconds, "in turns a start belongs to no arm"


def test_of_launches_with_one_arm_each_the_start_belongs_to_the_arm(tmp_path):
    folder = tmp_path / "full"
    for index, (name, spec) in enumerate(ARMS.items()):
        each = Scenario(arms={name: spec}, interval=5, saves=4, index=index, kind="full")
        write_launch(folder / "launches" / str(index), each)
    run = run_json(each)
    run["config"]["checkpoint"]["arms"] = list(ARMS)
    found = {bar.name: bar for bar in bars(read_result(write_run(folder, run), "run"))}
    assert all(found[name].seconds["startup"] > 0 for name in ARMS)
    assert sum(found[name].total_s for name in ARMS) == pytest.approx(found[TOGETHER].total_s)


def test_of_a_result_with_faults_a_bar_is_a_layer_and_one_the_launches_without(recoveries):
    found = {bar.name: bar for bar in bars(recoveries)}
    assert set(found) == {"in_process", "in_job", "no faults", TOGETHER}
    assert found["in_job"].seconds["restart"] > found["in_process"].seconds["restart"] > 0
    assert "restart" not in found["no faults"].seconds


def test_the_message_names_the_useful_share_the_largest_loss_and_what_is_unattributed(checkpoints):
    text = says(bars(checkpoints))
    assert "sync_local: " in text
    assert "most of the rest ckpt stall" in text
    assert "Unattributed over all: 0.00 %." in text
