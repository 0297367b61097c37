"""What a recovery layer is, seen from inside a rank: it calls the training function, again after a fault."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
import torch.distributed as dist

from bench.record import Recorder
from bench.recovery.base import ATTEMPT, MAX_RESTARTS
from bench.recovery.timeouts import Timeouts, unmeasured

Section = Literal["setup", "step", "checkpointing"]


@dataclass(frozen=True)
class Attempt:
    """One call of the training function.

    number: 0, 1, 2 ... within this process. group: names the generation of the process group; the same on all ranks of
    a generation and never used again in the launch: the prefix under which they rendezvous in the base store.
    rank, world_size: of this generation; they may differ from the call before. env_rendezvous: rendezvous by env://
    (MASTER_ADDR, MASTER_PORT) instead, because rank 0 hosts the store itself; nodes then start again by themselves, and
    `group` tells only how often this one has.
    """

    number: int
    group: str
    rank: int
    world_size: int
    env_rendezvous: bool = False


TrainingFunction = Callable[[Attempt], None]


@dataclass(frozen=True)
class Slot:
    """The place of this process as its starter sees it."""

    rank: int
    local_rank: int
    world_size: int

    @classmethod
    def from_environment(cls) -> Slot:
        return cls(*(int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")))


@dataclass(frozen=True)
class Post:
    """What a rank's part of the layer needs to know."""

    slot: Slot
    host: str  # of node 0
    base_port: int
    wrapper_port: int
    timeouts: Timeouts | None  # None: pilot and checkpoint runs
    recorder: Recorder
    device: str  # "cpu" or "cuda"
    active: int  # ranks that train; slot.world_size counts the reserve too
    monitoring: str = "heartbeats"
    unhealthy_flag: Path | None = None  # health checks of the process fail whose pid stands in it

    @property
    def restarts(self) -> int:
        """How often the runner has started this node's part before (not a count of an agent's restarts)."""
        return int(os.environ.get(ATTEMPT, "0"))

    @property
    def max_restarts(self) -> int | None:
        """How often the ranks may restart in place; None: without limit."""
        given = os.environ.get(MAX_RESTARTS)
        return None if given is None else int(given)

    @property
    def limits(self) -> Timeouts:
        return self.timeouts or unmeasured()


class Inside(ABC):
    """Life of a rank: `run` once, `beat` and `section` from within the training function, `close` at the end.

    `run` records `attempt` at each entry of the training function and `caught` when an exception leaves it.
    """

    layer: ClassVar[str]

    def __init__(self, post: Post) -> None:
        self.post = post
        self.attempts = 0  # calls of the training function so far

    def run(self, train: TrainingFunction) -> None:
        """Call `train`, in_process and nested again after each fault; returns when this rank's part is done.

        A reserve rank that was never needed returns without a call. Raises what `train` raised where the layer does not
        catch it, and the layer's own exception where it gave this rank up: the process must then end with an error.
        """
        self._run(train)

    @abstractmethod
    def _run(self, train: TrainingFunction) -> None: ...

    def beat(self) -> None:
        """This rank makes progress: called each step and between the phases of saves and loads. Less than 1 ms."""

    def starting(self) -> None:
        """A sign of life between the parts of a start, for layers that have no more patience then than later."""

    @contextmanager
    def section(self, name: Section) -> Iterator[None]:
        """Marks what the rank does, for layers that watch sections; a sign of life at both ends for all others."""
        if name != "setup":  # the first beat ends the patience that a starting rank is given
            self.beat()
        yield
        self.beat()

    def effective(self) -> dict[str, float]:
        """The timeouts that the library really uses, read back from it, by the names of Timeouts; call it in `train`,
        after the process group was formed."""
        return {"collective_s": collective_timeout_s()}

    def close(self) -> None:
        """Free what the layer holds in this process. Called once, after `run`, also when that raised."""

    def _call(self, train: TrainingFunction, attempt: Attempt) -> None:
        recorder = self.post.recorder
        self.attempts += 1
        recorder.instant(
            "attempt",
            number=attempt.number,
            group=attempt.group,
            rank=attempt.rank,
            world_size=attempt.world_size,
            layer=self.layer,
        )
        try:
            train(attempt)
        except BaseException as error:
            recorder.instant("caught", error=f"{type(error).__name__}: {error}"[:300])
            raise


def collective_timeout_s() -> float:
    """Timeout of the default process group as its backend has it."""
    group = dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("cuda" if dist.get_backend() == "nccl" else "cpu"))
    return float(backend.options._timeout.total_seconds())
