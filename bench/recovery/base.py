"""What a recovery layer is: the processes that a node runner starts for a launch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

WORKER_MODULE = "bench.train.worker"


@dataclass(frozen=True)
class Place:
    """One node's part of a launch."""

    launch_id: str
    node: int
    num_nodes: int
    ranks_per_node: int
    host: str  # of node 0
    agent_port: int  # free on node 0, for the agents' own rendezvous
    python: str


@dataclass(frozen=True)
class Process:
    """A process to start: its command, what it adds to the environment, and the local rank (None: an agent)."""

    name: str
    command: list[str]
    env: dict[str, str]
    local_rank: int | None


class Layer(ABC):
    name: ClassVar[str]

    @abstractmethod
    def processes(self, place: Place) -> list[Process]:
        """What the node runner starts on this node. It ends the launch when all of them have ended."""
