"""The rules that many fields share, and how they complain."""

from __future__ import annotations

from bench.errors import BadInput


def require(rule: bool, field_name: str, message: str) -> None:
    if not rule:
        raise BadInput(f"{field_name}: {message}")


def positive(name: str, value: float | int | None) -> None:
    if value is not None:
        require(value > 0, name, f"must be greater than 0, got {value}; give a positive number")
