"""What layers save: against today, with their price, and from where on they pay."""

from __future__ import annotations

import pytest

from bench.plan.answer import answer
from bench.plan.config import Cluster, Recovery, Save
from bench.plan.formulas import MONTH_HOURS, mtbf_s
from bench.plan.savings import OPTIONS, TODAY, Breakeven, breakeven, goodput, saved_share
from tests.plan.made import failures, plan

FREE = {"in_job_overhead_share": 0.0, "in_process_overhead_share": 0.0}


def answered(**changes):
    return answer(plan(**changes))


def only_software(**changes):
    causes = [{"cause": "bug", "count": 1, "class": "software"}]
    return failures(causes=causes, **changes)


def test_at_512_gpus_ten_instead_of_270_seconds_save_an_eighth_of_a_percent_if_they_help_every_failure():
    found = answered(
        failures=only_software(per_1000_node_days=6.5), save=Save(blocking_s=1.0), recovery=Recovery(**FREE)
    )
    share = found.saving("in-process restart").share
    assert share == pytest.approx(0.00125, rel=0.03)
    assert found.saving("in-process restart").gpu_hours_a_month == pytest.approx(share * 512 * MONTH_HOURS)


def test_a_fault_free_price_of_a_fifth_of_a_percent_reverses_that():
    recovery = Recovery(in_process_overhead_share=0.002)
    found = answered(failures=only_software(per_1000_node_days=6.5), save=Save(blocking_s=1.0), recovery=recovery)
    each = found.saving("in-process restart")
    assert each.share < 0
    assert each.breakeven_overhead_share == pytest.approx(0.00125, rel=0.03)


def test_a_priced_layer_pays_from_the_failure_rate_at_which_it_earns_its_price():
    recovery = Recovery(in_process_overhead_share=0.002, in_job_overhead_share=0.0)
    pays = (
        answered(failures=only_software(), save=Save(blocking_s=1.0), recovery=recovery)
        .saving("in-process restart")
        .pays
    )
    assert pays.pays == "from"
    assert pays.rate is not None
    assert pays.nodes is not None
    assert 260 / mtbf_s(64, pays.rate) == pytest.approx(0.002, rel=0.05)
    assert pays.nodes * 5.0 == pytest.approx(pays.rate * 64)


def test_at_its_break_even_a_layer_saves_nothing():
    recovery = Recovery(in_process_overhead_share=0.002, in_job_overhead_share=0.0)
    found = answered(failures=only_software(), save=Save(blocking_s=1.0), recovery=recovery).inputs
    option = OPTIONS["in-process restart"]
    pays = breakeven(found.values, found.background, option, found.period_s)
    assert pays.rate is not None
    at = {**found.values, "failures.per_1000_node_days": pays.rate}
    assert saved_share(at, found.background, option, found.period_s) == pytest.approx(0, abs=1e-9)


def test_a_layer_without_a_price_pays_at_any_rate_and_one_that_is_slower_at_none():
    free = answered(recovery=Recovery(**FREE)).saving("in-job restart")
    assert (free.pays, free.pays_if_dear) == (Breakeven("at any rate"), None)
    slower = answered(recovery=Recovery(in_job_s=900.0, **FREE)).saving("in-job restart")
    assert slower.pays == Breakeven("at no rate")
    assert slower.share < 0


def test_an_unmeasured_price_is_looked_at_from_its_upper_end_as_well():
    each = answered().saving("in-job restart")
    assert each.pays.pays == "at any rate"
    assert each.pays_if_dear is not None
    assert each.pays_if_dear.pays == "from"
    assert each.low < 0 < each.share


def test_layers_together_save_no_less_than_each_alone_when_they_cost_nothing():
    found = answered(cluster=Cluster(spares=1, price_per_gpu_hour=4.0), recovery=Recovery(**FREE))
    alone = [found.saving(name).share for name in ("asynchronous saves", "in-job restart", "in-process restart")]
    assert found.saving("all together").share >= max(alone)
    assert found.saving("all together").share <= sum(alone) + 1e-6


def test_without_a_spare_node_in_job_restart_saves_only_on_software_causes():
    rate = 1 / mtbf_s(64, 5.0)
    without, spare = (
        answered(
            cluster=Cluster(spares=spares, price_per_gpu_hour=4.0, repair_s=60.0),
            recovery=Recovery(**FREE),
            save=Save(blocking_s=1.0),
        )
        for spares in (0, 1)
    )
    assert without.saving("in-job restart").share == pytest.approx(0.15 * 253 * rate, rel=0.05)
    assert spare.saving("in-job restart").share == pytest.approx(253 * rate, rel=0.05)


def test_savings_in_gpus_hours_and_money_are_one_figure_in_three_units():
    found = answered()
    each = found.saving("asynchronous saves")
    today = goodput(found.inputs.values, found.inputs.background, TODAY, found.inputs.period_s)
    assert each.money_a_month == pytest.approx(4.0 * each.gpu_hours_a_month)
    assert (512 + each.gpus) * today == pytest.approx(512 * (today + each.share))
    assert each.gpus_low <= each.gpus <= each.gpus_high


def test_a_synchronous_save_has_nothing_to_gain_from_itself():
    assert answered(save=Save(blocking_s=5.0)).saving("asynchronous saves").share == 0
