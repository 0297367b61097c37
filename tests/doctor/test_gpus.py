"""GPUs against what the run asks of them; what NVML would say is made up, what follows from it is not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bench.config import Train
from bench.doctor import gpus
from tests.doctor.cases import H100, LLAMA, VERSIONS, case, gpu, run

CUDA = run(device="cuda", num_nodes=1, ranks_per_node=8, model=LLAMA, train=Train(seq_len=4096))


class FakeNvml:
    """Two GPUs: one in use, one cut into slices."""

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(used=(30 << 30) if handle == 0 else 0)

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802
        if handle == 0:
            raise self.NVMLError
        return [1, 1]


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


@pytest.mark.parametrize(("visible", "level"), [(None, "ok"), ("0,1,2,3,4,5,6,7", "ok"), ("0,1", "fail"), ("", "fail")])
def test_only_visible_gpus_count(visible, level):
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpus.enough(case(CUDA, gpus=[gpu()] * 8, environ=environ)).level == level


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
    busy, sliced = gpus.states_of(FakeNvml())
    assert (busy.level, sliced.level) == ("warn", "warn")
    assert "GPU 0: 32.2 GB" in busy.found
    assert "GPU 1:" not in busy.found
    assert "GPUs 1 " in sliced.found


@pytest.mark.parametrize(
    ("version", "layer", "level"),
    [("570.86.15", "in_process", "ok"), ("550.54", "in_process", "warn"), ("550.54", "none", "ok")],
)
def test_an_old_driver_matters_to_layers_with_health_checks(version, layer, level):
    config = run(device="cuda", layer=layer)
    check = gpus.driver(case(config, versions=VERSIONS | {"driver": version}))
    assert check.level == level
    assert version in check.found
