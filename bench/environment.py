"""The machine and the software under a measurement: what must be recorded for a figure to be comparable.

Imports nothing heavy: versions come from installed metadata, GPUs from NVML, so that the driver stays light.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import socket
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from bench.telemetry import devices

_PACKAGES = {"torch": "torch", "nvidia_resiliency_ext": "nvidia-resiliency-ext", "numpy": "numpy", "pandas": "pandas"}
_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")  # none: torch brings its own, or has none
_RECORDED_PREFIXES = ("NCCL_", "TORCH_", "PYTORCH_", "GLOO_", "OMP_", "MKL_", "OPENBLAS_", "CUDA_", "MALLOC_", "FI_")


@contextmanager
def nvml() -> Iterator[Any]:
    """The NVML module, initialised; None where there is no driver."""
    with warnings.catch_warnings():
        # Of the deprecated package pynvml, which NVRx 0.4.1 brings along.
        warnings.simplefilter("ignore", FutureWarning)
        import pynvml
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def gpus() -> list[dict[str, Any]]:
    """Name, memory (bytes), power limit (W), maximum SM clock (MHz), ECC of every GPU that CUDA shows here, in order
    of local ranks: under CUDA_VISIBLE_DEVICES, and one MIG slice at most. Empty without NVML."""
    with nvml() as library:
        shown = devices.shown(library, os.environ.get(devices.VARIABLE)) if library else []
        return [_gpu(library, device.handle) for device in shown]


def host_gpus() -> list[dict[str, Any]]:
    """The same of all whole GPUs that this process may use, whatever CUDA_VISIBLE_DEVICES hides of them."""
    with nvml() as library:
        return [_gpu(library, device.handle) for device in (devices.allowed(library) if library else [])]


def _gpu(nvml: Any, handle: Any) -> dict[str, Any]:
    def ask(call: Any, *arguments: Any) -> Any:
        try:
            return call(handle, *arguments)
        except nvml.NVMLError:
            return None  # not every GPU or container answers every question

    power, ecc = ask(nvml.nvmlDeviceGetEnforcedPowerLimit), ask(nvml.nvmlDeviceGetEccMode)
    memory = ask(nvml.nvmlDeviceGetMemoryInfo)
    return {
        "name": ask(nvml.nvmlDeviceGetName),
        "memory_bytes": memory.total if memory else None,
        "power_limit_w": power / 1000 if power else None,
        "max_sm_clock_mhz": ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
        "ecc": bool(ecc[0]) if ecc else None,
    }


def driver_version() -> str | None:
    with nvml() as library:
        return str(library.nvmlSystemGetDriverVersion()) if library else None


def versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name, package in _PACKAGES.items():
        found[name] = _version(package)
    found |= {
        "nccl": next((version for package in _NCCL if (version := _version(package)) is not None), None),
        "cuda": cuda_version(),
        "python": platform.python_version(),
        "os": _os_name(),
        "kernel": platform.release(),
        "glibc": "-".join(platform.libc_ver()),
        "driver": driver_version(),
        "commit": commit(),
    }
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cuda_version() -> str | None:
    """Of the CUDA that torch was built for, as its own file says; None: built for none, or no torch is here."""
    found = importlib.util.find_spec("torch")  # imports nothing
    if found is None or found.origin is None:
        return None
    try:
        text = Path(found.origin).with_name("version.py").read_text()
    except OSError:
        return None
    match = re.search(r"^cuda\b[^=]*= *'([^']+)'", text, re.MULTILINE)
    return match.group(1) if match else None


def _os_name() -> str | None:
    try:
        match = re.search(r'^PRETTY_NAME="?([^"\n]*)', Path("/etc/os-release").read_text(), re.MULTILINE)
    except OSError:
        return None
    return match.group(1) if match else None


def commit() -> str | None:
    """Commit of the checkout that the suite runs from, with "+dirty" where it was changed; None when installed."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    head = _git(root, "rev-parse", "HEAD")
    return head + ("+dirty" if _git(root, "status", "--porcelain") else "") if head else None


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False).stdout.strip()


def cpu_model() -> str | None:
    match = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match.group(1).strip() if match else platform.machine()


def mount_of(path: Path) -> dict[str, Any]:
    """File system under `path` (its nearest existing parent): device id, type, options, bytes in all and free."""
    existing = path
    while not existing.exists():
        existing = existing.parent
    existing = existing.resolve()
    best: tuple[int, str, str] = (-1, "unknown", "")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options = line.split()[:4]
        if existing.is_relative_to(point) and len(point) >= best[0]:
            best = (len(point), kind, options)
    usage = shutil.disk_usage(existing)
    return {
        "device": existing.stat().st_dev,
        "type": best[1],
        "options": best[2],
        "total_bytes": usage.total,
        "free_bytes": usage.free,
    }


def python_file_system() -> str:
    """Where the Python environment lives: imports are part of every restart."""
    return str(mount_of(Path(os.__file__))["type"])


def cache_variables(work_dir: Path) -> dict[str, str]:
    """Where libraries may keep what they compile and remember: below `work_dir`, since homes can be read-only or shared
    by all nodes. Nothing is made here; each makes its own folder."""
    cache = work_dir / "cache"
    places = {
        "XDG_CACHE_HOME": "xdg",
        "MPLCONFIGDIR": "matplotlib",
        "TRITON_CACHE_DIR": "triton",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "CUDA_CACHE_PATH": "cuda",
        "JUPYTER_CONFIG_DIR": "jupyter/config",
        "JUPYTER_DATA_DIR": "jupyter/data",
        "JUPYTER_RUNTIME_DIR": "jupyter/runtime",
        "IPYTHONDIR": "jupyter/ipython",
    }
    return {name: str(cache / place) for name, place in places.items()}


def machine_name(given: str | None) -> str:
    name = given or socket.gethostname()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "machine"


def mounts(checkpoint_dir: Path, results_dir: Path) -> dict[str, Any]:
    """The part of the description that a store made for the run changes when it is mounted."""
    checkpoints, results = mount_of(checkpoint_dir), mount_of(results_dir)
    return {
        "checkpoint_mount": checkpoints,
        "results_mount": results,
        "one_filesystem": checkpoints["device"] == results["device"],
    }


def describe(checkpoint_dir: Path, results_dir: Path) -> dict[str, Any]:
    """Everything metrics of one machine depend on, as it stands in run.json."""
    memory, shm = psutil.virtual_memory(), shutil.disk_usage("/dev/shm")
    return {
        "versions": versions(),
        "gpus": gpus(),
        "host_gpus": host_gpus(),
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": memory.total,
        "shm_bytes": shm.total,
        "load1": os.getloadavg()[0],
        **mounts(checkpoint_dir, results_dir),
        "python_file_system": python_file_system(),
        "variables": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_RECORDED_PREFIXES)},
    }
