"""What a checkpoint strategy is: the contract that every file of this folder fulfils.

A strategy sees the training state as a nested dict (`tree`) whose tensors alias live parameters and may be DTensors. It
must write the values that they have at the moment of the call, whatever the trainer does afterwards. The public methods
stand guard (one save in flight, order, deadlines, time stamps); a variant fills in the hooks below them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.checkpoint.page_cache import files_below
from bench.checkpoint.storage import step_dir
from bench.record import Recorder, clock

Tree = dict[str, Any]


class CheckpointError(RuntimeError):
    """A save or load failed for good: the writer died, the disk is full, the deadline passed. Training may go on."""


class WrongWorldSize(CheckpointError):
    """A sharded checkpoint is to be loaded at another world size than it was written at, which its format cannot do."""


@dataclass(frozen=True)
class Context:
    """Where and for whom a strategy works. `directory` belongs to this arm alone."""

    directory: Path
    rank: int
    world_size: int
    node: int
    local_rank: int
    device: str  # "cpu" or "cuda"
    incarnation: str  # of the job: the same on all ranks, another after each restart; part of temporary names
    recorder: Recorder
    events_dir: Path  # writers put their own event files here
    meta: dict[str, Any]  # identity of this slot for those files: launch, node, local_rank, rank, world_size, ...
    arm: str = ""  # "": named like the strategy
    fsync: bool = True
    keep: int = 2  # newest complete checkpoints to keep
    deadline_s: float = 120.0  # longest that a writer may go without finishing
    options: dict[str, Any] = field(default_factory=dict)
    agree_min: Callable[[int], int] = lambda value: value  # minimum of an int over all ranks; collective
    on_phase: Callable[[str], None] = lambda name: None  # told of every sub-phase of a save as it begins


class Strategy(ABC):
    """One way to save. All ranks call the same methods in the same order; none of them may wait for ever."""

    name: str = ""
    background = False  # True: save() returns before the data are durable
    keeps_checkpoints = True  # False: there is nothing on disk to read back
    reshards = False  # True: load() works at any world size
    always_fsyncs = False  # True: syncs what it writes whatever storage.fsync says
    slowdown = 1.0  # how many times longer paced steps take during a write (calibration only)

    def __init__(self, context: Context) -> None:
        self.context = context
        self.name = context.arm or self.name  # events and messages speak of the arm
        self._phases: list[list[Any]] = []

    def save(self, step: int, tree: Tree, save: int) -> list[list[Any]]:
        """Save `tree` as the state after `step` steps. `save` numbers this arm's saves in the launch.

        Returns the sub-phases [[name, t0, t1], ...] (monotonic seconds). Raises CheckpointError.
        """
        self._phases = []
        self._save(step, tree, save)
        return self._phases

    def poll(self) -> bool:
        """True when no write is in flight on this rank. Never blocks; raises CheckpointError for a failed writer."""
        return True

    def drain(self) -> None:
        """Wait until nothing is in flight, at most `deadline_s`; raises CheckpointError."""
        end = time.monotonic() + self.context.deadline_s
        while not self.poll():
            if time.monotonic() > end:
                raise CheckpointError(f"{self.name}: a write was still unfinished after {self.context.deadline_s} s")
            time.sleep(0.002)

    def newest(self) -> int | None:
        """Step of the newest complete checkpoint in the directory, or None. Torn ones are never chosen."""
        return None

    def files(self, step: int) -> list[Path]:
        """The files of a checkpoint that this host sees."""
        return files_below(step_dir(self.context.directory, step))

    def discard(self, step: int) -> None:
        """Delete the files of a checkpoint that cannot be read, so that the one before it becomes the newest."""
        for path in self.files(step):
            path.unlink(missing_ok=True)

    def load(self, step: int, like: Tree) -> Tree:
        """The tree saved at `step`, cut for this world size: local tensors on the CPU, or DTensors as those of `like`.

        `like`: the live tree, for formats that must know what is asked for; its values are neither read nor changed. A
        rank that did not exist then gets no entries of its own (random state). Raises CheckpointError, WrongWorldSize.
        """
        raise CheckpointError(f"{self.name} keeps no checkpoints, so there is nothing to load")

    def close(self) -> None:
        """End writers without waiting for their work; idempotent; never hangs."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        t0 = clock()
        self.context.on_phase(name)
        try:
            yield
        finally:
            self._phases.append([name, t0, clock()])

    @abstractmethod
    def _save(self, step: int, tree: Tree, save: int) -> None: ...
