"""Variants by name, without importing any other."""

from __future__ import annotations

import json

import pytest

from bench.errors import BadInput
from bench.registry import variant

FAMILY = {"reader": "json:JSONDecoder", "absent": "no_such_module:Class"}


def test_a_variant_is_imported_when_it_is_asked_for_and_no_other_one():
    assert variant(FAMILY, "reader", "family", "variant") is json.JSONDecoder


def test_an_unknown_variant_is_refused_with_the_field_and_near_names():
    with pytest.raises(BadInput, match=r"family\.kind: unknown variant 'raeder'; did you mean reader\?"):
        variant(FAMILY, "raeder", "family.kind", "variant")
