"""Suggestions of names that the user may have meant."""

from __future__ import annotations

from bench.errors import near


def test_close_names_are_suggested_best_first():
    assert near("ckpt_smok", ["ckpt_local", "ckpt_smoke", "calibrate"]).startswith("did you mean ckpt_smoke")


def test_all_names_are_listed_where_none_is_close():
    assert near("zzz", ["quick", "full"]) == "known: full, quick"


def test_a_long_list_is_not_printed():
    assert near("zzz", [f"key_{number}" for number in range(21)]) == "it is not close to any known one"
