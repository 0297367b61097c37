"""Notebooks over several results: a series of sizes, a comparison of two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.errors import BadInput
from bench.report.several import open_comparison, open_series
from tests.measure.results import BASE, slower
from tests.report.made import checkpoint_result


@pytest.fixture(scope="module")
def sizes(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sizes")
    halves = {name: replace(spec, shard_bytes=spec.shard_bytes // 2) for name, spec in BASE.arms.items()}
    return [checkpoint_result(folder / "one"), checkpoint_result(folder / "two", replace(BASE, nodes=2, arms=halves))]


@pytest.fixture(scope="module")
def dearer(tmp_path_factory) -> Path:
    return checkpoint_result(tmp_path_factory.mktemp("dearer") / "result", slower(BASE, "sync_local", 1.5))


def test_a_series_shows_every_size_and_draws_nothing_between_them(sizes):
    report = open_series([str(path) for path in reversed(sizes)])
    assert report.title == "Series over 1 x 2, 2 x 2"
    html = report.figure().html
    assert "a write of nvrx_async takes" in html
    assert "nothing is drawn between or beyond them" in html
    assert report.arms().html.count("<h3>") == 3
    assert "write_time_flat" in report.claims().html
    assert report.status().html.count("<tr>") == 3
    assert list(report.drawings) == ["over_sizes"]


def test_results_that_do_not_belong_together_are_refused(sizes):
    with pytest.raises(BadInput, match="names a result twice"):
        open_series([sizes[0], sizes[0]])


def test_a_comparison_says_what_rose_and_what_else_was_different(sizes, dearer):
    report = open_comparison(base=str(sizes[0]), new=str(dearer))
    html = report.figure().html
    assert "sync_local: blocking S higher" in html
    assert "Ratios of medians" in html
    assert "sync_local" in report.table().html
    assert "Nothing on record differs" in report.differences().html


def test_two_arms_of_one_result_are_compared_pair_by_pair(sizes):
    report = open_comparison(run=str(sizes[0]), base_arm="sync_local", new_arm="nvrx_async")
    assert report.title == "nvrx_async against sync_local"
    assert "pairs" in report.figure().html
    assert "Two arms of one result" in report.differences().html


def test_unlike_work_is_refused_unless_asked_for(sizes):
    with pytest.raises(BadInput, match="did other work than base"):
        open_comparison(base=str(sizes[0]), new=str(sizes[1]))
    report = open_comparison(base=str(sizes[0]), new=str(sizes[1]), allow_unlike=True)
    assert "UNLIKE WORK, compared as asked" in report.head().html


def test_what_is_not_given_is_asked_for():
    with pytest.raises(BadInput, match="base: is missing"):
        open_comparison()
