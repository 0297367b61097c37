"""Copies to the host: the judgement is arithmetic; the copies themselves need a GPU."""

from __future__ import annotations

import pytest

from bench.doctor import copies
from tests.doctor.cases import case, gpu, run


def test_copies_are_skipped_where_there_is_no_gpu_with_the_reason():
    assert [check.found for check in copies.examine(case())] == ["the run computes on CPUs"]
    assert [check.found for check in copies.examine(case(run(device="cuda")))] == ["no GPU"]


def test_the_slowest_of_all_at_once_sets_the_time_of_staging():
    check = copies.judge(50e9, [40e9, 30e9], 120_000_000_000)
    assert check.level == "ok"
    assert check.found == "one GPU 50.0 GB/s; 2 at once 30.0 GB/s for the slowest: staging a save takes 2.00 s or more"


def test_gpus_that_share_a_link_are_a_warning():
    assert copies.judge(50e9, [20e9] * 8, None).level == "warn"
    assert copies.judge(50e9, [50e9], None).found == "one GPU 50.0 GB/s"


@pytest.mark.slow
def test_a_copy_that_fails_is_a_failure_with_its_reason():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU, and its copy works")
    (check,) = copies.examine(case(run(device="cuda", ranks_per_node=1), gpus=[gpu()]))
    assert check.level == "fail"
    assert "a pinned copy failed: " in check.found
