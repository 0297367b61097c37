"""Whole-job relaunch: a death ends all ranks of all nodes, and the job is started again, as a scheduler does it.

By the coordinator, inside the allocation; with recovery.relaunch=engine by the scheduler itself, through its queue.
"""

from __future__ import annotations

from bench.recovery.base import Layer, Place, Process, plain_ranks


class Requeue(Layer):
    name = "requeue"
    when_one_dies = "requeue"
    inside = "bench.recovery.inside.plain:RequeueInside"

    def processes(self, place: Place) -> list[Process]:
        return plain_ranks(place)
