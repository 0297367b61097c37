"""The first page: every sentence has its number, and says what it rests on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from bench.measure.accounted import Accounted
from bench.plan.formulas import MONTH_HOURS
from bench.report.data import sync_arm
from bench.report.page.first import FAILURES_PER_1000_NODE_DAYS, FAILURES_RANGE, first_page
from bench.schema import Figure
from tests.report.made import ROOT


def changed(result: Accounted, **changes) -> Accounted:
    return Accounted(result.run, result.launches, replace(result.summary, **changes), result.samples, result.ledger)


def test_it_answers_what_both_ways_of_saving_cost_and_when_40_percent_begin(checkpoints):
    page = first_page(checkpoints)
    sync, background, limit, best = page.answers
    share = sync_arm(checkpoints).share
    assert f"synchronous saves (sync_local) cost {100 * share.median:.1f} %" in sync
    assert "the scenario's period, which is nobody's job" in sync
    assert "slower steps included; a stopwatch around the save would see" in background
    assert "40 % would need a save every 2.5 K = " in limit
    assert "(sync_local) against" in best
    assert "3.79 failures per 1,000 node-days are assumed" in best


def test_a_share_is_hours_a_month_and_money_where_there_is_a_price(checkpoints):
    share = sync_arm(checkpoints).share.median
    hours = share * 2 * MONTH_HOURS
    assert (
        f"{hours:.0f} slot-hours a month on 2 slots ({hours * 2.5:.0f} in your currency at 2.5 an hour)"
        in (first_page(checkpoints).answers[0])
    )
    free = Accounted(
        checkpoints.run | {"config": checkpoints.config | {"price_per_gpu_hour": None}}, *parts(checkpoints)
    )
    assert "(no price given)" in first_page(free).answers[0]


def parts(result: Accounted) -> tuple:
    return result.launches, result.summary, result.samples, result.ledger


def test_your_own_period_is_called_yours(checkpoints):
    config = checkpoints.config | {"job": {"step_s": 0.5, "interval_steps": 100, "period_s": None}}
    page = first_page(Accounted(checkpoints.run | {"config": config}, *parts(checkpoints)))
    assert page.answers[0].startswith("At your period (")


def test_it_says_what_was_measured_and_what_was_not(checkpoints):
    page = first_page(checkpoints)
    assert page.measured == "2 CPU ranks, no GPU in 1 node (m), 36 saves in 3 launches, on 2026-11-29"
    assert "the share at the stated period, from each save's K" in page.extrapolated
    assert "an assumed failure rate" in page.extrapolated
    assert page.status.startswith("valid: no doubts") or page.status.startswith("warn: ")


def test_gpus_are_named(checkpoints):
    run = checkpoints.run | {"environment": checkpoints.run["environment"] | {"gpus": [{"name": "NVIDIA H100"}]}}
    result = Accounted(run, [], replace(checkpoints.summary, device="cuda"), checkpoints.samples, [])
    page = first_page(result)
    assert page.measured.startswith("2 NVIDIA H100 in 1 node")
    assert "of GPU time" in page.answers[0]
    assert "GPU-hours a month" in page.answers[0]


def test_a_cost_that_is_not_above_0_has_no_best_period_and_no_limit(checkpoints):
    nothing = Figure(-0.01, -0.02, 0.01, 12, "ci95")
    arms = [replace(arm, cost_s=nothing, period_at_40_s=None) for arm in checkpoints.summary.arms]
    answers = first_page(changed(checkpoints, arms=arms)).answers
    assert any("no period at which 40 % would be reached" in answer for answer in answers)
    assert not any("best period" in answer for answer in answers)


def test_without_any_answer_it_says_so(checkpoints):
    page = first_page(changed(checkpoints, arms=[]))
    assert page.answers == ["Nothing was measured that answers a question yet; the status below says why."]
    assert page.advice.text.startswith("None: ")


def test_layers_are_held_against_a_whole_restart_over_the_faults_that_both_met(recoveries):
    first, second = first_page(recoveries).answers
    assert first.startswith("in_process: from a fault to the first new step 1.30 s (median over 1 kind of fault)")
    assert second.startswith("in_job: from a fault to the first new step 2.40 s")
    assert "against" not in first, "no layer that restarts the whole job was measured"
    assert "when nothing fails" in first


def test_a_layer_says_what_it_saves_and_costs_against_the_restart_of_the_whole_job(recoveries):
    price = Figure(0.004, 0.002, 0.006, 3, "range")
    layers = [
        replace(layer, layer="requeue") if layer.layer == "in_job" else replace(layer, overhead_share=price)
        for layer in recoveries.summary.layers
    ]
    first, second = first_page(changed(recoveries, layers=layers)).answers
    assert "and saves 1.10 s against requeue over the one fault in common" in first
    assert "it costs 0.40 % [0.20, 0.60] of the time when nothing fails" in first
    assert "against" not in second


def test_faults_that_the_whole_restart_never_met_are_not_compared(recoveries):
    layers = [
        replace(layer, layer="requeue", faults=[replace(fault, fault="os_hang") for fault in layer.faults])
        if layer.layer == "in_job"
        else layer
        for layer in recoveries.summary.layers
    ]
    assert "no fault in common with requeue" in first_page(changed(recoveries, layers=layers)).answers[0]


def test_a_cascade_is_no_kind_of_fault_that_a_layer_recovers_from_in_its_time(recoveries):
    layers = [
        replace(layer, faults=[*layer.faults, *(replace(each, fault="two", further_faults=1) for each in layer.faults)])
        for layer in recoveries.summary.layers
    ]
    assert first_page(changed(recoveries, layers=layers)).answers == first_page(recoveries).answers


def test_recovered_faults_are_counted(recoveries):
    assert "6 faults in 9 launches" in first_page(recoveries).measured
    assert "recovery times at other sizes" in first_page(recoveries).extrapolated


def test_the_assumed_failure_rate_is_the_profiles():
    profile = yaml.safe_load((ROOT / "conf" / "failures" / "llama3.yaml").read_text())
    assert profile["per_1000_node_days"] == FAILURES_PER_1000_NODE_DAYS
    assert tuple(profile["rate_range"]) == pytest.approx(FAILURES_RANGE)
