"""A rehearsal: several nodes on this machine, each with its own runner, agent and ranks. Never cluster figures."""

from __future__ import annotations

import os

from bench.config import Run
from bench.errors import BadInput
from bench.launch.base import OnThisMachine

RANKS_PER_CPU = 8  # beyond it, a rehearsal spends its time switching between processes


class Emulated(OnThisMachine):
    name = "emulated"

    def check(self, config: Run, gpus: int) -> None:
        cpus = len(os.sched_getaffinity(0))
        if config.world_size > RANKS_PER_CPU * cpus:
            raise BadInput(
                f"num_nodes: {config.num_nodes} x {config.ranks_per_node} ranks are too many to rehearse on "
                f"{cpus} CPUs (at most {RANKS_PER_CPU * cpus}); give ranks_per_node=1 or fewer num_nodes"
            )
