"""GPUs against what the run asks of them; what NVML would say is made up, what follows from it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.config import Recovery, Train
from bench.doctor import gpus
from tests.doctor.cases import H100, LLAMA, VERSIONS, case, gpu, run
from tests.telemetry.fake_nvml import PartOfANode, Sliced

CUDA = run(device="cuda", num_nodes=1, ranks_per_node=8, model=LLAMA, train=Train(seq_len=4096))


def test_a_run_on_cpus_needs_none():
    (check,) = gpus.examine(case(gpus=[gpu()] * 2))
    assert check.level == "skip"
    assert "2 here stay unused" in check.found


def test_none_where_eight_are_needed_fails_with_the_ways_on():
    checks = {check.name: check for check in gpus.examine(case(CUDA, versions={"driver": None}))}
    assert (checks["GPUs"].level, checks["driver"].level) == ("fail", "fail")
    assert checks["GPUs"].found == "8 needed on this node, found: none"
    assert "cluster=emulated" in checks["GPUs"].remedy
    assert set(checks) == {"GPUs", "driver"}


def test_where_a_variable_hides_gpus_it_is_named():
    check = gpus.enough(case(CUDA, gpus=[gpu()] * 2, environ={"CUDA_VISIBLE_DEVICES": "0,1"}))
    assert check.level == "fail"
    assert check.found == f"8 needed on this node, found: 2 x {H100} (CUDA_VISIBLE_DEVICES=0,1 shows no others)"
    assert gpus.enough(case(CUDA, gpus=[gpu()] * 8)).level == "ok"


def test_spare_ranks_need_gpus_too():
    spare = replace(CUDA, recovery=Recovery(layer="in_process", reserve=1))
    check = gpus.enough(case(spare, gpus=[gpu()] * 8))
    assert (check.level, check.found) == ("fail", f"9 needed on this node, found: 8 x {H100}")
    assert "give ranks_per_node=7" in check.remedy


def test_gpus_of_two_models_are_a_warning_and_the_known_peak_is_named():
    assert gpus.alike(case(CUDA, gpus=[gpu()] * 2)).found == f"{H100}: 989 TFLOP/s dense in bf16"
    assert "predictions assume 989" in gpus.alike(case(CUDA, gpus=[gpu("NVIDIA A100-SXM4-80GB")])).found
    assert gpus.alike(case(CUDA, gpus=[gpu("Some Card")])).level == "ok"
    mixed = gpus.alike(case(CUDA, gpus=[gpu(), gpu("NVIDIA H200")]))
    assert mixed.level == "warn"


def test_a_state_that_cannot_fit_fails_before_it_is_tried():
    assert gpus.fits(case(CUDA, gpus=[gpu()] * 8)).level == "ok"  # 16 bytes of 8.03e9 parameters over 8 ranks: 16 GB
    small = gpus.fits(case(CUDA, gpus=[gpu(memory_bytes=16 * 10**9)] * 8))
    assert small.level == "fail"
    assert small.found.startswith("16.1 GB a rank")
    assert gpus.fits(case(CUDA, gpus=[gpu(memory_bytes=None)])).level == "skip"


def test_gpus_in_use_and_slices_are_named_by_number():
    (busy,) = gpus.states_of(PartOfANode(), None)
    assert (busy.level, busy.found) == ("warn", "in use before the run: GPU 1: 7.52 GB, GPU 3: 7.52 GB")
    busy, sliced = gpus.states_of(Sliced(), None)
    assert (busy.level, sliced.level) == ("warn", "warn")
    assert sliced.found.startswith("a slice of GPU 1: ")


def test_a_gpu_that_the_run_does_not_use_may_be_in_use():
    (busy,) = gpus.states_of(PartOfANode(), "1")
    assert busy.found == "in use before the run: GPU 3: 7.52 GB"
    (busy,) = gpus.states_of(PartOfANode(), "")
    assert busy.level == "ok"


@pytest.mark.parametrize(
    ("version", "layer", "level"),
    [("570.86.15", "in_process", "ok"), ("550.54", "in_process", "warn"), ("550.54", "none", "ok")],
)
def test_an_old_driver_matters_to_layers_with_health_checks(version, layer, level):
    config = run(device="cuda", layer=layer)
    check = gpus.driver(case(config, versions=VERSIONS | {"driver": version}))
    assert check.level == level
    assert version in check.found
