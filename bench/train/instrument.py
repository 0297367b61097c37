"""The two visible fences around whatever is timed on a rank."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from bench.record import Recorder, Span


class Instrument:
    """Times spans of the training thread. On CUDA each end of a span synchronises the device, else work still queued on
    it would be charged to whoever comes next; the wait is part of the instrument's own cost."""

    def __init__(self, recorder: Recorder, device: torch.device) -> None:
        self.recorder = recorder
        self.device = device
        self._fence = self.fence if device.type == "cuda" else None

    def span(self, name: str, opened: bool = True, **attributes: Any) -> Span:
        return self.recorder.span(name, self._fence, opened, **attributes)

    def fence(self) -> None:
        torch.cuda.synchronize(self.device)

    def instant(self, name: str, **attributes: Any) -> None:
        self.recorder.instant(name, **attributes)


def dirty_bytes() -> int | None:
    """Bytes of this host's memory that wait to be written to storage (about 50 microseconds)."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith(("Dirty:", "Writeback:"))]
    return sum(kilobytes) * 1024 if kilobytes else None


def pinned_copy_bytes_per_s(device: torch.device, size_bytes: int = 256 << 20, repeats: int = 5) -> float:
    """Bandwidth of this GPU's copies into pinned host memory: the ceiling of staging. Synchronises the device."""
    source = torch.empty(size_bytes, dtype=torch.uint8, device=device)
    target = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    target.copy_(source, non_blocking=True)  # the first copy pays for what later ones find ready
    torch.cuda.synchronize(device)
    begin = time.monotonic()
    for _ in range(repeats):
        target.copy_(source, non_blocking=True)
    torch.cuda.synchronize(device)
    return size_bytes * repeats / (time.monotonic() - begin)
