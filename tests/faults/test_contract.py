"""One contract for all faults, and that making schedules of them needs no torch."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

from bench import checkpoint
from bench.config import MOMENTS
from bench.errors import BadInput
from bench.faults import FAULTS, create
from bench.faults.base import IN_BACKGROUND, WITH_WRITER, NodeFault, RankFault, planned_from_json
from bench.faults.runner import unavailable
from tests.faults.made import ROOT, planned, site

# What is promised: a fault that vanished would go unnoticed otherwise.
WANTED = {
    "exception", "sigkill", "sigterm", "segfault", "oom_host", "oom_device", "collective_hang", "os_hang", "gil_lock",
    "gpu_error", "slow_rank", "writer_killed", "node_loss", "network_partition", "storage_full", "storage_slow",
    "corrupt_checkpoint", "health_check_failure",
}  # fmt: skip


def test_the_family_is_complete():
    assert set(FAULTS) == WANTED


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_says_what_it_is(name):
    fault = create(name)
    assert fault.name == name
    assert FAULTS[name].startswith(f"bench.faults.{name}:")
    assert isinstance(fault, NodeFault if fault.actor == "runner" else RankFault)
    assert fault.moments
    assert set(fault.moments) <= set(MOMENTS)
    assert fault.expects.endswith(".")
    assert inspect.getdoc(inspect.getmodule(type(fault)))


@pytest.mark.parametrize("name", FAULTS)
def test_every_option_has_a_default_of_a_kind_that_can_be_checked(name):
    fault = create(name)
    assert all(isinstance(value, bool | int | float | tuple) for value in fault.options.values())
    for option, value in fault.defaults().items():
        assert fault.option(planned(name), option) == value
        assert fault.option(planned(name, options={option: "given"}), option) == "given"


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_a_launch_survives_json(name):
    fault = planned(name, options=create(name).defaults(), turn=1, share=0.25, after="x")
    assert planned_from_json(fault.to_json()) == fault


@pytest.mark.parametrize("name", FAULTS)
def test_finding_out_whether_a_node_can_do_it_gives_a_reason_or_nothing_and_leaves_nothing(name, tmp_path):
    place = site(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    reasons = unavailable([planned(name), planned(name, "elsewhere", node=1)], place)
    assert set(reasons) <= {f"0-{name}"}
    assert all(reason and "\n" not in reason for reason in reasons.values())
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["oom_device", "gpu_error"])
def test_faults_of_gpus_are_unavailable_without_one_and_say_what_they_need(name, tmp_path):
    assert "CUDA" in unavailable([planned(name)], site(tmp_path))[f"0-{name}"]
    assert unavailable([planned(name)], site(tmp_path, device="cuda")) == {}
    assert create(name).needs == "CUDA"


def test_an_unknown_fault_is_refused_with_a_suggestion_and_the_field_it_stands_in():
    with pytest.raises(BadInput, match=r"^faults\.weights: unknown fault 'oom'; did you mean .*\?$"):
        create("oom", "faults.weights")


def test_strategies_that_write_in_the_background_are_known_by_name_as_their_classes_say():
    pytest.importorskip("torch")
    found = set()
    for name, path in checkpoint.STRATEGIES.items():
        file, attribute = path.split(":")
        if (
            getattr(importlib.import_module(file), attribute).background or name == "synthetic"
        ):  # it decides by its options
            found.add(name)
    assert found == set(IN_BACKGROUND)
    assert found - set(WITH_WRITER) == {"dcp_async_thread", "synthetic"}


def test_no_module_of_the_family_loads_torch_before_a_fault_that_needs_it_strikes():
    code = (
        "import importlib, pkgutil, sys, bench.faults as f\n"
        "names = [m.name for m in pkgutil.iter_modules(f.__path__)]\n"
        "[importlib.import_module(f'bench.faults.{n}') for n in names]\n"
        "print(len(names) > 20, {'torch', 'nvidia_resiliency_ext'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "True set()\n", done.stderr
