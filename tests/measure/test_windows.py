from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.measure.windows import Coverage, Window, pieces, spans_of

TIMES = st.floats(0, 100)


def window(begin: float, end: float, name: str) -> Window:
    return Window(begin, end, (None, name))


def test_earlier_windows_take_precedence_and_pieces_do_not_overlap() -> None:
    found = pieces([window(2, 4, "a"), window(1, 6, "b"), window(0, 3, "c")], 0, 5)
    assert sorted((p.begin, p.end, p.label[1]) for p in found) == [(0, 1, "c"), (1, 2, "b"), (2, 4, "a"), (4, 5, "b")]


@given(st.lists(st.tuples(TIMES, TIMES), max_size=8))
def test_pieces_lie_within_the_bounds_and_cover_each_moment_at_most_once(bounds: list[tuple[float, float]]) -> None:
    found = pieces([window(min(pair), max(pair), "w") for pair in bounds], 10, 90)
    ordered = sorted(found, key=lambda piece: piece.begin)
    assert all(10 <= piece.begin < piece.end <= 90 for piece in ordered)
    assert all(a.end <= b.begin for a, b in pairwise(ordered))


@given(st.lists(st.tuples(TIMES, TIMES), max_size=8), TIMES, TIMES)
def test_coverage_counts_every_span_as_far_as_it_lies_within(
    bounds: list[tuple[float, float]], a: float, b: float
) -> None:
    spans = [(min(pair), max(pair)) for pair in bounds]
    coverage = Coverage(*(np.array([span[end] for span in spans], dtype=np.float64) for end in (0, 1)))
    begin, end = min(a, b), max(a, b)
    covered = sum(max(min(end, t1) - max(begin, t0), 0.0) for t0, t1 in spans)
    assert coverage.free(begin, end) == pytest.approx(end - begin - covered, abs=1e-9)


def test_a_doubled_span_leaves_less_than_nothing_free() -> None:
    assert Coverage(*spans_of([{"t0": 1, "t1": 3}] * 2)).free(0, 3) == pytest.approx(-1)
