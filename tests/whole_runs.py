"""What the end of a whole run tells a test on a machine that other programs use as well."""

from __future__ import annotations

import json
from pathlib import Path

NOISE = {"unattributed"}  # a rank that did not get the processor between two spans: the machine, not the suite


def carried_through(code: int, result: Path) -> bool:
    """Whether a run ended as it should: its result is valid, or invalid for nothing but the machine's noise."""
    summary = result / "summary.json"
    if not summary.is_file():
        return False
    checks = json.loads(summary.read_text())["checks"]
    invalid = {check["name"] for check in checks if check["level"] == "invalid"}
    return code == (1 if invalid else 0) and invalid <= NOISE
