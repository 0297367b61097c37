"""The share against the period: arms whose cost is not above 0 are left out by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.measure.accounted import Accounted
from bench.report.figures import draw
from bench.report.figures.share_period import FLOOR, _shares
from bench.schema import Figure


def test_the_curve_is_k_over_p_and_bends_where_saves_wait_for_each_other():
    periods = np.array([0.5, 1.0, 4.0, 10_000.0])
    assert _shares(periods, 0.2, None) == pytest.approx([0.4, 0.2, 0.05, FLOOR])
    waiting = _shares(periods, 0.2, 2.0)
    assert waiting[0] == pytest.approx((2.0 - 0.3) / 2.0), "P cannot be shorter than L: of 2 s, 0.3 s are compute"
    assert waiting[2] == pytest.approx(0.05)


def test_an_arm_without_a_resolved_cost_is_named_and_not_drawn(checkpoints):
    nothing = Figure(-0.01, -0.02, 0.01, 12, "ci95")
    arms = [replace(arm, cost_s=nothing) if arm.name == "nvrx_async" else arm for arm in checkpoints.summary.arms]
    result = Accounted(checkpoints.run, [], replace(checkpoints.summary, arms=arms), [], [])
    assert "Not drawn, as K is not above 0: nvrx_async." in draw("share_period", result).caption


def test_the_message_says_where_40_percent_begin(checkpoints):
    says = draw("share_period", checkpoints).says
    assert "sync_local reaches 40 % only below a period of" in says
    assert "(2.5 K)" in says
