from __future__ import annotations

import pytest

from bench.measure.crossover import crossover
from bench.measure.sweep import Point
from bench.schema import Figure


def figure(value: float) -> Figure:
    return Figure(value, value, value, 9, "ci95")


def points(*pairs: tuple[float, bool]) -> list[Point]:
    """(compute time, saturated) by interval."""
    return [Point("a", i, compute, compute, None, None, waits, None) for i, (compute, waits) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("pairs", "outcome", "measured"),
    [
        ([(0.8, True), (1.2, False)], "holds", "between 0.9 and 1.3 s"),
        ([(0.3, True), (0.5, False)], "does_not_hold", "between 0.4 and 0.6 s"),
        ([(1.6, True), (4.0, False)], "does_not_hold", "between 1.7 and 4.1 s"),
        ([(0.3, True), (1.2, False)], "not_decided", "between 0.4 and 1.3 s"),
        ([(0.1, False), (0.8, True), (1.0, False), (1.2, False)], "holds", "between 0.9 and 1.1 s"),
        ([(0.8, True), (0.7, False)], "not_measured", None),
        ([(0.8, False), (1.2, False)], "not_measured", None),
        ([(0.8, True)], "not_measured", None),
        ([], "not_measured", None),
    ],
)
def test_the_crossover_is_held_against_the_time_of_a_write(
    pairs: list[tuple[float, bool]], outcome: str, measured: str | None
) -> None:
    found = crossover("a", points(*pairs), figure(0.1), figure(1.0))
    assert (found.outcome, found.measured) == (outcome, measured)
    assert found.text.endswith(".")


def test_without_k_or_l_nothing_is_measured() -> None:
    known = points((0.8, True), (1.2, False))
    assert crossover("a", known, None, figure(1.0)).outcome == "not_measured"
    assert crossover("a", known, figure(0.1), None).outcome == "not_measured"
