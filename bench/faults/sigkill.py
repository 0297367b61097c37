"""SIGKILL: the process is gone in the middle of whatever it did, and nothing of it cleans up."""

from __future__ import annotations

import os
import signal
from typing import Any

from bench.faults.base import Planned, RankFault, Scene


class Sigkill(RankFault):
    name = "sigkill"
    expects = "The process is gone at once; its peers see closed connections, its agent the exit code -9."

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
