"""One look at one GPU through NVML. What a GPU or a container does not answer is None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Why clocks are below what they could be: bits of NVML's NvmlClocksEventReasons.
REASONS = {
    1 << 0: "idle",
    1 << 1: "application_clocks",
    1 << 2: "power_cap",
    1 << 3: "hardware_slowdown",
    1 << 4: "sync_boost",
    1 << 5: "thermal",
    1 << 6: "hardware_thermal",
    1 << 7: "power_brake",
    1 << 8: "display_clocks",
    1 << 9: "board_limit",
    1 << 10: "reliability",
}


@dataclass(frozen=True)
class Sample:
    """`utilization_share`: of the driver's last sampling period (1/6 to 1 s) in which a kernel ran; says nothing about
    how well. `power_w`: a mean over the last second on recent models. `energy_j`: a counter since the driver was
    loaded, so that differences are exact whatever the rate of looking; None before Volta."""

    utilization_share: float | None
    memory_bytes: int | None
    power_w: float | None
    energy_j: float | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    throttled_by: list[str] | None  # REASONS; an empty list: by nothing


def take(nvml: Any, handle: Any) -> Sample:
    """A few milliseconds, most of them the driver's; touches no CUDA context."""

    def ask(call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(handle, *arguments)
        except nvml.NVMLError:
            return None

    rates, memory = ask(nvml.nvmlDeviceGetUtilizationRates), ask(nvml.nvmlDeviceGetMemoryInfo)
    milliwatts, millijoules = ask(nvml.nvmlDeviceGetPowerUsage), ask(nvml.nvmlDeviceGetTotalEnergyConsumption)
    # The older name: its driver call exists in drivers of before 535 too.
    reasons = ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    return Sample(
        utilization_share=None if rates is None else rates.gpu / 100,
        memory_bytes=None if memory is None else int(memory.used),
        power_w=None if milliwatts is None else milliwatts / 1000,
        energy_j=None if millijoules is None else millijoules / 1000,
        sm_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        temperature_c=ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        throttled_by=None if reasons is None else [name for bit, name in REASONS.items() if reasons & bit],
    )
