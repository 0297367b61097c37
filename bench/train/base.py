"""What the loop knows of a training state: the contract that the trained and the merely held state fulfil."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from bench.checkpoint.trees import local_tensor

Tree = dict[str, Any]
Section = Literal["setup", "step", "checkpointing"]


class Watch(Protocol):
    """What a recovery layer wants to hear from a rank (bench.recovery.inside.base.Inside)."""

    def beat(self) -> None: ...

    def section(self, name: Section) -> AbstractContextManager[None]: ...


class Strikes(Protocol):
    """What strikes a rank at given moments of its training (bench.faults.trigger.Trigger)."""

    def reach(self, moment: str, step: int) -> None: ...


class Undisturbed:
    """Nobody listens and nothing strikes: the null object of both."""

    def beat(self) -> None: ...

    def section(self, name: Section) -> AbstractContextManager[None]:
        return nullcontext()

    def reach(self, moment: str, step: int) -> None: ...


class StateMismatch(RuntimeError):
    """A tree does not fit this state: other names, shapes or dtypes. Nothing was changed."""


class TrainState(ABC):
    """What a checkpoint holds, and how far training is: `step` updates made, `position` samples seen.

    `position` counts over all ranks. All methods but skip_step are collective.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.step = 0
        self.position = 0

    @abstractmethod
    def train_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One update from this rank's batch, each [B, T] int64. Returns its loss []; no device synchronisation."""

    def skip_step(self, samples: int) -> None:
        """Count a step of `samples` samples (over all ranks) without computing it."""
        self.step += 1
        self.position += samples

    @abstractmethod
    def tree(self) -> Tree:
        """Everything that an exact resume needs, as a nested dict; tensors may be DTensors and alias the live ones."""

    @abstractmethod
    def restore(self, tree: Tree) -> None:
        """Take over a tree of local tensors or DTensors, in place and bit by bit; StateMismatch changes nothing.

        Its shards must have been cut for this world size.
        """


def paired(mine: Tree, saved: Tree, path: str = "") -> Iterator[tuple[Tensor, Tensor]]:
    """Local tensors of two trees side by side; StateMismatch where names, shapes or dtypes differ."""
    if mine.keys() != saved.keys():
        raise StateMismatch(f"{path or 'tree'}: names differ in {sorted(mine.keys() ^ saved.keys())}")
    for name, here in mine.items():
        there, where = saved[name], f"{path}/{name}"
        if isinstance(here, dict):
            yield from paired(here, there, where)
            continue
        pair = local_tensor(here), local_tensor(there)
        expected, found = ((tensor.dtype, tuple(tensor.shape)) for tensor in pair)
        if expected != found:
            raise StateMismatch(f"{where}: {found} in the tree, {expected} here")
        yield pair


def require_names(tree: Tree, *names: str) -> None:
    if missing := set(names) - tree.keys():
        raise StateMismatch(f"the tree lacks {sorted(missing)}")
