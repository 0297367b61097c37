"""Every input has a value, a kind and a source; precedence is stated, measured, assumed."""

from __future__ import annotations

import pytest

from bench.plan.config import Cluster, Model, Recovery, Save, Storage
from bench.plan.inputs import gather
from bench.plan.label import STATED
from tests.plan.made import ASYNC, NODE_BYTES, plan, recovery, result

# What the command line can state, and the input under which it has to show.
NAMES = {
    "save.blocking_s",
    "save.cost_s",
    "save.durable_s",
    "failures.per_1000_node_days",
    "failures.weibull_shape",
    "cluster.nodes",
    "cluster.gpus_per_node",
    "cluster.price_per_gpu_hour",
    "job.days",
    "period_s",
    "model.params",
    "model.bytes_per_param",
    "storage.write_bytes_per_s",
}


def at_measured_size():
    return plan(cluster=Cluster(nodes=8), model=Model(params=8 * NODE_BYTES / 10, bytes_per_param=10))


def test_without_a_result_everything_is_assumed_and_says_why():
    found = gather(plan(), []).by_name
    assert set(found) >= NAMES | {"save.slowdown", "baseline.cost_s", "recovery.orchestrator_s"}
    assert {each.kind for each in found.values()} == {"assumed"}
    assert all(each.source for each in found.values())


def test_what_is_stated_counts_as_assumed_and_as_stated():
    found = gather(plan(save=Save(1.0, 2.0, 30.0, 0.01)), []).by_name
    for name in ("save.blocking_s", "save.cost_s", "save.durable_s", "save.slowdown"):
        assert (found[name].kind, found[name].source) == ("assumed", STATED)


def test_a_result_of_the_planned_size_is_measured(tmp_path):
    found = gather(at_measured_size(), [result(tmp_path)]).by_name
    kinds = {name: found[name].kind for name in ("save.blocking_s", "save.cost_s", "save.durable_s", "baseline.cost_s")}
    assert set(kinds.values()) == {"measured"}
    assert found["failures.per_1000_node_days"].kind == "assumed"


def test_a_result_of_another_size_is_extrapolated_and_so_is_what_follows_from_it(tmp_path):
    found = gather(plan(), [result(tmp_path)]).by_name
    for name in ("save.blocking_s", "save.durable_s", "save.cost_s", "baseline.cost_s", "baseline.durable_s"):
        assert found[name].kind == "extrapolated", name
    assert found["save.cost_s"].derived


def test_a_stated_figure_takes_the_place_of_a_measured_one_and_changes_the_cost_with_it(tmp_path):
    stated = plan(
        cluster=Cluster(nodes=8), model=Model(params=8 * NODE_BYTES / 10, bytes_per_param=10), save=Save(slowdown=0.5)
    )
    found = gather(stated, [result(tmp_path)]).by_name
    assert found["save.blocking_s"].kind == "measured"
    assert found["save.cost_s"].derived
    assert found["save.cost_s"].value == pytest.approx(0.1 + 0.5 * (2.5 - 0.1))


def test_a_stated_blocking_time_alone_assumes_no_slowdown_and_no_store():
    found = gather(plan(save=Save(blocking_s=20.0)), []).by_name
    assert "save.slowdown" not in found
    assert "storage.write_bytes_per_s" not in found
    assert found["save.durable_s"].value == found["save.cost_s"].value == 20.0


def test_a_stated_recovery_is_that_of_the_deployed_layer():
    found = gather(plan(recovery=Recovery(layer="in_job", seconds=33.0)), []).by_name
    assert found["recovery.in_job_s"].value == 33.0
    assert found["recovery.orchestrator_s"].value == 270.0
    assert "AWS" in found["recovery.orchestrator_s"].source


def test_recoveries_are_measured_where_a_result_has_them_and_assumed_otherwise(tmp_path):
    results = [result(tmp_path, recoveries=[recovery("in_job", 20.0), recovery("in_job", 30.0)])]
    gathered = gather(at_measured_size(), results)
    assert gathered.by_name["recovery.in_job_s"].kind == "measured"
    assert gathered.by_name["recovery.in_process_s"].kind == "assumed"
    assert gathered.background.spread == {"in_job": (0.8, 1.2)}


def test_a_stated_store_bounds_what_is_extrapolated(tmp_path):
    stated = plan(storage=Storage(write_bytes_per_s=64 * NODE_BYTES / 5.0))
    durable = gather(stated, [result(tmp_path)]).by_name["save.durable_s"]
    assert (durable.low, durable.high) == (pytest.approx(5.0), pytest.approx(10.0))
    free = gather(plan(), [result(tmp_path)]).by_name["save.durable_s"]
    assert (free.low, free.high) == (pytest.approx(ASYNC["durable_s"]), pytest.approx(8 * ASYNC["durable_s"]))


def test_a_failure_rate_is_never_taken_from_a_result(tmp_path):
    results = [result(tmp_path, recoveries=[recovery("in_job", 20.0)] * 10)]
    rate = gather(plan(), results).by_name["failures.per_1000_node_days"]
    assert (rate.value, rate.kind) == (5.0, "assumed")


def test_derived_inputs_are_not_varied_by_themselves():
    gathered = gather(plan(), [])
    assert "save.cost_s" not in gathered.values
    assert not gathered.by_name["save.cost_s"].varies
    assert gathered.by_name["save.slowdown"].varies


def test_hourly_saves_are_assumed_unless_a_save_is_too_long_for_that():
    assert gather(plan(period_s=None, save=Save(blocking_s=10.0)), []).period_s == 3600
    assert gather(plan(period_s=None, save=Save(blocking_s=1000.0)), []).period_s == 4000
