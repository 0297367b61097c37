"""What a recovery layer is, seen from the node runner: the processes that it starts, and what a death means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from bench.config import Run
from bench.recovery.timeouts import Timeouts

WORKER_MODULE = "bench.train.worker"
# Variables that tell ranks what only the runner knows.
ATTEMPT = "BENCH_ATTEMPT"  # how often it has started this node's part before
MAX_RESTARTS = "BENCH_MAX_RESTARTS"  # in_process, nested: restarts in place before the ranks give up

WhenOneDies = Literal["end_launch", "go_on", "restart_node", "requeue"]
StoreName = Literal["base", "wrapper"]


@dataclass(frozen=True)
class Place:
    """One node's part of a launch. Ports are of node 0, and its runner keeps the stores behind two of them."""

    launch_id: str
    node: int
    num_nodes: int
    ranks_per_node: int
    host: str  # of node 0
    agent_port: int  # free on node 0, for the agents' own rendezvous
    python: str
    attempt: int = 0  # 0 at the start of a launch; pod_restart and requeue count up, also a returned node's agent
    timeouts: Timeouts | None = None  # None: pilot and checkpoint runs, which no fault is meant for
    max_restarts: int = 3
    reserve: int = 0  # spare ranks beside the active ones, all on the last node
    base_port: int = 0  # store of the whole launch, where process groups rendezvous
    wrapper_port: int = 0  # store of inprocess.Wrapper, fresh per launch and attempt
    rank_port: int = 0  # free on node 0: rank 0 hosts the env:// rendezvous of pod_restart there
    device: str = "cpu"
    token: str = ""
    logs_dir: Path | None = None
    monitoring: str = "heartbeats"  # in_job, nested: or "sections"
    worker_module: str = WORKER_MODULE

    @property
    def active(self) -> int:
        """Ranks that train; the reserve waits beside them."""
        return self.num_nodes * self.ranks_per_node

    @property
    def world_size(self) -> int:
        return self.active + self.reserve

    @property
    def local_world_size(self) -> int:
        """Ranks on this node, its share of the reserve included."""
        return self.ranks_per_node + (self.reserve if self.node == self.num_nodes - 1 else 0)


@dataclass(frozen=True)
class Process:
    """A process to start: its command, what it adds to the environment, and the local rank (None: an agent)."""

    name: str
    command: list[str]
    env: dict[str, str]
    local_rank: int | None


class Layer(ABC):
    """Who starts the ranks, and who acts when one of them dies. One file each; worker side: the class `inside` names.

    when_one_dies: what the runner does when a process that it started fails:
      end_launch    end the launch (the layer had its chance, or there is none)
      go_on         nothing, as long as a rank lives: the ranks recover by themselves
      restart_node  start this node's processes again, after a growing wait
      requeue       the coordinator ends all nodes and starts all of them again
    anchors: regular expressions of the agent's log whose first match after a fault means "failure detected".
    stores: which stores the runner of node 0 must host before any rank starts.
    finds_hangs: it watches for silent ranks itself, so that the process groups' timeout must not pre-empt it.
    """

    name: ClassVar[str]
    when_one_dies: ClassVar[WhenOneDies] = "end_launch"
    anchors: ClassVar[tuple[str, ...]] = ()
    stores: ClassVar[frozenset[StoreName]] = frozenset({"base"})
    inside: ClassVar[str] = "bench.recovery.inside.plain:PlainInside"  # "module:Class", imported by workers only
    finds_hangs: ClassVar[bool] = False  # by heartbeats of its own; else the collective timeout has to

    @property
    def has_agent(self) -> bool:
        """An agent starts the ranks, and can be started again on a node that was lost."""
        return bool(self.anchors)

    @property
    def takes_reserve(self) -> bool:
        """Spare ranks can take the place of lost ones: the Wrapper does that."""
        return "wrapper" in self.stores

    def collective_timeout_s(self, timeouts: Timeouts) -> float:
        """After which a process group gives a collective up."""
        return timeouts.collective_s if self.finds_hangs else timeouts.collective_alone_s

    @abstractmethod
    def processes(self, place: Place) -> list[Process]:
        """What the node runner starts on this node. It ends the launch when all of them have ended."""

    def refusal(self, config: Run) -> str | None:
        """Why this layer cannot serve the run, as the one line of a BadInput; None: it can."""
        return None


def plain_ranks(place: Place, variables: dict[str, str] | None = None) -> list[Process]:
    """The ranks of this node as processes of the runner's own, each with the usual variables and `variables`."""
    first = place.node * place.ranks_per_node
    return [
        Process(
            f"rank-{first + local_rank}",
            [place.python, "-m", place.worker_module],
            {
                "RANK": str(first + local_rank),
                "LOCAL_RANK": str(local_rank),
                "WORLD_SIZE": str(place.world_size),
                "LOCAL_WORLD_SIZE": str(place.local_world_size),
                ATTEMPT: str(place.attempt),
            }
            | (variables or {}),
            local_rank,
        )
        for local_rank in range(place.local_world_size)
    ]
