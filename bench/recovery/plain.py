"""No recovery: the node runner spawns the ranks itself and never reacts to a death."""

from __future__ import annotations

from bench.recovery.base import WORKER_MODULE, Layer, Place, Process


class Plain(Layer):
    name = "none"

    def processes(self, place: Place) -> list[Process]:
        return [self._rank(place, local_rank) for local_rank in range(place.ranks_per_node)]

    def _rank(self, place: Place, local_rank: int) -> Process:
        env = {
            "RANK": str(place.node * place.ranks_per_node + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(place.num_nodes * place.ranks_per_node),
            "LOCAL_WORLD_SIZE": str(place.ranks_per_node),
        }
        return Process(f"rank-{env['RANK']}", [place.python, "-m", WORKER_MODULE], env, local_rank)
