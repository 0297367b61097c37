"""What follows from the values: saves, the way of each failure, and goodputs against the closed forms."""

from __future__ import annotations

import pytest

from bench.plan import formulas
from bench.plan.failures import profile
from bench.plan.formulas import DAY_S
from bench.plan.setup import Background, SaveTimes, build, failure_classes, save_times
from bench.plan.simulate import simulate
from tests.plan.made import failures

PROFILE = profile(failures())
BACKGROUND = Background(PROFILE)
VALUES = {
    "cluster.nodes": 64.0,
    "cluster.gpus_per_node": 8.0,
    "cluster.repair_s": 3600.0,
    "model.params": 70e9,
    "model.bytes_per_param": 12.0,
    "storage.write_bytes_per_s": 42e9,
    "storage.concurrent_jobs": 2.0,
    "storage.staging_bytes_per_s_per_gpu": 5e9,
    "failures.per_1000_node_days": 5.0,
    "failures.in_place_share": 0.15,
    "recovery.orchestrator_s": 270.0,
    "recovery.in_job_s": 17.0,
    "recovery.in_process_s": 10.0,
    "recovery.fails_share": 0.0,
}
BOTH = frozenset({"in_job", "in_process"})


def ways(layers: frozenset[str] = BOTH, **changes: float) -> dict[str, float]:
    values = VALUES | {name.replace("__", "."): value for name, value in changes.items()}
    return {each.name: each.share for each in failure_classes(values, BACKGROUND, layers, 1.0) if each.share}


# --- saves
def test_an_assumed_asynchronous_save_stages_a_gpus_bytes_and_waits_for_the_shared_store():
    times = save_times(VALUES | {"save.slowdown": 0.1}, "save")
    staging_s = 840e9 / 512 / 5e9
    assert times.blocking_s == pytest.approx(staging_s)
    assert times.durable_s == pytest.approx(40.0)
    assert times.cost_s == pytest.approx(staging_s + 0.1 * (40 - staging_s))


def test_an_assumed_synchronous_save_takes_the_whole_write():
    assert save_times(VALUES, "baseline") == SaveTimes(*[pytest.approx(40.0)] * 3)


def test_a_blocking_time_or_a_cost_alone_is_a_synchronous_save():
    for name in ("blocking_s", "cost_s"):
        values = VALUES | {f"save.{name}": 7.0}
        assert save_times(values, "save") == SaveTimes(7.0, 7.0, 7.0)
        assert save_times(values, "baseline") == SaveTimes(7.0, 7.0, 7.0)


def test_the_baseline_of_a_save_described_by_hand_takes_as_long_as_its_write():
    values = VALUES | {"save.blocking_s": 1.0, "save.durable_s": 90.0}
    assert save_times(values, "baseline") == SaveTimes(90.0, 90.0, 90.0)


def test_a_stated_cost_stands_and_order_is_kept():
    assert save_times(
        VALUES | {"save.blocking_s": 1.0, "save.cost_s": 3.0, "save.durable_s": 9.0}, "save"
    ) == SaveTimes(1, 3, 9)
    noisy = VALUES | {"save.blocking_s": 2.0, "save.cost_s": 1.0, "save.durable_s": 1.5}
    assert save_times(noisy, "save") == SaveTimes(2.0, 2.0, 2.0)


# --- failures
def test_each_failure_goes_to_the_lowest_layer_that_handles_it():
    assert ways() == {"in_process": pytest.approx(0.15), "orchestrator on another node": pytest.approx(0.85)}
    assert ways(frozenset({"in_job"})) == {
        "in_job": pytest.approx(0.15),
        "orchestrator on another node": pytest.approx(0.85),
    }
    assert set(ways(frozenset())) == {"orchestrator", "orchestrator on another node"}


def test_without_a_spare_restarts_in_place_earn_nothing_for_hardware_causes():
    assert ways()["orchestrator on another node"] == pytest.approx(0.85)
    assert ways(cluster__spares=0)["orchestrator on another node"] == pytest.approx(0.85)
    assert ways(cluster__spares=1)["in_job on another node"] == pytest.approx(0.85)


def test_in_process_restart_alone_starts_no_ranks_on_another_node():
    assert ways(frozenset({"in_process"}), cluster__spares=1) == {
        "in_process": pytest.approx(0.15),
        "orchestrator on another node": pytest.approx(0.85),
    }


def test_unclear_causes_count_as_the_in_place_share_says():
    assert ways(failures__in_place_share=0.25)["in_job"] == pytest.approx(0.10)
    assert ways(failures__in_place_share=0.20)["in_job"] == pytest.approx(0.05)


def test_shares_add_up_and_the_last_class_is_the_whole_job():
    for spares in (0, 1, 4):
        classes = failure_classes(VALUES | {"cluster.spares": spares}, BACKGROUND, BOTH, 1.0)
        assert sum(each.share for each in classes) == pytest.approx(1)
        assert classes[-1].name == "orchestrator"


