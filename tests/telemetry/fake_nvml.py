"""GPUs that answer as NVML does: two, of which the second is old and refuses some questions; part of a node; slices."""

from __future__ import annotations

from types import SimpleNamespace


class FakeNvml:
    count = 2
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.looks = 0
        self.open = True

    def nvmlInit(self):  # noqa: N802
        self.open = True

    def nvmlShutdown(self):  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self):  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return f"GPU-{'abcd'[handle]}0"

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUtilizationRates(self, handle):  # noqa: N802
        return SimpleNamespace(gpu=87, memory=40)

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(used=7 << 30)

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        return 412_500

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        if handle == 1:
            raise self.NVMLError
        self.looks += 1
        return 1_000_000 + self.looks

    def nvmlDeviceGetClockInfo(self, handle, kind):  # noqa: N802
        return {1: 1755, 2: 2619}[kind]

    def nvmlDeviceGetTemperature(self, handle, sensor):  # noqa: N802
        return 61

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):  # noqa: N802
        if handle == 1:
            raise self.NVMLError
        return 4 + 32

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802
        raise self.NVMLError


class PartOfANode(FakeNvml):
    """Four GPUs, of which two belong to another job, as under Slurm's ConstrainDevices: NVML counts them all."""

    count = 4

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        if index in (0, 2):
            raise self.NVMLError("Insufficient Permissions")
        return index


class Sliced(FakeNvml):
    """A whole GPU, and one that is cut; the memory of the latter is told to administrators only."""

    slices = ("MIG-x", "MIG-y")

    def nvmlDeviceGetMigMode(self, handle):  # noqa: N802
        return [int(handle == 1), int(handle == 1)]

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, place):  # noqa: N802
        if place >= 2 * len(self.slices) or place % 2:
            raise self.NVMLError("Not Found")
        return self.slices[place // 2]

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid not in self.slices:
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):  # noqa: N802
        return 1

    def nvmlDeviceGetIndex(self, handle):  # noqa: N802
        return handle

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return handle if isinstance(handle, str) else super().nvmlDeviceGetUUID(handle)

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        if handle == 1:
            raise self.NVMLError("Insufficient Permissions")
        return super().nvmlDeviceGetMemoryInfo(handle)
