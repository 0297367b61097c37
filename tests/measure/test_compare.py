from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.measure.accounted import Accounted
from bench.measure.compare import Compared, Comparison, Quantity, paired, unpaired
from bench.measure.events import read_launches
from bench.schema import Figure
from tests.measure.results import BASE, result, slower
from tests.measure.streams import ArmSpec, Scenario, run_json, write_launch

COST = Quantity("cost_s", "true cost K", "s", signed=True, cost=True)


def row(comparison: Comparison, quantity: str, arm: str = "sync_local") -> Compared:
    return next(each for each in comparison.rows if (each.arm, each.quantity.name) == (arm, quantity))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Accounted:
    return result(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def dear(tmp_path_factory: pytest.TempPathFactory) -> Accounted:
    """sync_local takes 1.5 times as long; measured in other launches."""
    return result(tmp_path_factory.mktemp("dear"), slower(BASE, "sync_local", 1.5), launches=4)


# --- two results
def test_a_result_does_not_differ_from_itself(base: Accounted) -> None:
    found = unpaired(base, base)
    assert found.pairing == "unpaired"
    resolved = [each for each in found.rows if each.outcome in ("higher", "lower")]
    assert resolved == []
    for each in found.rows:
        figure, even = (each.ratio, 1.0) if each.ratio is not None else (each.difference, 0.0)
        assert figure is None or figure.median == pytest.approx(even, abs=1e-9)
    assert not found.worse(0.0)


def test_what_became_dearer_is_higher_by_the_right_ratio(base: Accounted, dear: Accounted) -> None:
    found = unpaired(base, dear)
    for name in ("cost_s", "blocking_s", "durable_s"):
        each = row(found, name)
        assert each.ratio is not None
        assert each.ratio.low < 1.5 < each.ratio.high
        assert each.ratio.median == pytest.approx(1.5, abs=0.06)
        assert (each.outcome, each.ratio.interval) == ("higher", "ci95")
    assert row(found, "write_bytes_per_s").outcome == "lower"
    assert row(found, "cost_s", "nvrx_async").outcome == "not_resolved"
    assert {(each.arm, each.quantity.name) for each in found.worse(0.05)} == {
        ("sync_local", "cost_s"),
        ("sync_local", "share"),
    }
    assert not found.worse(0.7)


def test_exchanging_the_two_inverts_every_ratio(base: Accounted, dear: Accounted) -> None:
    up, down = row(unpaired(base, dear), "blocking_s"), row(unpaired(dear, base), "blocking_s")
    assert up.ratio is not None
    assert down.ratio is not None
    assert 1 / down.ratio.median == pytest.approx(up.ratio.median)
    assert 1 / down.ratio.high == pytest.approx(up.ratio.low)
    assert down.outcome == "lower"


def test_shares_are_stated_at_the_period_of_the_base_on_both_sides(base: Accounted, tmp_path: Path) -> None:
    job = {"step_s": 0.5, "interval_steps": 10, "period_s": None}
    other = result(tmp_path, job=job)
    found = row(unpaired(base, other), "share")
    assert found.base is not None
    assert found.new is not None
    assert found.new.median == pytest.approx(found.base.median, rel=0.05)
    assert other.arms["sync_local"].share is not None
    assert other.arms["sync_local"].share.median < found.new.median / 3  # at its own, longer period


def test_training_alone_is_compared_once_by_its_step_and_the_control_arm_not_at_all(base: Accounted) -> None:
    found = unpaired(base, base)
    assert [each.quantity.name for each in found.rows if each.arm == "training alone"] == ["control_step_s"]
    assert not any(each.arm == "none" for each in found.rows)
    step = row(found, "control_step_s", "training alone")
    assert step.base is not None
    assert step.base.median == pytest.approx(0.1)


def test_a_cost_that_is_not_resolved_from_nought_is_compared_in_seconds(tmp_path: Path) -> None:
    free = replace(BASE, arms={"none": ArmSpec(), "nvrx_async": ArmSpec(0.0, 0.3)})
    arms = ("none", "nvrx_async")
    one = result(tmp_path / "one", free, arms=arms)
    costly = replace(free, arms={**free.arms, "nvrx_async": ArmSpec(0.2, 0.3)})
    other = result(tmp_path / "other", costly, arms=arms)
    found = row(unpaired(one, other), "cost_s", "nvrx_async")
    assert found.ratio is None
    assert found.difference is not None
    assert found.difference.median == pytest.approx(0.2, abs=0.01)
    assert found.outcome == "higher"
    assert found.exceeds(0.05)
    assert row(unpaired(other, one), "cost_s", "nvrx_async").outcome == "lower"


def test_arms_of_one_result_only_are_named_and_left_out(base: Accounted, tmp_path: Path) -> None:
    found = unpaired(base, result(tmp_path, arms=("none", "sync_local")))
    assert found.left_out == ["nvrx_async"]
    assert {each.arm for each in found.rows} == {"training alone", "sync_local"}


def test_one_launch_a_side_says_nothing_of_other_launches(tmp_path: Path) -> None:
    scenario = replace(BASE, cycles=9)
    one, other = (result(tmp_path / name, scenario, launches=1) for name in ("one", "other"))
    found = row(unpaired(one, other), "blocking_s")
    assert found.ratio is not None
    assert found.ratio.interval == "within_run"


# --- by rule
def compared(ratio: Figure | None = None, difference: Figure | None = None, base: float = 1.0) -> Compared:
    return Compared("a", COST, Figure(base, base, base, 9, "ci95"), None, ratio, difference)


@pytest.mark.parametrize(
    ("low", "high", "outcome"), [(1.01, 1.2, "higher"), (0.8, 0.99, "lower"), (0.9, 1.1, "not_resolved")]
)
def test_only_an_interval_on_one_side_of_even_is_resolved(low: float, high: float, outcome: str) -> None:
    assert compared(ratio=Figure((low + high) / 2, low, high, 9, "ci95")).outcome == outcome
    assert compared(difference=Figure(0.0, low - 1, high - 1, 9, "ci95")).outcome == outcome
    assert compared().outcome == "not_measured"


def test_a_rise_above_the_limit_is_seen_whether_resolved_or_not() -> None:
    assert compared(ratio=Figure(1.06, 0.9, 1.2, 9, "ci95")).exceeds(0.05)
    assert not compared(ratio=Figure(1.04, 1.03, 1.05, 9, "ci95")).exceeds(0.05)
    assert compared(difference=Figure(0.06, 0.0, 0.1, 9, "ci95")).exceeds(0.05)
    assert not compared(difference=Figure(0.04, 0.0, 0.1, 9, "ci95")).exceeds(0.05)
    assert compared(difference=Figure(0.001, 0.0, 0.1, 9, "ci95"), base=-0.2).exceeds(0.05)
    assert not compared().exceeds(0.0)


# --- two arms of one result
def test_arms_of_one_result_are_compared_pair_by_pair(base: Accounted) -> None:
    found = paired(base, "sync_local", "nvrx_async")
    blocking = row(found, "blocking_s", "nvrx_async against sync_local")
    assert found.pairing == "paired"
    assert blocking.ratio is not None
    assert blocking.ratio.median == pytest.approx(0.02 / 0.25)  # the launch's factor cancels within a pair
    assert blocking.ratio.high - blocking.ratio.low < 1e-6
    assert (blocking.ratio.n, blocking.outcome) == (18, "lower")


def test_pairs_of_the_full_design_are_blocks(tmp_path: Path) -> None:
    full = Scenario(kind="full", interval=10, saves=6)
    specs = {"none": ArmSpec(), "sync_local": ArmSpec(0.4, 0.35), "nvrx_async": ArmSpec(0.1, 0.3)}
    for block in range(3):
        for number, (name, spec) in enumerate(specs.items()):
            index = 3 * block + number
            each = replace(full, arms={name: spec}, index=index, block=block)
            write_launch(tmp_path / str(index), each)
    whole = Accounted.of(run_json(replace(full, arms=specs)), read_launches(tmp_path))
    found = row(paired(whole, "sync_local", "nvrx_async"), "cost_s", "nvrx_async against sync_local")
    assert found.ratio is not None
    assert (found.ratio.n, found.ratio.median, found.ratio.interval) == (3, pytest.approx(0.25), "range")


def test_an_arm_against_one_that_costs_nothing_is_compared_in_seconds(base: Accounted) -> None:
    found = row(paired(base, "none", "sync_local"), "cost_s", "sync_local against none")
    assert found.ratio is None
    assert found.difference is not None
    assert found.difference.median == pytest.approx(0.25, abs=0.02)
