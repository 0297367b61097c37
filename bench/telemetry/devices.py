"""The GPUs of this machine through NVML: those that this process may use, and those that CUDA shows to ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

VARIABLE = "CUDA_VISIBLE_DEVICES"
MOST_SLICES = 8  # of one GPU; today's models have up to 7


@dataclass(frozen=True)
class Device:
    """A GPU, or a MIG slice of one. `number`: NVML's, of the whole GPU."""

    number: int
    handle: Any
    uuid: str
    slice: bool = False


def allowed(nvml: Any) -> list[Device]:
    """All whole GPUs but those that are refused: a job may have part of its node's, and NVML counts the others too."""
    found = []
    for number in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            found.append(Device(number, handle, text(nvml.nvmlDeviceGetUUID(handle))))
        except nvml.NVMLError:
            continue
    return found


def shown(nvml: Any, variable: str | None) -> list[Device]:
    """What CUDA shows under `variable` (the value of CUDA_VISIBLE_DEVICES), in the order of local ranks.

    Of MIG slices CUDA shows one process a single one, and then no whole GPU (NVIDIA's MIG User Guide).
    """
    if variable is not None and variable.strip().startswith("MIG-"):
        return _named_slice(nvml, variable.split(",")[0].strip())
    there = allowed(nvml)
    chosen = [there[index] for index in visible([device.uuid for device in there], variable)]
    cut = [device for device in chosen if _is_cut(nvml, device)]
    slices = [part for device in cut for part in _slices(nvml, device)]
    return slices[:1] or [device for device in chosen if device not in cut]


def used_bytes(nvml: Any, device: Device) -> int | None:
    """Memory in use, by whomever; None where it is not told, as of a whole GPU that is cut into slices."""
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(device.handle).used)
    except nvml.NVMLError:
        return None


def visible(uuids: Sequence[str], variable: str | None) -> list[int]:
    """Places in `uuids` (of the GPUs that a process may use) of those that CUDA shows, in the order of local ranks.

    `variable`: CUDA_VISIBLE_DEVICES, numbers or UUIDs (their beginning is enough); None shows all. As in CUDA, reading
    stops at the first entry that names no GPU.
    """
    if variable is None:
        return list(range(len(uuids)))
    chosen: list[int] = []
    for word in (part.strip() for part in variable.split(",")):
        if word.isdigit() and int(word) < len(uuids):
            chosen.append(int(word))
            continue
        named = [index for index, uuid in enumerate(uuids) if word.startswith("GPU-") and uuid.startswith(word)]
        if len(named) != 1:
            break
        chosen += named
    return chosen


def _named_slice(nvml: Any, uuid: str) -> list[Device]:
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        number = nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle))
    except nvml.NVMLError:
        return []  # as CUDA, which shows nothing for a name that it does not know
    return [Device(number, handle, uuid, slice=True)]


def _is_cut(nvml: Any, device: Device) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(device.handle)[0])
    except nvml.NVMLError:
        return False  # a model without slices


def _slices(nvml: Any, device: Device) -> list[Device]:
    found = []
    for place in range(MOST_SLICES):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device.handle, place)
            found.append(Device(device.number, handle, text(nvml.nvmlDeviceGetUUID(handle)), slice=True))
        except nvml.NVMLError:
            continue  # no slice at this place
    return found


def text(value: str | bytes) -> str:
    """Older bindings answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value
