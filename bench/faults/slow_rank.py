"""One rank takes longer for every step, and all wait for it: a hot GPU, a bad link. Nothing has to start again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, ClassVar

from bench.faults.base import Option, Planned, RankFault, Scene


class SlowRank(RankFault):
    name = "slow_rank"
    moments = ("step",)
    expects = "Steps take longer for a while; nothing restarts unless a timeout is too tight: a false alarm."
    options: ClassVar[dict[str, Option]] = {
        "seconds": 1.0,
        "steps": 10,
    }  # so much longer, for so many steps, or until the rank starts again
    tolerated = True

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> Iterator[None]:
        seconds = self.option(planned, "seconds")
        time.sleep(seconds)  # the step that is about to begin is the first slow one
        return self._go_on(seconds, self.option(planned, "steps") - 1)

    def _go_on(self, seconds: float, steps: int) -> Iterator[None]:
        for _ in range(steps):
            time.sleep(seconds)
            yield
