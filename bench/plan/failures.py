"""A failure profile: causes with their counts, the class of each, and what a class needs before the job runs again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.errors import BadInput, near
from bench.plan.config import LAYERS, Failures

IN_PLACE = ("yes", "no", "unclear")


@dataclass(frozen=True)
class Class:
    """Causes that are recovered from in one way."""

    name: str
    share: float  # of all failures
    in_place: str  # can a restart on the same nodes help at all: yes | no | unclear
    layer: str  # the lowest recovery layer that brings the job back, given the nodes it needs


@dataclass(frozen=True)
class Profile:
    classes: tuple[Class, ...]

    @property
    def in_place_share(self) -> float:
        """Share of failures that surely need neither repair nor another node."""
        return sum(each.share for each in self.classes if each.in_place == "yes")

    @property
    def unclear_share(self) -> float:
        return sum(each.share for each in self.classes if each.in_place == "unclear")


def profile(failures: Failures) -> Profile:
    """Shares of the classes from the counts of their causes. BadInput names what does not fit together."""
    counts: dict[str, float] = dict.fromkeys(failures.classes, 0.0)
    for row in failures.causes:
        name, count = _cause(row)
        if name not in counts:
            raise BadInput(f"failures.causes: {row['cause']} has the unknown class {name!r}; {near(name, counts)}")
        counts[name] += count
    total = sum(counts.values())
    if total <= 0:
        raise BadInput("failures.causes: has no cause with a count above 0; list at least one")
    return Profile(tuple(_class(name, counts[name] / total, failures.classes[name]) for name in counts if counts[name]))


def _cause(row: Any) -> tuple[str, float]:
    if not isinstance(row, Mapping) or not {"cause", "count", "class"} <= set(row):
        raise BadInput(f"failures.causes: every cause needs cause, count and class, got {row!r}")
    count = row["count"]
    if isinstance(count, bool) or not isinstance(count, (int, float)) or not count >= 0:
        raise BadInput(f"failures.causes: the count of {row['cause']} must be 0 or more, got {count!r}")
    return str(row["class"]), float(count)


def _class(name: str, share: float, needs: Any) -> Class:
    if not isinstance(needs, Mapping) or set(needs) != {"in_place", "layer"}:
        raise BadInput(f"failures.classes.{name}: needs in_place and layer, got {needs!r}")
    _one_of(f"failures.classes.{name}.in_place", str(needs["in_place"]), IN_PLACE)
    _one_of(f"failures.classes.{name}.layer", str(needs["layer"]), LAYERS)
    return Class(name, share, str(needs["in_place"]), str(needs["layer"]))


def _one_of(key: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise BadInput(f"{key}: unknown value {value!r}; {near(value, known)}")
