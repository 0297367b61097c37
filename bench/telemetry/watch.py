"""Looks at all GPUs of a node that the job may use, as events of the node runner: at a stated rate, outside of the
training path.

  telemetry {period_s, gpus: [{index, uuid, name, local_rank}]}      once, when watching begins
  gpu {index, local_rank, and the fields of sample.Sample}           t: when it was looked at

A thread of its own asks the driver, which now and then takes its time, and the runner must notice a death at once; the
runner's own loop writes what the thread has seen, since a recorder belongs to one thread.
"""

from __future__ import annotations

import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import asdict
from typing import Any

from bench.record import Recorder, clock
from bench.telemetry import devices
from bench.telemetry.sample import take

PERIOD_S = 1.0
GOODBYE_S = 5.0


class Telemetry(ABC):
    @abstractmethod
    def look(self) -> None:
        """Write what was seen since the last call; never waits."""

    @abstractmethod
    def close(self) -> None:
        """End watching and write the rest."""


class Nothing(Telemetry):
    """Of a machine without GPUs, or a run on CPUs."""

    def look(self) -> None:
        pass

    def close(self) -> None:
        pass


class Watch(Telemetry):
    """`nvml`: the module, initialised; it is shut down when watching ends."""

    def __init__(self, recorder: Recorder, nvml: Any, period_s: float = PERIOD_S) -> None:
        self._recorder, self._nvml, self._period_s = recorder, nvml, period_s
        self._devices = devices.allowed(nvml)
        shown = devices.shown(nvml, os.environ.get(devices.VARIABLE))
        # A slice's rank has no part in its whole GPU's power that one could tell.
        self._local_rank = {each.number: rank for rank, each in enumerate(shown) if not each.slice}
        gpus = [
            {
                "index": device.number,
                "uuid": device.uuid,
                "name": devices.text(nvml.nvmlDeviceGetName(device.handle)),
                "local_rank": self._local_rank.get(device.number),
            }
            for device in self._devices
        ]
        recorder.instant("telemetry", period_s=period_s, gpus=gpus)
        self._seen: deque[tuple[float, dict[str, Any]]] = deque()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="telemetry", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        due = clock()
        while not self._ended.is_set():
            self._look_at_all()
            due = max(due + self._period_s, clock())  # late: go on from here, and do not catch up
            self._ended.wait(due - clock())
        self._look_at_all()  # energy up to the end

    def _look_at_all(self) -> None:
        for device in self._devices:
            t, sample, number = clock(), take(self._nvml, device.handle), device.number
            self._seen.append((t, {"index": number, "local_rank": self._local_rank.get(number), **asdict(sample)}))

    def look(self) -> None:
        while self._seen:
            t, attributes = self._seen.popleft()
            self._recorder.instant("gpu", t, **attributes)

    def close(self) -> None:
        self._ended.set()
        self._thread.join(GOODBYE_S)
        self.look()
        if not self._thread.is_alive():  # else the driver holds it, and would be shut down under its feet
            self._nvml.nvmlShutdown()


def watch(recorder: Recorder, device: str, period_s: float = PERIOD_S) -> Telemetry:
    """The telemetry of this node; of a run on CPUs, and without a driver, one that does nothing."""
    if device != "cuda":
        return Nothing()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the deprecated package pynvml, which NVRx brings along
        import pynvml
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return Nothing()
    try:
        return Watch(recorder, pynvml, period_s)
    except pynvml.NVMLError as error:
        recorder.instant("note", text=f"no telemetry: {error}")
        pynvml.nvmlShutdown()
        return Nothing()
