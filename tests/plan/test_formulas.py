"""The closed forms: published tables to their digits, limits against each other, domains that are refused."""

from __future__ import annotations

from math import e, exp, inf, log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.plan import formulas
from bench.plan.formulas import (
    async_goodput_first_order,
    async_interval_s,
    async_period_s,
    daly_first_s,
    daly_higher_s,
    ettr_linear,
    exact_s,
    goodput,
    lambert_w0,
    layered_goodput_first_order,
    mtbf_s,
    recovery_factor_s,
    wall_s,
    young_s,
)
from tests.plan.tables import digits_agree, table

OPTIMA = table("interval_optimum")
RATIOS = table("ettr_published")
RATES = table("failure_rates")
LLAMA3 = table("llama3_interruptions")


# --- published tables
@pytest.mark.parametrize("row", OPTIMA, ids=lambda row: f"delta={row['delta_s']},M={row['mtbf_s']}")
def test_the_table_of_optima_is_reproduced_to_4_digits_and_the_exact_ones_to_5(row):
    delta, mtbf = float(row["delta_s"]), float(row["mtbf_s"])
    assert digits_agree(young_s(delta, mtbf).value, float(row["young"]), 4)
    assert digits_agree(daly_first_s(delta, mtbf).value, float(row["young_minus_delta"]), 4)
    assert digits_agree(daly_higher_s(delta, mtbf).value, float(row["daly_higher"]), 4)
    assert digits_agree(exact_s(delta, mtbf), float(row["exact"]), 5)


def ratio_of(row: dict[str, str]) -> formulas.Estimate:
    rate = 1 / mtbf_s(float(row["nodes"]), float(row["failures_per_1000_node_days"]))
    return ettr_linear(rate, 60 * float(row["u0_min"]), 60 * float(row["dt_min"]), float(row["w_s"]))


@pytest.mark.parametrize("row", RATIOS, ids=lambda row: row["case"])
def test_the_linear_time_ratio_is_reproduced_to_3_decimals(row):
    assert f"{ratio_of(row).value:.3f}" == row["linear_check"]


def test_the_linear_time_ratio_says_where_it_is_pessimistic():
    in_range = {row["case"]: ratio_of(row).in_range for row in RATIOS}
    assert in_range == {
        "16k GPU RSC-1 60 min": False,
        "16k GPU RSC-1 5 min": True,
        "100k GPU RSC-1 7 min": False,
        "100k GPU RSC-2 21 min": False,
        "100k GPU RSC-2 2 min": True,
    }


def test_the_exact_formula_gives_what_the_table_says_where_the_linear_one_is_out_of_range():
    value = goodput(420, 0, 0, [(1.0, 300)], mtbf_s(12500, 6.5), can_fail=False)
    assert f"{value:.3f}" == "0.636"


def test_the_llama_3_cluster_fails_every_3_09_hours():
    interruptions = sum(int(row["count"]) for row in LLAMA3)
    assert interruptions == 419
    rate = interruptions / (2048 * 54) * 1000
    assert f"{rate:.2f}" == "3.79"
    assert f"{mtbf_s(2048, rate) / 3600:.2f}" == "3.09"


@pytest.mark.parametrize("recovery_s", [60, 120, 300])
@pytest.mark.parametrize("blocking_s", [2, 10, 30])
def test_the_llama_3_cluster_trains_more_than_90_percent_for_plausible_saves_and_recoveries(blocking_s, recovery_s):
    mtbf = mtbf_s(2048, 3.79)
    value = goodput(exact_s(blocking_s, mtbf), blocking_s, blocking_s, [(1.0, recovery_s)], mtbf)
    assert value > 0.9
    assert value == pytest.approx(1 - sqrt(2 * blocking_s / mtbf) - recovery_s / mtbf, abs=0.006)  # second order


def test_the_llama_3_cluster_trains_less_than_90_percent_where_saves_block_long_and_recovery_is_slow():
    mtbf = mtbf_s(2048, 3.79)
    assert goodput(exact_s(30, mtbf), 30, 30, [(1.0, 600)], mtbf) < 0.9


