"""Ranks below torchrun's agent, and what all ranks below an elastic agent share: the name of their round."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist

from bench.recovery.inside.base import Attempt, Inside, Post, TrainingFunction


def agents_round(post: Post) -> str:
    """A name of the agents' rendezvous round that all its ranks have in common.

    Their count of restarts is none: an agent that comes back counts from 0. The agent of rank 0 draws a free port for
    each round; the ranks count, each for itself, how often they have come with that port, should it be drawn twice.
    """
    port = os.environ["MASTER_PORT"]
    timeout = timedelta(seconds=post.limits.rendezvous_s)
    store = dist.TCPStore(post.host, post.base_port, is_master=False, timeout=timeout)
    run = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return f"{port}.{store.add(f'rounds/{run}/{port}/{post.slot.rank}', 1)}"


class TorchrunInside(Inside):
    layer = "torchrun"

    def _run(self, train: TrainingFunction) -> None:
        slot = self.post.slot
        self._call(train, Attempt(0, agents_round(self.post), slot.rank, slot.world_size))
