"""SIGTERM: what a scheduler sends before it takes a machine away. Ranks do not catch it, so they end."""

from __future__ import annotations

import os
import signal
from typing import Any

from bench.faults.base import Planned, RankFault, Scene


class Sigterm(RankFault):
    name = "sigterm"
    expects = "The process ends with the exit code -15; its peers see closed connections."

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
