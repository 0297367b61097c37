"""The recommendation follows from what is resolved, and names the input that would change it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.measure.accounted import Accounted
from bench.measure.compare import QUANTITIES, Compared
from bench.report.data import read_result
from bench.report.page.advice import _saved, advice
from bench.schema import Figure
from tests.measure.results import BASE
from tests.report.made import checkpoint_result


def of(result: Accounted, **changes) -> Accounted:
    return Accounted(result.run, result.launches, replace(result.summary, **changes), result.samples, result.ledger)


def test_the_cheaper_way_is_recommended_with_what_it_frees(checkpoints):
    found = advice(of(checkpoints, device="cuda"))
    assert found.text.startswith("save with nvrx_async: pair by pair it frees ")
    assert "GPU-hours a month" in found.text
    assert found.input.startswith("the period: the dearer of the two costs 1 % at a period of ")


def test_what_was_measured_without_gpus_is_for_this_machine_only(checkpoints):
    found = advice(checkpoints)
    assert found.text.startswith("For this machine: save with")
    assert found.input.startswith("the hardware: this was measured on CPU ranks, and decides nothing about GPUs.")
    assert "emulated nodes" in advice(of(checkpoints, rehearsal=True)).input


def test_equal_costs_are_not_decided(tmp_path):
    same = {**BASE.arms, "nvrx_async": replace(BASE.arms["nvrx_async"], block_s=0.2)}
    result = read_result(checkpoint_result(tmp_path / "same", replace(BASE, arms=same), noise=0.05), "run")
    found = advice(of(result, device="cuda"))
    assert found.text.startswith("no difference between sync_local and nvrx_async is resolved")
    assert found.input == "the number of launches"


def test_a_single_pair_decides_nothing(tmp_path):
    result = read_result(checkpoint_result(tmp_path / "one", replace(BASE, cycles=3), launches=1), "run")
    found = advice(of(result, device="cuda"))
    assert found.text == "none: sync_local and nvrx_async were measured in turns 1 time only."


def test_below_one_percent_nothing_is_to_be_changed(checkpoints):
    small = Figure(0.004, 0.003, 0.005, 18, "ci95")
    arms = [replace(arm, share=small) for arm in checkpoints.summary.arms]
    assert advice(of(checkpoints, arms=arms, device="cuda")).text.startswith("keep what you have")


def test_an_invalid_result_recommends_nothing(checkpoints):
    assert advice(of(checkpoints, status="invalid")).text.startswith("None: this result is invalid.")


def test_without_two_ways_of_saving_there_is_nothing_to_choose(checkpoints, recoveries):
    arms = [arm for arm in checkpoints.summary.arms if arm.name != "nvrx_async"]
    assert advice(of(checkpoints, arms=arms)).text.startswith("None: the choice needs the other kind")
    assert "bench plan" in advice(recoveries).text


@pytest.mark.parametrize(
    ("row", "low", "high"),
    [
        ({"ratio": Figure(0.5, 0.4, 0.6, 9, "ci95")}, 0.04, 0.06),
        ({"difference": Figure(-0.05, -0.06, -0.04, 9, "ci95")}, 0.04, 0.06),
        ({"difference": Figure(0.05, 0.04, 0.06, 9, "ci95")}, 0.04, 0.06),
    ],
)
def test_what_is_saved_is_told_with_its_interval_and_never_negative(row, low, high):
    base = Figure(0.1, 0.09, 0.11, 9, "ci95")
    saved = _saved(Compared("a", QUANTITIES[0], base, base, **row))
    assert (saved.median, saved.low, saved.high) == pytest.approx((0.05, low, high))
