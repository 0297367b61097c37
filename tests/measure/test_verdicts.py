from __future__ import annotations

from dataclasses import replace

import pytest

from bench.measure.shares import Period
from bench.measure.verdicts import async_efficiency_99, sync_share_40, verdicts
from bench.schema import Arm, Figure

PERIOD = Period("your period (job.period_s)", wall_s=60.0)


def figure(low: float, high: float, interval: str = "ci95") -> Figure:
    return Figure((low + high) / 2, low, high, 12, interval)  # type: ignore[arg-type]


def sync(low: float, high: float) -> Arm:
    return Arm(
        "sync_local",
        "sync_local",
        12,
        3,
        figure(25.0, 26.0),
        share=figure(low, high),
        period_s=60.0,
        period_at_40_s=63.75,
    )


def background(stall: tuple[float, float], cost: tuple[float, float] | None) -> Arm:
    share = figure(*cost) if cost else None
    return Arm("nvrx_async", "nvrx_async", 12, 3, share=share, stall_share=figure(*stall), period_s=60.0)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.40, 0.45, "holds"),
        (0.39, 0.45, "not_decided"),
        (0.30, 0.3999, "does_not_hold"),
        (0.30, 0.40, "not_decided"),
    ],
)
def test_the_sync_claim_is_decided_by_the_ends_of_the_interval(low: float, high: float, outcome: str) -> None:
    verdict = sync_share_40(sync(low, high), PERIOD)
    assert verdict.outcome == outcome
    assert verdict.published == "up to 40 % of the run"


def test_the_sync_text_says_whose_period_and_below_which_one_it_exceeds_forty_percent() -> None:
    text = sync_share_40(sync(0.42, 0.44), PERIOD).text
    assert "your period (job.period_s) of 60 s" in text
    assert "43.0 % (95 % interval 42.0 to 44.0 %, n = 12)" in text
    assert "exceeds 40 % at periods below 63.8 s (2.5 K)" in text
    assert "holds here" in text


def test_a_period_that_cannot_be_kept_is_said_to_be_filled_or_lengthened() -> None:
    crowded = replace(sync(1.0, 1.0), saturated=True)
    assert "your period (job.period_s) of 60 s, which saving alone fills, saving" in sync_share_40(crowded, PERIOD).text
    waiting = replace(crowded, period_s=90.0)
    assert "of 90 s, lengthened because saves wait for each other, saving" in sync_share_40(waiting, PERIOD).text


def test_a_range_decides_only_if_every_value_agrees() -> None:
    agreeing = Arm("sync_local", "sync_local", 3, 1, figure(1, 2), share=figure(0.1, 0.2, "range"))
    torn = Arm("sync_local", "sync_local", 3, 1, figure(1, 2), share=figure(0.1, 0.5, "range"))
    assert sync_share_40(agreeing, PERIOD).outcome == "does_not_hold"
    assert sync_share_40(torn, PERIOD).outcome == "not_decided"
    assert "range 10.0 to 20.0 %" in (sync_share_40(agreeing, PERIOD).measured or "")


@pytest.mark.parametrize(
    ("stall", "outcome"),
    [((0.001, 0.004), "holds"), ((0.005, 0.02), "not_decided"), ((0.02, 0.03), "does_not_hold")],
)
def test_the_async_claim_is_decided_on_the_blocking_time_as_published(stall: tuple[float, float], outcome: str) -> None:
    verdict = async_efficiency_99(background(stall, stall), PERIOD)
    assert verdict.outcome == outcome
    assert "disagrees" not in verdict.text
    assert "99.2-99.8 %" in verdict.published


def test_the_async_text_says_when_the_true_cost_disagrees() -> None:
    verdict = async_efficiency_99(background((0.001, 0.004), (0.05, 0.07)), PERIOD)
    assert verdict.outcome == "holds"
    assert (
        "The true cost K disagrees: by 1 - K / P the efficiency is 94.00 % (95 % interval 93.00 to 95.00 %"
        in verdict.text
    )
    assert "does not hold here" in verdict.text
    assert "was not measured" in async_efficiency_99(background((0.001, 0.004), None), PERIOD).text


def test_what_is_not_there_is_not_measured() -> None:
    for verdict in verdicts([], PERIOD):
        assert (verdict.outcome, verdict.measured) == ("not_measured", None)
        assert "not part of this result" in verdict.text
    empty = Arm("sync_local", "sync_local", 0, 0)
    assert "no measured save" in sync_share_40(empty, PERIOD).text


def test_each_claim_is_judged_once() -> None:
    found = verdicts([sync(0.1, 0.2), background((0.001, 0.002), (0.1, 0.2))], PERIOD)
    assert [(v.claim, v.outcome) for v in found] == [
        ("sync_share_40", "does_not_hold"),
        ("async_efficiency_99", "holds"),
    ]
