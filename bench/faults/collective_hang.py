"""A rank no longer joins collectives: its peers block in theirs.

Two faults under one name, told apart by `interruptible`: a loop of short waits, which an exception raised in the thread
from outside can end (in-process recovery keeps the process), and one long wait in C, which nothing but a kill ends.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from bench.faults.base import FOR_GOOD_S, Option, Planned, RankFault, Scene
from bench.record import clock

WAIT_S = 0.05


class CollectiveHang(RankFault):
    name = "collective_hang"
    expects = "The rank goes silent with all its threads alive; its peers wait in a collective until someone notices."
    options: ClassVar[dict[str, Option]] = {"interruptible": True, "seconds": FOR_GOOD_S}

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> None:
        seconds = self.option(planned, "seconds")
        if not self.option(planned, "interruptible"):
            time.sleep(seconds)
            return
        end = clock() + seconds
        while clock() < end:
            time.sleep(WAIT_S)
