"""KEY=VALUE words of the commands that need no Hydra, checked with the same one-line errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.errors import BadInput, near


def key_values(words: Sequence[str], known: Mapping[str, str]) -> dict[str, str]:
    """The words as a dict. `known`: each key with what it means. Raises BadInput."""
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or word.startswith("-"):
            raise BadInput(f"{word}: is no KEY=VALUE; keys: {', '.join(known)}")
        if key not in known:
            raise BadInput(f"{key}: no such key; {near(key, known)}")
        if key in found:
            raise BadInput(f"{key}: given twice; give it once")
        if not value:
            raise BadInput(f"{key}: has no value; give {key}=VALUE ({known[key]})")
        found[key] = value
    return found


def help_text(usage: Sequence[str], known: Mapping[str, str], codes: str) -> str:
    lines = [f"usage: {usage[0]}", *(f"       {line}" for line in usage[1:]), "", "keys:"]
    return "\n".join([*lines, *(f"  {key:12} {text}" for key, text in known.items()), "", f"exit codes: {codes}"])


def yes_or_no(key: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise BadInput(f"{key}: must be true or false, got {value!r}")
    return value.lower() == "true"


def percentage(key: str, value: str) -> float:
    """ "5%" as 0.05; a bare number could mean either, so it is refused."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", value)
    if match is None:
        raise BadInput(f"{key}: must be a percentage of 0 or more, e.g. {key}=5%, got {value!r}")
    return float(match[1]) / 100


def paths(key: str, value: str) -> list[Path]:
    """One path, or several as [A,B,C]."""
    listed = value[1:-1].split(",") if value.startswith("[") and value.endswith("]") else [value]
    names = [name.strip() for name in listed]
    if not all(names):
        raise BadInput(f"{key}: {value} has an empty entry; give {key}=PATH or {key}=[PATH,PATH]")
    return [Path(name) for name in names]
