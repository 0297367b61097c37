"""Two GPUs that answer as NVML does; the second is old and refuses some questions."""

from __future__ import annotations

from types import SimpleNamespace


class FakeNvml:
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
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle):  # noqa: N802
        return f"GPU-{'ab'[handle]}0"

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
