from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.measure.limits import limited_by
from bench.schema import LIMITS, Sample

FIELDS = [name for name, field in Sample.__dataclass_fields__.items() if "None" in str(field.type)]
SAMPLE = Sample(
    **dict.fromkeys(FIELDS),
    launch=1,
    occasion=0,
    cycle=2,
    arm="a",
    save=2,
    step=1,
    measured=True,
    during_steps=0,
)
WRITTEN = replace(SAMPLE, durable_s=1.0, write_s=0.6, write_imbalance=1.1, phases={"stage": 0.2, "write": 0.6})

CASES: dict[str, tuple[dict[str, Any], float | None, float | None, str | None]] = {
    "a rank that writes much longer": ({"write_imbalance": 1.4}, 0.7, None, "slowest rank"),
    "a full store that serves ranks in turn": ({"write_imbalance": 1.9}, 0.95, None, "store"),
    "the store's own speed": ({}, 0.85, None, "store"),
    "the store before staging": ({"phases": {"stage": 0.7}}, 0.85, None, "store"),
    "a copy of more than half of L": ({"phases": {"stage": 0.6}}, 0.4, None, "staging"),
    "a copy at the speed of the link": ({"phases": {"stage": 0.45}, "write_s": 0.4}, 0.4, 0.9, "staging"),
    "a fast copy shorter than the write": ({"phases": {"stage": 0.45}}, 0.4, 0.9, "serialisation"),
    "a slow copy of less than half": ({"phases": {"stage": 0.45}, "write_s": 0.4}, 0.4, 0.3, "serialisation"),
    "none of these": ({}, 0.4, None, "serialisation"),
    "no staging at all": ({"phases": {"write": 0.9}}, 0.4, None, "serialisation"),
    "a store of unknown speed": ({}, None, None, None),
}


@pytest.mark.parametrize("case", CASES)
def test_what_bounds_an_arm_is_the_first_rule_that_applies(case: str) -> None:
    changes, storage, staging, word = CASES[case]
    found = limited_by([replace(WRITTEN, **changes)] * 3, storage, staging)
    assert found == word
    assert found is None or found in LIMITS


def test_one_odd_save_does_not_name_the_limit() -> None:
    samples = [WRITTEN, replace(WRITTEN, write_imbalance=9.0), WRITTEN]
    assert limited_by(samples, 0.4, None) == "serialisation"


def test_an_arm_that_writes_nothing_is_not_limited() -> None:
    assert limited_by([SAMPLE] * 3, None, None) is None
    assert limited_by([], 0.4, None) is None
