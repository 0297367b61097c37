"""A call into C that never gives the interpreter's lock back: every Python thread of the process stands still."""

from __future__ import annotations

import ctypes
import math
from typing import Any, ClassVar

from bench.faults.base import FOR_GOOD_S, Option, Planned, RankFault, Scene


class GilLock(RankFault):
    name = "gil_lock"
    expects = "No Python thread of the process runs, heartbeats sent from threads included; no exception can be raised."
    options: ClassVar[dict[str, Option]] = {"seconds": FOR_GOOD_S}

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> None:
        left = math.ceil(self.option(planned, "seconds"))
        while left > 0:  # a signal ends the call early; it returns the seconds left
            left = ctypes.PyDLL(None).sleep(left)
