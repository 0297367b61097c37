"""What a run would take, and whether its timeouts are in order."""

from __future__ import annotations

import pytest

from bench import design
from bench.config import Budget, Checkpoint, Model, Recovery, Train
from bench.doctor import cost
from bench.predict import predict
from tests.doctor.cases import LLAMA, case, run


def test_quick_and_full_are_priced_by_the_same_prediction_as_a_dry_run():
    config = run(price_per_gpu_hour=2.0)
    quick, full, _ = cost.examine(case(config))
    expected = predict(config, design.plan(config), "cpu")
    assert (quick.name, full.name) == ("cost, quick", "cost, full")
    time, money = f"about {expected.seconds / 60:.1f} min", f"{expected.money:.2f} in your currency"
    assert quick.found.startswith(f"{time}, {expected.gpu_hours:.2f} slot-hours, {money}; assumed until the pilot")
    assert all(assumption in quick.found for assumption in expected.assumptions[:2])
    assert full.level == "ok"
    assert full.found != quick.found


def test_without_a_price_it_is_asked_for():
    assert "money: give price_per_gpu_hour" in cost.cost(run(device="cuda"), "quick").found
    assert "GPU-hours" in cost.cost(run(device="cuda"), "quick").found


def test_a_budget_that_does_not_hold_the_run_is_a_warning():
    assert cost.cost(run(budget=Budget(minutes=0.1)), "quick").level == "warn"
    assert cost.cost(run(budget=Budget(minutes=100)), "quick").level == "ok"


def test_a_design_that_the_keys_do_not_allow_is_skipped_with_the_rule():
    check = cost.cost(run(train=Train(steps=3, warmup_steps=1), checkpoint=Checkpoint(interval=5)), "full")
    assert check.level == "skip"
    assert "checkpoint.interval: 5 steps is longer" in check.found


def test_nothing_is_promised_for_a_users_model():
    assert cost.cost(run(model=Model(target="a.B")), "quick").level == "skip"
    assert cost.order(run(model=Model(target="a.B"), layer="in_job")).level == "skip"


def test_timeouts_matter_to_runs_with_a_recovery_layer():
    assert cost.order(run()).level == "skip"
    found = cost.order(run(layer="in_process"))
    assert found.level == "ok"
    assert found.found.startswith("in order; a hang is found after 5 s")


def test_a_timeout_out_of_order_fails_with_the_rule():
    recovery = Recovery(layer="in_process", timeouts={"soft_s": 30.0, "hard_s": 10.0})
    check = cost.order(run(recovery=recovery))
    assert check.level == "fail"
    assert check.found.startswith("recovery.timeouts.hard_s: must exceed soft_s")


def test_larger_saves_make_longer_timeouts():
    small, large = (cost.predicted_times(run(model=model, device="cuda")) for model in (run().model, LLAMA))
    assert large[1] > small[1]
    assert cost.predicted_times(run(train=Train(compute="paced", step_s=0.5)))[0] == pytest.approx(0.5)