def test_a_lost_node_falls_back_on_the_store_and_a_lost_process_does_not():
    classes = failure_classes(VALUES, Background(PROFILE, shared_every=5), BOTH, 1.0)
    assert {each.name: each.every for each in classes} == {
        "in_process": 1,
        "orchestrator on another node": 5,
        "orchestrator": 1,
    }


# --- goodput
def test_the_closed_goodput_is_the_formula_of_the_kind_of_save():
    asynchronous = build(VALUES | {"save.slowdown": 0.02}, BACKGROUND, "save", frozenset())
    synchronous = build(VALUES, BACKGROUND, "baseline", frozenset())
    assert (asynchronous.closed(1800).formula, synchronous.closed(1800).formula) == ("vaidya_1997", "daly_2006")
    assert synchronous.goodput(1800) == pytest.approx(1760 / formulas.wall_s(1760, 1760, 40, 270, synchronous.mtbf_s))
    assert synchronous.closed(1800).in_range


def test_a_period_without_time_for_work_has_no_goodput():
    setup = build(VALUES, BACKGROUND, "baseline", frozenset())
    assert setup.closed(40.0).value == 0
    assert not setup.closed(40.0).in_range


def test_the_closed_form_says_where_it_does_not_hold():
    spares = build(VALUES | {"cluster.spares": 2}, BACKGROUND, "baseline", BOTH)
    weibull = build(VALUES | {"failures.weibull_shape": 0.7}, BACKGROUND, "baseline", BOTH)
    assert not spares.closed(1800).in_range
    assert not weibull.closed(1800).in_range


def test_prices_of_layers_and_idle_spares_are_taken_off():
    plain = build(VALUES, BACKGROUND, "baseline", BOTH)
    priced = build(VALUES | {"recovery.in_job_overhead_share": 0.01}, BACKGROUND, "baseline", BOTH)
    spared = build(VALUES | {"cluster.spares": 16}, BACKGROUND, "baseline", frozenset())
    assert priced.goodput(1800) == pytest.approx(0.99 * plain.goodput(1800))
    assert spared.kept_share == pytest.approx(0.8)


@pytest.mark.parametrize("changes", [{}, {"cluster.spares": 0.0}, {"recovery.fails_share": 0.3}])
def test_closed_form_and_simulation_agree(changes):
    setup = build(VALUES | changes | {"cluster.nodes": 1024.0}, BACKGROUND, "baseline", BOTH)
    found = simulate(setup.job_model(1800), 300 * DAY_S, 100, seed=1)
    assert abs(found.goodput * setup.kept_share - setup.goodput(1800)) < 4 * found.standard_error


def test_recoveries_vary_as_measured_around_their_mean():
    setup = build(VALUES, Background(PROFILE, spread={"in_process": (0.5, 1.5)}), "baseline", BOTH)
    in_process = next(each for each in setup.classes if each.name == "in_process")
    assert in_process.recovery_s == (5.0, 15.0)


def test_tiers_are_answered_to_first_order_and_near_the_simulation():
    setup = build(VALUES, Background(PROFILE, shared_every=4), "baseline", BOTH)
    estimate = setup.closed(1800)
    assert estimate.formula == "layers_first_order"
    assert estimate.in_range
    found = simulate(setup.job_model(1800), 90 * DAY_S, 400, seed=1)
    assert estimate.value == pytest.approx(found.goodput, abs=0.002)


# --- best periods
def test_the_best_period_of_synchronous_saves_is_the_exact_optimum():
    setup = build(VALUES, BACKGROUND, "baseline", frozenset())
    best = setup.best_period_s()
    assert best == pytest.approx(formulas.exact_s(40, setup.mtbf_s) + 40, rel=1e-2)
    assert setup.goodput(best) >= max(setup.goodput(best * 0.9), setup.goodput(best * 1.1))


def test_the_flat_region_loses_at_most_a_percent_and_no_more_than_that_lies_outside():
    setup = build(VALUES, BACKGROUND, "baseline", frozenset())
    low, high = setup.flat_region_s()
    best = setup.goodput(setup.best_period_s())
    assert low < setup.best_period_s() < high
    for edge, beyond in ((low, low * 0.98), (high, high * 1.02)):
        assert setup.goodput(edge) >= 0.99 * best * (1 - 1e-6)
        assert setup.goodput(beyond) < 0.99 * best


def test_the_best_period_is_never_shorter_than_one_write():
    values = VALUES | {"save.blocking_s": 0.01, "save.slowdown": 0.0, "save.durable_s": 900.0, "cluster.nodes": 2000.0}
    setup = build(values, BACKGROUND, "save", frozenset())
    assert setup.best_period_s() >= 900
    assert setup.waits_for_writes(800)
