"""One look at a GPU: units, and null for what it does not answer."""

from __future__ import annotations

import pynvml
import pytest

from bench.telemetry.sample import REASONS, Sample, take
from tests.telemetry.fake_nvml import FakeNvml, Sliced


def test_a_sample_is_in_the_units_of_its_names():
    assert take(FakeNvml(), 0) == Sample(
        utilization_share=0.87,
        memory_bytes=7 << 30,
        power_w=412.5,
        energy_j=pytest.approx(1000.001),
        sm_clock_mhz=1755,
        memory_clock_mhz=2619,
        temperature_c=61,
        throttled_by=["power_cap", "thermal"],
    )


def test_what_a_gpu_does_not_answer_is_null_and_the_rest_is_there():
    found = take(FakeNvml(), 1)
    assert (found.energy_j, found.throttled_by) == (None, None)
    assert found.power_w == 412.5


def test_the_reasons_are_the_librarys_bits():
    assert REASONS[pynvml.nvmlClocksThrottleReasonGpuIdle] == "idle"
    assert REASONS[pynvml.nvmlClocksThrottleReasonSwPowerCap] == "power_cap"
    assert REASONS[pynvml.nvmlClocksThrottleReasonHwSlowdown] == "hardware_slowdown"
    assert REASONS[pynvml.nvmlClocksThrottleReasonSwThermalSlowdown] == "thermal"
    assert REASONS[pynvml.nvmlClocksThrottleReasonHwThermalSlowdown] == "hardware_thermal"
    assert REASONS[pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown] == "power_brake"


def test_every_question_is_one_that_the_library_knows():
    asked = [name for fake in (FakeNvml, Sliced) for name in vars(fake) if name.startswith("nvml")]
    assert [name for name in asked if not hasattr(pynvml, name)] == []
