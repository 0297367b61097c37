"""From results to inputs: measured at the planned size on GPUs, extrapolated with bounds everywhere else."""

from __future__ import annotations

import pytest

from bench.errors import BadInput
from bench.plan.measured import Target, overhead_input, recovery_input, save_inputs, slowest_of_more, within_store
from bench.plan.results import Measured
from bench.plan.scaling import Band
from tests.plan.made import ASYNC, NODE_BYTES, SYNC, recovery, result, sample

HERE = Target(nodes=8, ranks=64, total_bytes=8 * NODE_BYTES, store_s=None)
LARGER = Target(nodes=64, ranks=512, total_bytes=64 * NODE_BYTES, store_s=None)


def by_name(found):
    return {each.name: each for each in found}


def test_at_the_measured_size_an_asynchronous_save_is_taken_as_measured(tmp_path):
    found = by_name(save_inputs("save", [result(tmp_path)], "nvrx_async", HERE))
    assert {name: each.value for name, each in found.items()} == {
        f"save.{name}": ASYNC[name] for name in ("blocking_s", "cost_s", "durable_s")
    }
    assert {each.kind for each in found.values()} == {"measured"}
    assert all(each.low < each.value < each.high for each in found.values())


def test_a_synchronous_save_is_its_cost_alone(tmp_path):
    (cost,) = save_inputs("baseline", [result(tmp_path)], "sync_local", HERE)
    assert (cost.name, cost.value, cost.kind) == ("baseline.cost_s", SYNC["cost_s"], "measured")


def test_what_was_measured_on_cpus_counts_as_extrapolated_even_at_the_same_size(tmp_path):
    found = save_inputs("save", [result(tmp_path, device="cpu")], "nvrx_async", HERE)
    assert {each.kind for each in found} == {"extrapolated"}


def test_a_rehearsal_never_counts_as_measured(tmp_path):
    (cost,) = save_inputs("baseline", [result(tmp_path, rehearsal=True)], "sync_local", HERE)
    assert cost.kind == "extrapolated"
    assert "REHEARSAL" in cost.source


def test_at_another_size_the_parts_of_a_save_are_bands(tmp_path):
    found = by_name(save_inputs("save", [result(tmp_path)], "nvrx_async", LARGER))
    assert set(found) == {"save.blocking_s", "save.durable_s", "save.slowdown"}
    assert {each.kind for each in found.values()} == {"extrapolated"}
    durable = found["save.durable_s"]  # 8 times the bytes on 8 times the nodes: the same, or 8 times longer
    assert (durable.low, durable.high) == (pytest.approx(ASYNC["durable_s"]), pytest.approx(8 * ASYNC["durable_s"]))


def test_the_hidden_cost_goes_along_as_a_share_of_the_write(tmp_path):
    slowdown = by_name(save_inputs("save", [result(tmp_path)], "nvrx_async", LARGER))["save.slowdown"]
    hidden = (ASYNC["cost_s"] - ASYNC["blocking_s"]) / (ASYNC["durable_s"] - ASYNC["blocking_s"])
    assert slowdown.value == pytest.approx(hidden)
    assert slowdown.low < hidden < slowdown.high


def test_a_hidden_cost_below_zero_is_counted_as_none(tmp_path):
    arms = {"nvrx_async": {"blocking_s": 0.5, "cost_s": 0.3, "durable_s": 2.0}}
    slowdown = by_name(save_inputs("save", [result(tmp_path, arms=arms)], "nvrx_async", LARGER))["save.slowdown"]
    assert slowdown.value == 0
    assert slowdown.low == 0


def test_a_stated_store_bounds_the_write_on_both_sides():
    band = within_store(Band(2.0, 500.0, True, "bounds"), store_s=20.0)
    assert (band.low, band.high) == (20.0, 40.0)
    assert within_store(Band(30.0, 50.0, True, ""), store_s=20.0).low == 30.0
    assert within_store(Band(3.0, 3.0, False, ""), store_s=20.0) == Band(3.0, 3.0, False, "")


def test_results_of_four_sizes_are_fitted(tmp_path):
    results = [
        result(tmp_path / str(nodes), nodes, arms={"sync_local": {**SYNC, "cost_s": 2.0 + 0.01 * nodes}})
        for nodes in (1, 2, 4, 8)
    ]
    (cost,) = save_inputs("baseline", results, "sync_local", LARGER)
    assert "fitted on 4 measured sizes" in cost.source
    assert cost.low < cost.value < cost.high


def test_many_samples_raise_the_lower_bound_to_the_slowest_of_more_ranks():
    samples = tuple(1.0 + 0.01 * i for i in range(100))
    measured = [Measured(samples, None, 8, 64, 1.0, "", True)]
    raised = slowest_of_more(Band(1.5, 20.0, True, ""), measured, units=32, by_ranks=False)
    assert raised.low > 1.5
    few = [Measured(samples[:5], None, 8, 64, 1.0, "", True)]
    same = slowest_of_more(Band(1.5, 20.0, True, ""), few, units=320, by_ranks=False)
    assert same.low == 1.5
    assert "5 samples do not show the slowest of 40 times as many" in same.basis


def test_bytes_that_are_not_on_record_are_asked_for(tmp_path):
    found = result(tmp_path)
    for arm in found.summary["arms"]:
        arm["written_bytes"] = None
    with pytest.raises(BadInput, match=r"bytes of a save are not on record.*python -m bench run"):
        save_inputs("save", [found], "nvrx_async", HERE)


def test_samples_give_their_mean(tmp_path):
    samples = [sample("sync_local", blocking_s=2.0, durable_s=2.0, cost_s=value) for value in (2.0, 2.0, 5.0)]
    (cost,) = save_inputs("baseline", [result(tmp_path, samples=samples)], "sync_local", HERE)
    assert cost.value == 3.0
    assert "mean of 3 saves" in cost.source


# --- recovery
def test_recoveries_at_the_planned_size_are_measured(tmp_path):
    found = result(tmp_path, recoveries=[recovery("in_job", 20.0), recovery("in_job", 30.0)])
    each = recovery_input("in_job", [found], HERE)
    assert each is not None
    assert (each.value, each.kind) == (25.0, "measured")
    assert recovery_input("in_process", [found], HERE) is None


def test_recoveries_at_another_size_scale_loads_with_bytes_and_the_rest_with_nodes(tmp_path):
    found = result(tmp_path, recoveries=[recovery("in_job", 20.0, load_s=5.0)])
    each = recovery_input("in_job", [found], LARGER)
    assert each is not None
    assert each.kind == "extrapolated"
    assert (each.low, each.high) == (pytest.approx(15 + 5), pytest.approx(15 * 8 + 5 * 8))


def test_the_price_of_a_layer_is_measured_or_absent(tmp_path):
    price = {"median": -0.001, "low": -0.002, "high": 0.0, "n": 3, "interval": "range"}
    found = result(tmp_path, layers=[{"layer": "in_job", "overhead_share": price}])
    price = overhead_input("in_job", [found])
    assert price is not None
    assert (price.value, price.kind) == (0.0, "measured")
    assert overhead_input("in_process", [found]) is None
