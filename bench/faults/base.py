"""What a fault is: when it may strike, what it needs, how it strikes, and how what it left is undone.

A fault touches its own launch only: its own process, processes whose pid, start time and trial token match a record, or
what was made for this run alone (a cgroup, a store, a link).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from bench.config import MOMENTS

# Moments inside of a recovery: such a fault strikes only once the fault before it has struck.
IN_RECOVERY = ("load", "recovery")
# Moments at a save, which is the last thing that happens in an interval.
AT_SAVE = ("staging", "write", "commit")
# Strategies that write while training goes on: in a process of their own, or in a thread. Their classes load torch.
WITH_WRITER = ("dcp_async_process", "nvrx_async", "nvrx_dcp", "nvrx_local")
IN_BACKGROUND = (*WITH_WRITER, "dcp_async_thread", "synthetic")
FOR_GOOD_S = 1e6  # a hang that nobody outwaits

# Value of an option by default. Numbers must be positive; of a tuple, the first is the default and the others are the
# choices.
Option = bool | int | float | tuple[str, ...]


class InjectedFault(RuntimeError):
    """The error that a fault raises in a rank's training thread."""


class Missed(Exception):
    """The victim was gone before the fault struck: nothing has happened."""


@dataclass(frozen=True)
class Planned:
    """One fault of a launch. The victim is a slot (node, local rank), whatever rank it has when the fault strikes.

    `step`: steps finished before it strikes. A drawn one is relative to the checkpoint interval, which a pilot may have
    to find out: within interval `turn` (from save `turn` to the next one), `share` of the way; see schedule.settle.
    `after`: it strikes in an attempt that began after that fault of the same launch, at its moment, at any step.
    """

    id: str  # unique in the launch; fit for a file name
    kind: str
    at: str  # one of bench.config.MOMENTS
    step: int
    node: int
    local_rank: int
    options: dict[str, Any] = field(default_factory=dict)
    turn: int | None = None  # None: `step` was given
    share: float = 0.0  # 0 <= share < 1
    after: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def planned_from_json(record: dict[str, Any]) -> Planned:
    return Planned(**record)


def unhealthy_flag(requests_dir: Path, node: int, local_rank: int) -> Path:
    """The file that names the process of a slot which is unhealthy (its pid); a layer's health check looks for it."""
    return requests_dir / f"unhealthy-n{node}-r{local_rank}"


def no_children() -> list[int]:
    return []


@dataclass(frozen=True)
class Scene:
    """A rank in one attempt, as a fault sees it."""

    faults_dir: Path  # the launch's records of faults, seen by all nodes
    requests_dir: Path  # of this node alone: what its ranks ask of its runner
    checkpoint_dir: Path  # of the launch's arm
    node: int
    local_rank: int
    rank: int
    token: str  # of the run; see bench.supervise
    device: Literal["cpu", "cuda"]
    children: Callable[[], list[int]] = no_children  # pids of this rank's writer processes; see victims.writers

    @property
    def unhealthy(self) -> Path:
        return unhealthy_flag(self.requests_dir, self.node, self.local_rank)


@dataclass(frozen=True)
class Site:
    """A node in one launch, as its runner sees it. What is None is not there, and faults that need it are unavailable.

    `interface`, `netns`: a link made for this run (never one that others use), and the named network namespace it is
    in; None: the runner's own. `lose`: ends all of the launch's processes on this node at once, and sees to its return.
    """

    faults_dir: Path
    requests_dir: Path
    checkpoint_dir: Path  # of the launch's arm, and named like it
    node: int
    token: str
    device: Literal["cpu", "cuda"]
    interface: str | None = None
    netns: str | None = None
    lose: Callable[[Planned], None] | None = None


class Fault(ABC):
    """Common to both kinds below. Instances hold no state."""

    name: ClassVar[str]
    actor: ClassVar[Literal["rank", "runner"]]
    moments: ClassVar[tuple[str, ...]] = MOMENTS  # the first is the default of a drawn one
    expects: ClassVar[str]  # what an observer sees, one sentence for the report
    needs: ClassVar[str] = ""  # in a few words; "": nothing special
    options: ClassVar[dict[str, Option]] = {}
    saves_before: ClassVar[int] = 1  # checkpoints that must exist when it strikes
    tolerated: ClassVar[bool] = False  # True: nothing has to start again
    by_hand: ClassVar[str] = ""  # how a person takes away what `undo` could not

    def defaults(self) -> dict[str, Any]:
        """All options with their values by default."""
        return {name: value[0] if isinstance(value, tuple) else value for name, value in self.options.items()}

    def option(self, planned: Planned, name: str) -> Any:
        return (self.defaults() | planned.options)[name]

    def unavailable(self, planned: Planned, site: Site) -> str | None:
        """Why this node cannot do it, found out by trying, or None. Called by the runner before a launch."""
        return None

    def undo(self, record: dict[str, Any]) -> dict[str, Any]:
        """Take away what the fault left, by its record; called by the runner, maybe twice. Returns the evidence found.

        Raises OSError for what cannot be taken away.
        """
        return {}


class RankFault(Fault):
    """Strikes in the rank itself, in the thread that trains."""

    actor = "rank"

    def prepare(self, planned: Planned, scene: Scene) -> dict[str, Any] | None:
        """What is to be on record before it strikes; None: there is nothing to strike now, look again later."""
        return {}

    @abstractmethod
    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> Iterator[None] | None:
        """Do it; `details` are those of `prepare`, by now on record.

        What is returned is advanced before every further step until it ends: a fault that lasts. Raises Missed.
        """


class NodeFault(Fault):
    """Strikes a node from outside of its ranks: the first rank of the node asks, the runner acts."""

    actor = "runner"
    restores: ClassVar[tuple[str, ...]] = ()  # details that `undo` puts back; a launch's first fault knows how it was

    def prepare(self, planned: Planned, site: Site) -> dict[str, Any]:
        """What is to be on record before it strikes, enough to undo it. Raises OSError."""
        return {}

    @abstractmethod
    def strike(self, planned: Planned, site: Site, details: dict[str, Any]) -> None:
        """Do it; `details` are those of `prepare`, by now on record. Raises OSError where the machine refuses."""

    def lifted_after_s(self, planned: Planned) -> float | None:
        """Seconds after which the runner undoes it while the launch goes on; None: not before the launch's end."""
        return None

    def touches(self, details: dict[str, Any]) -> tuple[str, ...] | None:
        """Names what it changes, which other faults of its kind, also of other nodes, may change at the same time.

        It is as before once the last of them is lifted. None: what this fault changes is its own.
        """
        return None
