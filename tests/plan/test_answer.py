"""The whole answer: plan.json's fields, the honest lines, periods outside validity, labels."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isfinite

import pytest

from bench.errors import BadInput
from bench.plan import formulas
from bench.plan.answer import PLAN_VERSION, answer, label_of, to_json
from bench.plan.config import Cluster, Model, Recovery, Save, Simulation, Storage
from tests.plan.made import NODE_BYTES, failures, plan, recovery, result

HAND = plan(save=Save(2.0, 4.0, 60.0, 0.03), recovery=Recovery(seconds=120.0), simulation=Simulation(replicates=400))


@pytest.fixture(scope="module")
def found():
    return answer(HAND)


@pytest.fixture(scope="module")
def content(found):
    return json.loads(json.dumps(to_json(found), allow_nan=False))


def test_plan_json_holds_what_is_fixed(content):
    assert content["schema_version"] == PLAN_VERSION == 1
    assert set(content["intervals"]) >= {"young_s", "daly_first_s", "daly_higher_s", "exact_s", "async_s"}
    assert set(content["ettr_linear"]) >= {"value", "in_range"}
    assert set(content["goodput_closed"]) >= {"value", "formula"}
    assert set(content["goodput_simulated"]) >= {"value", "standard_error", "replicates"}
    assert content["goodput_simulated"]["replicates"] == 400
    assert content["cost"]
    for each in content["inputs"]:
        assert set(each) >= {"name", "value", "unit", "kind", "source"}
        assert each["kind"] in ("measured", "extrapolated", "assumed")


def test_its_intervals_are_the_formulas_for_the_blocking_time(content):
    mtbf = formulas.mtbf_s(64, 5.0)
    assert content["mtbf_s"] == pytest.approx(mtbf)
    assert content["intervals"] == {
        "young_s": pytest.approx(formulas.young_s(2, mtbf).value),
        "daly_first_s": pytest.approx(formulas.daly_first_s(2, mtbf).value),
        "daly_higher_s": pytest.approx(formulas.daly_higher_s(2, mtbf).value),
        "exact_s": pytest.approx(formulas.exact_s(2, mtbf)),
        "async_s": pytest.approx(formulas.async_period_s(2, 0.03, 60, mtbf).value),
    }


def test_its_goodput_is_that_of_the_stated_save_period_and_recovery(content):
    mtbf = formulas.mtbf_s(64, 5.0)
    expected = formulas.goodput(1800 - 4, 4, 60, [(1.0, 120.0)], mtbf)
    assert content["goodput_closed"] == {
        "value": pytest.approx(expected),
        "in_range": True,
        "formula": "vaidya_1997",
        "valid_for": "gaps without memory",
    }
    simulated = content["goodput_simulated"]
    assert abs(simulated["value"] - expected) < 4 * simulated["standard_error"] + 1e-4  # both ends of the job
    linear = formulas.ettr_linear(1 / mtbf, 120, 1800, 4)
    assert content["ettr_linear"]["value"] == pytest.approx(linear.value)


def test_a_stated_recovery_holds_for_every_failure_whatever_the_layer():
    for layer in ("orchestrator", "in_job", "in_process"):
        stated = replace(
            HAND,
            recovery=Recovery(layer=layer, seconds=120.0, in_job_overhead_share=0.0, in_process_overhead_share=0.0),
        )
        expected = formulas.goodput(1800 - 4, 4, 60, [(1.0, 120.0)], formulas.mtbf_s(64, 5.0))
        assert answer(stated).closed.value == pytest.approx(expected)


def test_the_parts_of_the_simulated_time_add_up(found, content):
    assert sum(part["share"] for part in content["goodput_simulated"]["parts"]) == pytest.approx(1)
    assert all(part.low <= part.share <= part.high for part in found.parts)
    priced = answer(replace(HAND, recovery=Recovery(layer="in_job", in_job_overhead_share=0.1)))
    assert {part.category: part.share for part in priced.parts}["overhead"] == pytest.approx(0.1)
    assert sum(part.share for part in priced.parts) == pytest.approx(1)


def test_at_the_users_period_shares_are_cost_over_period(found):
    strategy, baseline = found.at_period
    assert (strategy.save, baseline.save) == ("nvrx_async", "sync_local")
    assert strategy.checkpoint_share == pytest.approx(4 / 1800)
    assert baseline.checkpoint_share == pytest.approx(60 / 1800)


def test_each_kind_of_save_at_its_own_best_period_is_no_worse_than_at_the_users(found):
    for own, user in zip(found.at_best, found.at_period, strict=True):
        assert own.goodput >= user.goodput
    for best in found.best:
        assert best.flat_low_s < best.period_s < best.flat_high_s


def test_a_baseline_that_cannot_keep_the_period_has_no_figure_there():
    strategy, baseline = answer(replace(HAND, period_s=50.0)).at_period
    assert (baseline.checkpoint_share, baseline.goodput) == (None, None)
    assert strategy.waits_for_writes
    assert strategy.period_s == 60.0
    assert strategy.checkpoint_share == pytest.approx(1 - (50 - 4) / 60)


def test_money_follows_the_closed_goodput(found):
    lost = 1 - found.closed.value
    assert found.cost["idle_per_day"] == pytest.approx(24 * 512 * 4 * lost)
    assert found.cost["lost_gpu_hours_a_month"] == pytest.approx(730 * 512 * lost)
    assert found.cost["per_failure"] == pytest.approx(512 * 4 * (120 + 900 + 60) / 3600)


def test_the_llama_3_cluster_is_useful_for_more_than_90_percent_over_its_inputs_ranges_in_the_middle():
    llama3 = failures(per_1000_node_days=3.79)
    for seconds in (60.0, 300.0):
        stated = plan(
            cluster=Cluster(nodes=2048),
            failures=llama3,
            period_s=600.0,
            recovery=Recovery(seconds=seconds),
            save=Save(2.0, 4.0, 60.0),
            simulation=Simulation(replicates=20),
        )
        found = answer(stated)
        assert found.mtbf_s / 3600 == pytest.approx(3.09, abs=0.005)
        assert found.closed.value > 0.9
        assert found.simulated.goodput > 0.9


# --- validity
def test_a_period_shorter_than_a_save_is_refused():
    with pytest.raises(BadInput, match="period_s: 4 s leaves no time for work, a save of nvrx_async costs 4 s"):
        answer(replace(HAND, period_s=4.0))


def test_a_period_in_which_hardly_anything_is_completed_is_refused():
    with pytest.raises(BadInput, match=r"period_s: with 1e\+08 s.*hardly an interval would end"):
        answer(replace(HAND, period_s=1e8))


def test_a_result_without_the_arm_is_refused_with_what_to_run(tmp_path):
    with pytest.raises(BadInput, match="python -m bench run"):
        answer(replace(plan(), strategy="nvrx_dcp"), [result(tmp_path)])


# --- labels
def test_the_label_is_never_measured_since_no_test_measures_a_failure_rate(tmp_path):
    here = plan(cluster=Cluster(nodes=8), model=Model(params=8 * NODE_BYTES / 10, bytes_per_param=10))
    rows = [recovery(layer, 20.0) for layer in ("in_process", "in_job", "requeue")]
    assert answer(here, [result(tmp_path / "a", recoveries=rows)]).label == "partly assumed"
    assert answer(plan(), [result(tmp_path / "b")]).label == "extrapolated"
    assert answer(plan()).label == "assumed"


def test_every_answer_for_an_extrapolated_size_carries_its_label(tmp_path):
    found = answer(plan(), [result(tmp_path)])
    content = to_json(found)
    assert label_of(found.inputs) == content["label"] == "extrapolated"
    assert {row["kind"] for row in content["sizes"]} == {"extrapolated"}
    assert {each["label"] for each in content["savings"]} == {"extrapolated"}
    for each in content["inputs"]:
        if each["kind"] == "extrapolated" and not each["derived"]:
            assert each["low"] < each["high"], each["name"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"save": Save(blocking_s=0.0)},
        {"cluster": Cluster(spares=0)},
        {"cluster": Cluster(spares=3)},
        {"cluster": Cluster(nodes=1, gpus_per_node=1)},
        {"storage": Storage(shared_every=4)},
        {"failures": failures(gaps=[1.0, 5.0, 0.2])},
        {"recovery": Recovery(layer="in_process", fails_share=0.2)},
    ],
)
def test_every_number_of_a_plan_is_finite_or_null(changes):
    content = to_json(answer(plan(**changes)))
    assert json.dumps(content, allow_nan=False)
    assert 0 < content["goodput_closed"]["value"] < 1
    assert all(isfinite(value) for value in content["intervals"].values())
