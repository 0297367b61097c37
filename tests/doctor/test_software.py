"""Versions against what the run needs of them."""

from __future__ import annotations

import pytest

from bench.doctor import software
from tests.doctor.cases import TORCH, VERSIONS, case, run

CUDA = run(device="cuda")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2.13.0+cpu", (2, 13, 0)), ("2.8.0a0+5228986c39.nv25.6", (2, 8, 0)), ("2.39", (2, 39)), ("unknown", ())],
)
def test_versions_are_compared_as_numbers(text, expected):
    assert software.numbers(text) == expected


@pytest.mark.parametrize(
    ("version", "level"), [((3, 9), "fail"), ((3, 10), "ok"), ((3, 12), "ok"), ((3, 13), "fail"), ((3, 9, 1), "fail")]
)
def test_python_must_be_one_that_nvrx_has_wheels_for(version, level):
    assert software.python(version).level == level


def test_torch_that_is_missing_is_told_from_torch_that_does_not_run():
    missing = software.torch(case(versions=VERSIONS | {"torch": None}, said={}))
    broken = software.torch(case(said={}, error="ImportError: libcudart.so.13"))
    assert missing.found.startswith("not installed")
    assert broken.found == "2.13.0 is installed and does not run: ImportError: libcudart.so.13"
    assert missing.level == broken.level == "fail"


@pytest.mark.parametrize(
    ("said", "config", "level", "part"),
    [
        (TORCH, CUDA, "ok", "built for CUDA 13.0"),
        (TORCH | {"version": "2.8.0a0+nv25.6"}, CUDA, "ok", "2.8.0a0"),
        (TORCH | {"version": "2.7.1"}, CUDA, "fail", "2.7.1"),
        (TORCH | {"cuda": None}, CUDA, "fail", "built without CUDA"),
        (TORCH | {"devices": 0}, CUDA, "fail", "it sees no device"),
        (TORCH | {"cuda": None, "devices": 0}, run(), "ok", "built without CUDA"),
    ],
)
def test_torch_must_be_new_enough_and_built_for_the_runs_device(said, config, level, part):
    check = software.torch(case(config, said={"torch": [said]}))
    assert check.level == level
    assert part in check.found


def test_nvrx_is_needed_by_arms_and_layers_only():
    without = VERSIONS | {"nvidia_resiliency_ext": None}
    assert software.nvrx(case(versions=without)).level == "ok"
    assert "needed by nvrx_async" in software.nvrx(case(run(arms=("nvrx_async",)), versions=without)).found
    assert software.nvrx(case(run(layer="in_job"), versions=without)).level == "fail"


def test_an_untested_version_is_a_warning():
    check = software.nvrx(case(versions=VERSIONS | {"nvidia_resiliency_ext": "0.5.0"}))
    assert (check.level, check.remedy.startswith("0.4.1 or 0.7.0")) == ("warn", True)


def test_it_says_what_the_older_version_lacks_and_why_the_newer_is_not_to_be_had():
    old = software.nvrx_found("0.4.1", (3, 11), "2.36")
    assert "lacks of 0.7.0" in old
    assert old.endswith("0.7.0 needs Python 3.12 and glibc 2.39 or newer: here 3.11 and 2.36")
    assert software.nvrx_found("0.4.1", (3, 12), "2.39").endswith("both are here")
    assert software.nvrx_found("0.7.0", (3, 12), "2.39") == "0.7.0"


@pytest.mark.parametrize(
    ("version", "layer", "level"),
    [
        ([2, 28, 2], "in_process", "ok"),
        ([2, 28, 3], "in_process", "fail"),
        ([2, 28, 8], "nested", "fail"),
        ([2, 28, 5], "in_job", "warn"),
        ([2, 28, 9], "in_process", "ok"),
        ([2, 27, 7], "in_process", "ok"),
        (None, "none", "fail"),
    ],
)
def test_nccl_versions_that_conflict_with_in_process_restart_fail_where_it_is_used(version, layer, level):
    said = {"torch": [TORCH | {"nccl": version}]}
    assert software.nccl(case(run(device="cuda", layer=layer), said=said)).level == level


def test_nccl_does_not_matter_on_cpus():
    assert software.nccl(case()).level == "skip"
