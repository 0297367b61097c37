"""Failure profiles: the shipped ones hold the published counts, and what does not fit together is named."""

from __future__ import annotations

import pytest

from bench.__main__ import compose_plan
from bench.errors import BadInput
from bench.plan.failures import profile
from tests.plan.made import CAUSES, CLASSES, failures
from tests.plan.tables import table

PROFILES = {
    "llama3": "Llama 3 (16k H100)",
    "rsc1": "RSC-1 (16k A100)",
    "rsc2": "RSC-2 (8k A100)",
    "opt175b": "OPT-175B (992 A100)",
}


@pytest.mark.parametrize("name", PROFILES)
def test_a_shipped_profile_has_the_published_rate_and_its_source(name):
    rates = {row["cluster"]: float(row["failures_per_1000_node_days"]) for row in table("failure_rates")}
    found = compose_plan([f"failures={name}"]).failures
    assert found.name == name
    assert found.per_1000_node_days == rates[PROFILES[name]]
    assert found.source
    assert found.causes_source


def test_the_llama_3_profile_has_the_published_counts_cause_by_cause():
    found = compose_plan(["failures=llama3"]).failures
    assert {row["cause"]: row["count"] for row in found.causes} == {
        row["cause"]: int(row["count"]) for row in table("llama3_interruptions")
    }


def test_in_the_llama_3_table_15_percent_need_neither_repair_nor_another_node_and_23_with_the_network():
    found = profile(compose_plan(["failures=llama3"]).failures)
    assert found.in_place_share == pytest.approx(63 / 419)
    assert found.in_place_share + found.unclear_share == pytest.approx((63 + 35) / 419)
    assert f"{(63 + 35) / 419:.0%}" == "23%"


def test_shares_follow_the_counts():
    found = profile(failures())
    assert {each.name: each.share for each in found.classes} == {"software": 0.15, "network": 0.10, "hardware": 0.75}
    assert sum(each.share for each in found.classes) == pytest.approx(1)


def test_the_own_profile_asks_for_a_rate():
    with pytest.raises(BadInput, match=r"failures\.per_1000_node_days: is not stated"):
        compose_plan(["failures=own"])
    assert compose_plan(["failures=own", "failures.per_1000_node_days=4"]).failures.per_1000_node_days == 4


WRONG = {
    "an unknown class": ({"causes": [{"cause": "x", "count": 1, "class": "sofware"}]}, "x has the unknown class"),
    "a cause without a count": ({"causes": [{"cause": "x", "class": "software"}]}, "every cause needs"),
    "a negative count": ({"causes": [{"cause": "x", "count": -1, "class": "software"}]}, "must be 0 or more"),
    "a count that is a word": ({"causes": [{"cause": "x", "count": "many", "class": "software"}]}, "must be 0 or more"),
    "no cause": ({"causes": []}, "has no cause"),
    "an unknown layer": (
        {"classes": CLASSES | {"software": {"in_place": "yes", "layer": "agent"}}},
        "failures.classes.software.layer: unknown value",
    ),
    "an unknown answer": (
        {"classes": CLASSES | {"software": {"in_place": "maybe", "layer": "in_job"}}},
        "failures.classes.software.in_place: unknown value",
    ),
    "a class without a layer": ({"classes": CLASSES | {"software": {"in_place": "yes"}}}, "needs in_place and layer"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_profile_that_does_not_fit_together_is_refused(case):
    changes, message = WRONG[case]
    with pytest.raises(BadInput, match=message):
        profile(failures(**changes))


def test_a_class_that_no_cause_belongs_to_is_left_out():
    found = profile(failures(causes=CAUSES[:1]))
    assert [each.name for each in found.classes] == ["software"]
