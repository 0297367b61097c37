"""What is recorded of the machine: measured or null, never made up."""

from __future__ import annotations

import json
import platform
from contextlib import contextmanager
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path

import psutil
import pynvml
import pytest

from bench import environment
from tests.telemetry.fake_nvml import PartOfANode


class FakeNvml:
    """One GPU that answers some questions and refuses others, as containers and small cards do."""

    NVMLError = pynvml.NVMLError
    NVML_CLOCK_SM = 1

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return "H100"

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):  # noqa: N802
        return 700_000

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):  # noqa: N802
        return 1980

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return type("Memory", (), {"total": 80 << 30})()

    def nvmlDeviceGetEccMode(self, handle):  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def test_a_gpu_is_described_in_its_units_and_what_it_refuses_to_say_is_null():
    assert environment._gpu(FakeNvml(), None) == {
        "name": "H100",
        "memory_bytes": 80 << 30,
        "power_limit_w": 700.0,
        "max_sm_clock_mhz": 1980,
        "ecc": None,
    }


def test_a_machine_without_nvml_has_no_gpus_and_no_driver(monkeypatch):
    def refuse():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    assert environment.gpus() == []
    assert environment.driver_version() is None


def test_gpus_are_those_that_cuda_shows_and_the_hosts_are_kept_beside_them(monkeypatch):
    class Named(PartOfANode):
        NVML_CLOCK_SM = 1

        def nvmlDeviceGetName(self, handle):  # noqa: N802
            return f"GPU {handle}"

        def refuse(self, handle, *_):
            raise self.NVMLError

        nvmlDeviceGetEnforcedPowerLimit = nvmlDeviceGetEccMode = nvmlDeviceGetMaxClockInfo = refuse  # noqa: N815
        nvmlDeviceGetMemoryInfo = refuse  # noqa: N815

    @contextmanager
    def there():
        yield Named()

    monkeypatch.setattr(environment, "nvml", there)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [gpu["name"] for gpu in environment.gpus()] == ["GPU 1", "GPU 3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [gpu["name"] for gpu in environment.gpus()] == ["GPU 3"]
    assert [gpu["name"] for gpu in environment.host_gpus()] == ["GPU 1", "GPU 3"]


def test_versions_are_those_installed_and_null_for_what_is_not(monkeypatch):
    monkeypatch.setattr(environment, "_PACKAGES", {"numpy": "numpy", "absent": "no-such-distribution-here"})
    found = environment.versions()
    assert found["numpy"] == metadata.version("numpy")
    assert found["absent"] is None
    assert found["python"] == platform.python_version()


def test_the_nccl_and_the_cuda_of_torch_are_told_without_importing_it(tmp_path, monkeypatch):
    installed = {"nvidia-nccl-cu12": "2.29.7"}

    def version(package):
        if package not in installed:
            raise metadata.PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr(environment.metadata, "version", version)
    monkeypatch.setattr(environment, "driver_version", lambda: None)
    found = ModuleSpec("torch", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: found)
    (tmp_path / "version.py").write_text("cuda: Optional[str] = '13.0'\ncudnn = '9'\n")
    assert (environment.versions()["nccl"], environment.versions()["cuda"]) == ("2.29.7", "13.0")
    (tmp_path / "version.py").write_text("cuda: Optional[str] = None\ngit_version = 'c'\n")
    installed.clear()
    assert (environment.versions()["nccl"], environment.versions()["cuda"]) == (None, None)


def test_the_commit_is_the_checkouts_and_says_when_it_was_changed(monkeypatch):
    answers = {"rev-parse": "c0ffee\n", "status": " M bench/driver.py\n"}

    class Done:
        def __init__(self, words, **_):
            self.stdout = answers[words[3]]

    monkeypatch.setattr(environment.Path, "exists", lambda self: True)
    monkeypatch.setattr(environment.shutil, "which", lambda name: name)
    monkeypatch.setattr(environment.subprocess, "run", Done)
    assert environment.commit() == "c0ffee+dirty"
    answers["status"] = ""
    assert environment.commit() == "c0ffee"
    answers["rev-parse"] = ""
    assert environment.commit() is None


def test_a_folder_that_is_not_there_yet_has_the_file_system_of_its_nearest_parent(tmp_path):
    there, missing = environment.mount_of(tmp_path), environment.mount_of(tmp_path / "a" / "b")
    assert missing["device"] == there["device"] == tmp_path.stat().st_dev
    assert missing["type"] == there["type"] != "unknown"
    assert there["free_bytes"] <= there["total_bytes"]


def test_the_innermost_mount_counts():
    assert environment.mount_of(Path("/proc/self"))["type"] == "proc"


@pytest.mark.parametrize(
    ("given", "name"), [("gpu-box.7", "gpu-box.7"), ("a b/c", "a-b-c"), ("../x", "x"), ("...", "machine")]
)
def test_a_machines_name_can_be_a_folder_and_never_leads_out_of_the_results(given, name):
    assert environment.machine_name(given) == name


def test_without_a_name_the_host_gives_one(monkeypatch):
    monkeypatch.setattr(environment.socket, "gethostname", lambda: "node 1")
    assert environment.machine_name(None) == "node-1"


def test_the_description_is_json_with_sizes_mounts_and_the_variables_that_matter(tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.setenv("SECRET_KEY", "hidden")
    found = environment.describe(tmp_path, tmp_path / "results")
    json.dumps(found, allow_nan=False)
    assert found["memory_bytes"] == psutil.virtual_memory().total
    assert found["one_filesystem"] is True
    assert found["variables"]["NCCL_DEBUG"] == "WARN"
    assert "SECRET_KEY" not in found["variables"]


def test_results_and_checkpoints_on_two_file_systems_are_told_apart(tmp_path):
    assert environment.describe(Path("/proc"), tmp_path)["one_filesystem"] is False


def test_caches_lie_below_the_work_folder_each_in_its_own_and_none_is_made(tmp_path):
    found = environment.cache_variables(tmp_path)
    assert set(found) >= {"MPLCONFIGDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME", "IPYTHONDIR"}
    assert len(set(found.values())) == len(found)
    assert all(Path(place).is_relative_to(tmp_path) for place in found.values())
    assert list(tmp_path.iterdir()) == []