def test_derived_rates_follow_from_their_published_counts():
    rates = {row["cluster"].split(" (")[0]: float(row["failures_per_1000_node_days"]) for row in RATES}
    assert rates["Llama 3"] == round(419 / (2048 * 54) * 1000, 2)
    assert rates["RSC-1 jobs of 1024 GPUs"] == round(24 / 7.9 / 128 * 1000, 1)
    assert rates["OPT-175B"] == round((35 + 70) / (124 * 60) * 1000)


def test_270_to_10_seconds_on_512_gpus_saves_an_eighth_of_a_percent():
    mtbf = mtbf_s(64, 6.5)
    assert (270 - 10) / mtbf == pytest.approx(0.00125, rel=0.01)
    period_s, cost_s = 1800.0, 1.0
    goodputs = [goodput(period_s - cost_s, cost_s, cost_s, [(1.0, r)], mtbf) for r in (10.0, 270.0)]
    assert goodputs[0] - goodputs[1] == pytest.approx(0.00125, rel=0.02)


# --- Lambert W
@given(st.floats(-1 / e + 1e-6, 1e6))
def test_lambert_w_inverts_w_times_exp_w(x):
    w = lambert_w0(x)
    assert w >= -1
    assert w * exp(w) == pytest.approx(x, rel=1e-9, abs=1e-12)


def test_lambert_w_at_its_branch_point_and_at_known_places():
    assert lambert_w0(-1 / e) == pytest.approx(-1, abs=1e-6)
    assert lambert_w0(0) == 0
    assert lambert_w0(e) == pytest.approx(1)
    assert lambert_w0(2 * log(2)) == pytest.approx(log(2))


def test_lambert_w_refuses_what_lies_outside_its_domain():
    with pytest.raises(ValueError, match="at least -1/e"):
        lambert_w0(-0.5)


# --- optima
@given(st.floats(0.1, 1000), st.floats(10, 1e6), st.floats(0.2, 5))
def test_no_other_interval_takes_less_time_than_the_exact_one(delta, mtbf, factor):
    best = exact_s(delta, mtbf)
    assert wall_s(1, best, delta, 60, mtbf) <= wall_s(1, best * factor, delta, 60, mtbf) * (1 + 1e-9)


def test_the_exact_interval_does_not_depend_on_the_recovery():
    delta, mtbf = 50.0, 5000.0
    best = exact_s(delta, mtbf)
    for recovery_s in (0.0, 300.0):
        around = [wall_s(1, best * factor, delta, recovery_s, mtbf) for factor in (0.99, 1.0, 1.01)]
        assert min(around) == around[1]


def test_young_and_daly_say_where_a_save_is_too_long_for_them():
    assert young_s(1, 100).in_range
    assert daly_first_s(1, 100).in_range
    assert young_s(1, 100).value == pytest.approx(exact_s(1, 100), rel=0.06)
    assert daly_first_s(1, 100).value == pytest.approx(exact_s(1, 100), rel=0.03)
    assert not young_s(1.1, 100).in_range
    assert not daly_first_s(1.1, 100).in_range
    assert daly_higher_s(199, 100).in_range


def test_daly_higher_order_becomes_the_mtbf_from_a_save_of_two_mtbf_on():
    estimate = daly_higher_s(200, 100)
    assert (estimate.value, estimate.in_range) == (100, False)


def test_an_asynchronous_save_is_not_repeated_before_its_write_ends():
    assert async_period_s(1, 0.02, 500, 10_000).value == pytest.approx(sqrt(2 * 11 * 10_000), abs=40)
    assert async_period_s(1, 0.0, 500, 10_000).value == 500
    assert not async_period_s(1, 0.02, 20_000, 10_000).in_range


# --- expected time
def test_time_of_synchronous_saves_is_dalys_formula_with_either_kind_of_recovery():
    fails = 1000 * exp(0.1) * (exp(0.25) - 1) * 5000 / 200
    assert wall_s(5000, 200, 50, 100, 1000) == pytest.approx(fails)
    fine = (1000 + 100) * (exp(0.25) - 1) * 5000 / 200
    assert wall_s(5000, 200, 50, 100, 1000, can_fail=False) == pytest.approx(fine)


