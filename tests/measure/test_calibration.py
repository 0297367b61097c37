"""The judge of the instrument: known figures pass, figures beyond the tolerance do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.measure.calibration import calibration_checks, expected
from bench.schema import Sample

KNOWN = {"block_s": 0.12, "durable_s": 0.46, "slowdown": 1.25}
STEP_S = 0.05
EXACT = Sample(
    launch=1, occasion=0, cycle=2, arm="synthetic", save=2, step=30, measured=True, blocking_s=0.12, durable_s=0.46,
    cost_s=0.195, hidden_s=0.075, control_step_s=0.05, during_steps=6, slowdown_share=0.2, period_s=None, arrive_s=0.0,
    peers_s=0.0, write_s=None, written_bytes=0, write_bytes_per_s=None, dirty_bytes=None,
)  # fmt: skip


def levels(*samples: Sample) -> dict[str, str]:
    return {c.name.removeprefix("calibration: "): c.level for c in calibration_checks(samples, KNOWN, STEP_S)}


def test_the_known_cost_counts_the_steps_that_begin_during_the_write() -> None:
    figures = expected(KNOWN, STEP_S)
    assert figures["cost_s"] == pytest.approx(0.12 + 6 * 0.0125)  # 0.34 s of write hold 6 begins of 0.0625 s steps
    assert figures["slowdown_share"] == pytest.approx(0.2)


def test_exact_figures_pass() -> None:
    assert set(levels(EXACT).values()) == {"ok"}


@pytest.mark.parametrize("name", ["blocking_s", "durable_s", "cost_s", "control_step_s"])
def test_a_figure_more_than_one_percent_and_two_milliseconds_off_is_invalid(name: str) -> None:
    known = expected(KNOWN, STEP_S)[name]
    off = max(0.01 * known, 0.002)
    assert levels(replace(EXACT, **{name: known + 0.9 * off}))[name] == "ok"
    assert levels(replace(EXACT, **{name: known + 1.1 * off}))[name] == "invalid"


def test_the_median_is_judged_not_a_single_save() -> None:
    late = replace(EXACT, blocking_s=0.3)
    assert levels(EXACT, EXACT, late)["blocking_s"] == "ok"


def test_a_save_without_the_figure_and_no_save_at_all_are_invalid() -> None:
    assert levels(EXACT, replace(EXACT, durable_s=None))["durable_s"] == "invalid"
    assert set(levels().values()) == {"invalid"}
