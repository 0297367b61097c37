"""Families of variants: a dict of names to "module:Class", so that naming a variant imports nothing of it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bench.errors import BadInput, near


def variant(registry: Mapping[str, str], name: str, field: str, what: str) -> Any:
    """The class behind `name`. Raises BadInput, naming `field`, with known names for an unknown `what`."""
    if name not in registry:
        raise BadInput(f"{field}: unknown {what} {name!r}; {near(name, registry)}")
    module, attribute = registry[name].split(":")
    return getattr(import_module(module), attribute)
