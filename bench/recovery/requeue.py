"""Whole-job relaunch: a death ends all ranks of all nodes, and the job is started again, as a scheduler does it."""

from __future__ import annotations

from bench.config import Run
from bench.recovery.base import Layer, Place, Process, plain_ranks


class Requeue(Layer):
    name = "requeue"
    when_one_dies = "requeue"
    inside = "bench.recovery.inside.plain:RequeueInside"

    def processes(self, place: Place) -> list[Process]:
        return plain_ranks(place)

    def refusal(self, config: Run) -> str | None:
        if config.recovery.relaunch == "engine":
            return (
                "recovery.relaunch: a restart by the engine itself is not measured by this version; "
                "leave it out, and the coordinator starts the job again on all nodes together"
            )
        return super().refusal(config)
