"""Which GPUs a process may use, and which of them CUDA shows: refused ones, CUDA_VISIBLE_DEVICES, slices."""

from __future__ import annotations

import pytest

from bench.telemetry.devices import allowed, shown, used_bytes, visible
from tests.telemetry.fake_nvml import FakeNvml, PartOfANode, Sliced

UUIDS = ["GPU-aa11", "GPU-ab22", "GPU-cc33", "GPU-dd44"]


@pytest.mark.parametrize(
    ("variable", "places"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [2, 0]),
        ("", []),
        ("1,9,0", [1]),
        ("GPU-cc33,GPU-aa", [2, 0]),
        ("GPU-a,0", []),
        ("-1,2", []),
    ],
)
def test_local_ranks_follow_the_order_in_which_cuda_shows_gpus(variable, places):
    assert visible(UUIDS, variable) == places


def test_a_gpu_that_belongs_to_another_job_is_left_out_and_cuda_counts_without_it():
    library = PartOfANode()
    assert [device.number for device in allowed(library)] == [1, 3]
    assert [device.number for device in shown(library, None)] == [1, 3]
    assert [device.number for device in shown(library, "1,0")] == [3, 1]
    assert [device.number for device in shown(library, "GPU-d0")] == [3]


def test_of_slices_cuda_shows_one_and_no_whole_gpu_beside_it():
    library = Sliced()
    (chosen,) = shown(library, None)
    assert (chosen.number, chosen.uuid, chosen.slice) == (1, "MIG-x", True)
    assert [device.uuid for device in shown(library, "MIG-y,MIG-x")] == ["MIG-y"]
    assert [device.uuid for device in shown(library, "0")] == ["GPU-a0"]
    assert shown(library, "MIG-unknown") == []


def test_memory_of_a_whole_gpu_that_is_cut_is_not_told_and_that_of_a_slice_is():
    library = Sliced()
    assert used_bytes(library, allowed(library)[1]) is None
    assert used_bytes(library, shown(library, None)[0]) == 7 << 30


def test_a_gpu_that_is_to_be_cut_and_has_no_slices_yet_is_none():
    class Uncut(Sliced):
        slices = ()

    assert [device.uuid for device in shown(Uncut(), None)] == ["GPU-a0"]


def test_a_driver_without_gpus_shows_none():
    class Empty(FakeNvml):
        count = 0

    assert shown(Empty(), None) == []
