"""No figure of an extrapolated size goes without its label, or without a band."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bench.plan.config import Cluster, Save, Storage
from bench.plan.inputs import gather
from bench.plan.sizes import SIZES, size_rows
from tests.plan.made import plan, result

PLANS = {
    "all assumed": plan(),
    "a save described by hand": plan(save=Save(0.5, 1.0, 20.0)),
    "a stated store": plan(storage=Storage(write_bytes_per_s=50e9)),
    "another size": plan(cluster=Cluster(nodes=100)),
    "spares": plan(cluster=Cluster(spares=2)),
}


@pytest.mark.parametrize("case", PLANS)
def test_every_size_but_the_planned_one_is_labelled_and_has_bands(case):
    rows = size_rows(gather(PLANS[case], []), "assumed")
    planned = PLANS[case].cluster.nodes
    assert {row.kind for row in rows if row.nodes != planned} == {"extrapolated"}
    assert [row.kind for row in rows if row.nodes == planned] == ["assumed"]
    for row in rows:
        if row.nodes != planned:
            assert row.today.low < row.today.high
            assert row.together.low < row.together.high


def test_a_planned_size_that_rests_on_another_measured_one_has_bands_too(tmp_path):
    rows = size_rows(gather(plan(), [result(tmp_path)]), "extrapolated")
    assert {row.kind for row in rows} == {"extrapolated"}
    assert all(row.today.low < row.today.high and row.together.low < row.together.high for row in rows)


def test_the_rows_span_16_to_100_000_gpus_and_hold_the_planned_size():
    rows = size_rows(gather(plan(cluster=Cluster(nodes=100)), []), "assumed")
    gpus = [row.gpus for row in rows]
    assert gpus == sorted({*SIZES, 800})
    assert (gpus[0], gpus[-1]) == (16, 100_000)


def test_more_nodes_fail_more_often_and_are_less_useful():
    rows = size_rows(gather(plan(), []), "assumed")
    for smaller, larger in pairwise(rows):
        assert larger.mtbf_s == pytest.approx(smaller.mtbf_s * smaller.nodes / larger.nodes)
        assert larger.together.high <= smaller.together.high + 1e-6
    assert rows[-1].today.high < rows[0].today.low


def test_no_extrapolated_write_is_faster_than_a_stated_store(tmp_path):
    store = Storage(write_bytes_per_s=1e9)
    tight = size_rows(gather(plan(storage=store), [result(tmp_path)]), "extrapolated")
    free = size_rows(gather(plan(), [result(tmp_path)]), "extrapolated")
    assert all(a.today.high < b.today.high for a, b in zip(tight[-4:], free[-4:], strict=True))
