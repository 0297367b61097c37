"""This machine as it is: one node."""

from __future__ import annotations

from bench.config import Run
from bench.errors import BadInput
from bench.launch.base import WAYS_ON, OnThisMachine


class Local(OnThisMachine):
    name = "local"

    def check(self, config: Run, gpus: int) -> None:
        if config.num_nodes > 1:
            raise BadInput(
                f"num_nodes: {config.scenario} asks for {config.num_nodes} nodes and this is one machine; {WAYS_ON}"
            )
        if config.device == "cuda" and gpus < config.ranks_of_last_node:
            spare = f" (recovery.reserve={config.recovery.reserve} among them)" if config.recovery.reserve else ""
            raise BadInput(
                f"ranks_per_node: {config.scenario} asks for {config.ranks_of_last_node} GPUs{spare} and this machine "
                f"has {gpus}; {WAYS_ON}"
            )
