"""The published tables, as rows of text by column; lines that begin with # name their sources."""

from __future__ import annotations

import csv
from math import floor, log10
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"


def table(name: str) -> list[dict[str, str]]:
    lines = [line for line in (DATA / f"{name}.csv").read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def digits_agree(value: float, printed: float, digits: int) -> bool:
    """They differ by at most half a unit of so many significant digits."""
    return abs(value - printed) <= 0.5 * 10 ** (floor(log10(abs(printed))) - digits + 1)
