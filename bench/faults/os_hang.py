"""The whole process stands still (SIGSTOP), as on a host that swaps or whose kernel is stuck."""

from __future__ import annotations

import os
import signal
from typing import Any

from bench.faults.base import Planned, RankFault, Scene


class OsHang(RankFault):
    name = "os_hang"
    expects = "The process stops, its monitoring threads included, and acts on SIGKILL only; its peers wait for it."

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
