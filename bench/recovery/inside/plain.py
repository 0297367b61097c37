"""Ranks that nobody watches from inside: one call of the training function per process."""

from __future__ import annotations

import os
import sys
import threading
import time

from bench.record import clock
from bench.recovery.inside.base import Attempt, Inside, Post, TrainingFunction

MARGIN_S = 1.0  # later than a timeout of the rank's own collective, whose error tells more
LOOK_S = 0.2


class PlainInside(Inside):
    layer = "none"
    env_rendezvous = False

    def _run(self, train: TrainingFunction) -> None:
        slot = self.post.slot
        group = f"start-{self.post.restarts}"
        self._call(train, Attempt(0, group, slot.rank, slot.world_size, self.env_rendezvous))


class RequeueInside(PlainInside):
    layer = "requeue"


class PodRestartInside(PlainInside):
    """With what NCCL has and gloo lacks: a thread in each rank that ends it when a peer's collective has timed out.

    So a rank goes that hangs outside of collectives, which nobody else would notice: in a pod where nothing fails,
    nothing is restarted. A stopped process stays, with NCCL as with gloo.
    """

    layer = "pod_restart"
    env_rendezvous = True

    def __init__(self, post: Post) -> None:
        super().__init__(post)
        self._last_beat_s: float | None = None  # None: no step yet; whoever waits for peers then has other timeouts

    def _run(self, train: TrainingFunction) -> None:
        if self.post.device == "cpu" and self.post.timeouts is not None:
            threading.Thread(target=self._monitor, name="monitor", daemon=True).start()
        super()._run(train)

    def beat(self) -> None:
        self._last_beat_s = clock()

    def _monitor(self) -> None:
        patience_s = self.post.limits.collective_alone_s + MARGIN_S
        while self._last_beat_s is None or clock() - self._last_beat_s < patience_s:
            time.sleep(LOOK_S)
        print(f"no step for {patience_s:.1f} s: ended by its monitor", file=sys.stderr, flush=True)
        os._exit(1)
