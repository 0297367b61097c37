"""No recovery: the node runner spawns the ranks itself and never reacts to a death."""

from __future__ import annotations

from bench.recovery.base import Layer, Place, Process, plain_ranks


class Plain(Layer):
    name = "none"

    def processes(self, place: Place) -> list[Process]:
        return plain_ranks(place)