def test_time_of_asynchronous_saves_is_vaidyas_formula():
    mtbf, latency, cost, recovery, work = 2000.0, 250.0, 20.0, 100.0, 300.0
    expected = mtbf * exp((latency - cost + recovery) / mtbf) * (exp((work + cost) / mtbf) - 1)
    assert async_interval_s(work, cost, latency, [(1.0, recovery)], mtbf) == pytest.approx(expected)


def test_writes_that_take_longer_than_the_period_stretch_it():
    waits = async_interval_s(100, 20, 250, [(1.0, 0.0)], 1e9)
    assert waits == pytest.approx(250, rel=1e-3)


def test_without_failures_the_goodput_is_what_saves_leave():
    assert goodput(90, 10, 10, [(1.0, 300)], 1e12) == pytest.approx(0.9)


def test_an_interval_that_is_never_completed_takes_for_ever():
    assert async_interval_s(1e6, 1, 1, [(1.0, 0.0)], 1.0) == inf
    assert goodput(1e6, 1, 1, [(1.0, 0.0)], 1.0) == 0
    assert recovery_factor_s(1.0, [(1.0, 1e6)]) == inf


def test_several_classes_of_failures_weigh_by_their_shares():
    one = recovery_factor_s(1000, [(1.0, 100)])
    assert recovery_factor_s(1000, [(0.5, 100), (0.5, 100)]) == pytest.approx(one)
    assert recovery_factor_s(1000, [(0.25, 10), (0.75, 50)], can_fail=False) == pytest.approx(1040)


def test_the_first_order_of_asynchronous_saves_agrees_with_the_exact_form_where_losses_are_small():
    exact = goodput(1000 - 12, 12, 60, [(1.0, 30)], 100_000)
    estimate = async_goodput_first_order(1000, 12, 60, 30, 100_000)
    assert estimate.in_range
    assert estimate.value == pytest.approx(exact, abs=2e-4)


def test_first_orders_can_go_below_zero_and_say_that_they_are_out_of_range():
    for estimate in (async_goodput_first_order(1000, 10, 100, 3000, 1000), ettr_linear(1 / 1000, 3000, 1000, 0)):
        assert estimate.value < 0
        assert not estimate.in_range


def test_each_class_of_failures_counts_its_own_recovery_and_lost_work():
    estimate = layered_goodput_first_order(100, 1, [(0.8, 10, 50), (0.2, 300, 500)], 10_000)
    assert estimate.value == pytest.approx(0.99 * (1 - (0.8 * 60 + 0.2 * 800) / 10_000))


def test_a_costly_write_takes_the_time_ratio_out_of_its_range():
    assert ettr_linear(1e-6, 60, 1000, 100).in_range
    assert not ettr_linear(1e-6, 60, 1000, 101).in_range


# --- money
def test_money_follows_the_gpus_the_price_and_the_goodput():
    assert formulas.idle_per_day(512, 2.0, 0.9) == pytest.approx(24 * 512 * 2 * 0.1)
    assert formulas.per_useful_gpu_hour(4.0, 0.8) == pytest.approx(5.0)
    assert formulas.per_useful_gpu_hour(4.0, 0.0) is None
    assert formulas.per_failure(100, 7.0, 60, 1000, 40) == pytest.approx(100 * 7 * 600 / 3600)


# --- domains
@pytest.mark.parametrize(
    "call",
    [
        lambda: mtbf_s(0, 5),
        lambda: mtbf_s(8, -1),
        lambda: young_s(-1, 100),
        lambda: young_s(1, 0),
        lambda: exact_s(1, float("nan")),
        lambda: async_period_s(5, 0.1, 4, 100),
        lambda: async_period_s(5, 1.0, 6, 100),
        lambda: async_interval_s(0, 1, 1, [(1.0, 1)], 100),
        lambda: async_interval_s(10, 5, 4, [(1.0, 1)], 100),
        lambda: recovery_factor_s(100, [(0.5, 1)]),
        lambda: ettr_linear(1e-5, 1, 0, 0),
        lambda: ettr_linear(1e-5, -1, 10, 0),
    ],
)
def test_values_outside_a_domain_are_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()
