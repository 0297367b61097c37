"""A rehearsal: several nodes on this machine, each with its own runner, agent and ranks. Never cluster figures."""

from __future__ import annotations

import os

from bench.config import Run
from bench.errors import BadInput
from bench.launch import namespaces
from bench.launch.base import OnThisMachine, Paths
from bench.launch.namespaces import CONTROL, TRAINING, Network

RANKS_PER_CPU = 8  # beyond it, a rehearsal spends its time switching between processes


class Emulated(OnThisMachine):
    """With cluster.namespaces, every node has a network of its own for as long as its runner may live."""

    name = "emulated"

    def __init__(self) -> None:
        super().__init__()
        self._network: Network | None = None
        self._news: list[str] = []

    def check(self, config: Run, gpus: int) -> None:
        cpus = len(os.sched_getaffinity(0))
        if config.world_size + config.recovery.reserve > RANKS_PER_CPU * cpus:
            raise BadInput(
                f"num_nodes: {config.num_nodes} x {config.ranks_per_node} ranks are too many to rehearse on "
                f"{cpus} CPUs (at most {RANKS_PER_CPU * cpus}); give ranks_per_node=1 or fewer num_nodes"
            )
        if config.cluster.namespaces:
            namespaces.check(config)

    def _host(self, config: Run) -> str:
        return namespaces.address(CONTROL, 0) if config.cluster.namespaces else super()._host(config)

    def _command(self, config: Run, paths: Paths, node: int, port: str) -> list[str]:
        command = super()._command(config, paths, node, port)
        if not config.cluster.namespaces:
            return command
        network = network_of(config, paths)
        command += ["--ranks-host", namespaces.address(TRAINING, 0)]
        command += ["--interface", network.link(node), "--netns", network.hub]
        return network.inside(node, command)

    def start(self, config: Run, paths: Paths) -> None:
        if config.cluster.namespaces:
            self._news += namespaces.remove_leftovers()
            network = network_of(config, paths)
            network.make()
            self._network = network
        try:
            super().start(config, paths)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        super().stop()
        if self._network is not None:
            self._news += self._network.remove()
            self._network = None

    def news(self) -> list[str]:
        news, self._news = self._news, []
        return news


def network_of(config: Run, paths: Paths) -> Network:
    return Network.of(paths.work_dir.name, config.num_nodes)
