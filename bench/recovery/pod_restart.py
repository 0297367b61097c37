"""Bare restarts by node, as Kubernetes restarts pods: each node starts its own ranks again, after a growing wait.

Rank 0 hosts the rendezvous, as in an ordinary training pod: nobody outlives the loss of its node, and the ranks of
other nodes fail, and wait and restart in their turn.
"""

from __future__ import annotations

from bench.recovery.base import Layer, Place, Process, plain_ranks


class PodRestart(Layer):
    name = "pod_restart"
    when_one_dies = "restart_node"
    inside = "bench.recovery.inside.plain:PodRestartInside"

    def processes(self, place: Place) -> list[Process]:
        return plain_ranks(place, {"MASTER_ADDR": place.host, "MASTER_PORT": str(place.rank_port)})
