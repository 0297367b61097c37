"""The rules that many fields share, and how they complain."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

from bench.errors import BadInput


def require(rule: bool, field_name: str, message: str) -> None:
    if not rule:
        raise BadInput(f"{field_name}: {message}")


def positive(name: str, value: float | int | None) -> None:
    if value is not None:
        require(isfinite(value), name, f"must be a finite number, got {value}; give a positive one or null")
        require(value > 0, name, f"must be greater than 0, got {value}; give a positive number")


def zero_or_more(name: str, value: float | int | None) -> None:
    if value is not None:
        require(isfinite(value) and value >= 0, name, f"must be 0 or more, got {value}")


def finite(record: Any) -> None:
    """No number anywhere in `record` (of dicts and lists) is infinite or none at all: JSON has no word for it."""
    for key, value in _leaves(record, ""):
        require(not isinstance(value, float) or isfinite(value), key, f"must be a finite number, got {value}")


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each, key)
    else:
        yield key, value
