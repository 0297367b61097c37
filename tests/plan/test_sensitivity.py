"""Ranges and tornado: within the inputs' bounds, seeded, and widest first."""

from __future__ import annotations

from math import log

import pytest

from bench.plan.config import Cluster, Recovery, Save
from bench.plan.inputs import gather
from bench.plan.measured import WRITES
from bench.plan.savings import OPTIONS, saved_share
from bench.plan.sensitivity import NO_SPARES, draws, interval, tornado
from tests.plan.made import failures, plan, result

ASYNC = OPTIONS["asynchronous saves"]


def test_draws_stay_within_the_ranges_and_move_only_what_is_uncertain():
    inputs = gather(plan(), [])
    drawn = list(draws(inputs, seed=1, count=50))
    for name, each in inputs.by_name.items():
        if each.derived:
            continue
        values = {values[name] for values in drawn}
        if each.varies:
            assert len(values) == 50
            assert each.low <= min(values) <= max(values) <= each.high
        else:
            assert values == {each.value}


def test_draws_are_seeded():
    inputs = gather(plan(), [])
    assert list(draws(inputs, 1, 5)) == list(draws(inputs, 1, 5))
    assert list(draws(inputs, 1, 5)) != list(draws(inputs, 2, 5))


def test_an_interval_is_the_middle_95_percent():
    assert interval([float(i) for i in range(1001)]) == (25.0, 975.0)


def test_the_tornado_holds_the_savings_at_both_ends_widest_first():
    inputs = gather(plan(), [])
    bars = tornado(inputs, ASYNC)
    assert [bar.swing for bar in bars] == sorted((bar.swing for bar in bars), reverse=True)
    top = next(bar for bar in bars if bar.name == "storage.write_bytes_per_s")
    for end, found in ((top.low, top.at_low), (top.high, top.at_high)):
        values = inputs.values | {top.name: end}
        assert found == pytest.approx(saved_share(values, inputs.background, ASYNC, inputs.period_s))


def test_the_mapping_of_causes_and_the_price_of_a_layer_stand_in_the_tornado_of_a_restart():
    names = [bar.name for bar in tornado(gather(plan(), []), OPTIONS["in-job restart"])]
    assert "failures.in_place_share" in names
    assert "recovery.in_job_overhead_share" in names


def test_what_has_no_range_or_no_effect_is_left_out():
    stated = plan(save=Save(0.5, 1.0, 20.0), recovery=Recovery(in_job_s=20.0))
    names = {bar.name for bar in tornado(gather(stated, []), ASYNC)}
    assert not {"save.blocking_s", "recovery.in_job_s", "cluster.price_per_gpu_hour", "recovery.in_process_s"} & names


def test_having_no_spare_node_at_all_is_one_of_the_ends():
    inputs = gather(plan(), [])
    (bar,) = [bar for bar in tornado(inputs, ASYNC) if bar.name == NO_SPARES]
    assert bar.at_low == saved_share(inputs.values | {"cluster.spares": 0}, inputs.background, ASYNC, 1800.0)
    assert bar.at_high == saved_share(inputs.values, inputs.background, ASYNC, 1800.0)
    none = gather(plan(cluster=Cluster(spares=0)), [])
    assert NO_SPARES not in {bar.name for bar in tornado(none, ASYNC)}


def test_writes_that_were_extrapolated_together_move_together(tmp_path):
    inputs = gather(plan(), [result(tmp_path)])
    members = [each for each in inputs.by_name.values() if each.group == WRITES]
    assert {each.name for each in members} == {"save.durable_s", "baseline.cost_s"}
    for values in draws(inputs, seed=1, count=5):
        places = [log(values[e.name] / e.low) / log(e.high / e.low) for e in members]
        assert places[0] == pytest.approx(places[1])
    bars = {bar.name: bar for bar in tornado(inputs, ASYNC)}
    at_worst = inputs.values | {each.name: each.high for each in members}
    assert bars[WRITES].at_high == pytest.approx(saved_share(at_worst, inputs.background, ASYNC, 1800.0))
    assert not {"save.durable_s", "baseline.cost_s"} & set(bars)


def test_the_shape_of_the_gaps_is_simulated_for_both_set_ups():
    frequent = plan(cluster=Cluster(nodes=2000), failures=failures(per_1000_node_days=10.0))
    (bar,) = [bar for bar in tornado(gather(frequent, []), ASYNC) if bar.name == "failures.weibull_shape"]
    assert (bar.low, bar.high) == (0.7, 1.0)
    assert bar.swing > 0
    stated = plan(failures=failures(weibull_shape=0.8))
    assert "failures.weibull_shape" not in {bar.name for bar in tornado(gather(stated, []), ASYNC)}
