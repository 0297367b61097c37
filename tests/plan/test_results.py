"""What is taken from results: samples before medians, only what was measured, and a remedy for what is missing."""

from __future__ import annotations

import json

import pytest

from bench.errors import BadInput
from bench.plan.results import Measured, arm_of, layer_overhead, read, recoveries, save_figure
from tests.plan.made import ASYNC, recovery, result, sample


def test_a_folder_without_a_summary_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"holds no summary\.json; give the folder"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"), [("{", "not readable"), ('{"schema_version": 9}', "version 9"), ("[]", "version None")]
)
def test_a_summary_that_cannot_be_read_is_refused(tmp_path, content, message):
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(BadInput, match=message):
        read(tmp_path)


def test_an_invalid_result_is_no_ground_for_a_plan(tmp_path):
    with pytest.raises(BadInput, match="marked invalid"):
        result(tmp_path, status="invalid")


def test_a_missing_arm_is_named_with_what_to_run(tmp_path):
    found = result(tmp_path)
    with pytest.raises(BadInput, match=r"no arm 'nvrx_dcp'.*python -m bench run scenario=ckpt_8node checkpoint.arms"):
        arm_of(found, "nvrx_dcp")


def test_an_arm_that_was_not_measured_is_named_with_what_to_run(tmp_path):
    found = result(tmp_path, arms={"nvrx_async": {"blocking_s": 0.1, "cost_s": 0.3}})
    with pytest.raises(
        BadInput, match=r"did not measure durable_s of nvrx_async; measure it with: python -m bench run"
    ):
        arm_of(found, "nvrx_async")


def test_samples_count_by_their_mean_and_only_measured_ones_of_the_arm(tmp_path):
    samples = [sample("nvrx_async", cost_s=value) for value in (1.0, 1.0, 4.0)]
    samples += [sample("nvrx_async", measured=False, cost_s=100.0), sample("sync_local", cost_s=50.0)]
    (found,) = save_figure([result(tmp_path, samples=samples)], "nvrx_async", "cost_s")
    assert found.values == (1.0, 1.0, 4.0)
    assert found.mean == 2.0
    assert "mean of 3 saves of nvrx_async" in found.source
    low, high = found.interval()
    assert 1.0 <= low < 2.0 < high <= 4.0


def test_without_samples_the_median_stands_with_its_interval_and_says_so(tmp_path):
    (found,) = save_figure([result(tmp_path)], "nvrx_async", "cost_s")
    assert found.mean == ASYNC["cost_s"]
    assert found.interval() == (pytest.approx(0.27), pytest.approx(0.33))
    assert "no samples at hand" in found.source


def test_the_size_and_the_place_go_with_every_figure(tmp_path):
    gpus, cpus = result(tmp_path / "a", nodes=8), result(tmp_path / "b", nodes=1, device="cpu", rehearsal=True)
    found = save_figure([gpus, cpus], "sync_local", "blocking_s")
    assert [(each.nodes, each.ranks, each.on_gpus) for each in found] == [(8, 64, True), (1, 8, False)]
    assert "64 GPUs" in found[0].source
    assert "REHEARSAL" in found[1].source


def test_a_point_without_bytes_is_none():
    assert Measured((1.0,), None, 2, 16, None, "", True).point(by_ranks=True) is None
    point = Measured((1.0, 3.0), None, 2, 16, 5.0, "", True).point(by_ranks=True)
    assert point is not None
    assert (point.seconds, point.units, point.total_bytes) == (2.0, 16, 5.0)


def test_recoveries_count_by_the_layer_that_did_them_and_only_successful_ones(tmp_path):
    rows = [
        recovery("in_process", 9.0, 1.0),
        recovery("in_process", 11.0, 3.0),
        recovery("in_process", None),
        recovery("in_process", 500.0, outcome="not_recovered"),
        recovery("in_process", 30.0) | {"further_faults": 1},
        recovery("in_process", 30.0) | {"faults": ["f0", "f1"]},
        recovery("in_process", 30.0) | {"further_faults": 1},
        recovery("in_process", 30.0) | {"faults": ["f0", "f1"]},
        recovery("in_job", 20.0),
        recovery("requeue", 250.0),
    ]
    found = result(tmp_path, recoveries=rows)
    (in_process,) = recoveries([found], "in_process")
    assert in_process.whole.values == (9.0, 11.0)
    assert in_process.load_s == 2.0
    assert recoveries([found], "in_job")[0].load_s == 0.0
    assert recoveries([found], "orchestrator")[0].whole.values == (250.0,)


def test_the_price_of_a_layer_is_taken_where_it_was_measured(tmp_path):
    price = {"median": 0.004, "low": 0.001, "high": 0.006, "n": 3, "interval": "range"}
    layers = [{"layer": "in_job", "overhead_share": None}, {"layer": "in_process", "overhead_share": price}]
    found = result(tmp_path, layers=layers)
    assert layer_overhead([found], "in_job") is None
    share, source = layer_overhead([found], "in_process") or (None, "")
    assert share == 0.004
    assert "in_process" in source


def test_what_the_schema_writes_is_what_is_read(tmp_path):
    found = result(tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text()) == found.summary
    assert found.samples is None
