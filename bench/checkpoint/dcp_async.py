"""Asynchronous in DCP's format with torch's own means: what saving from a thread and from a process share.

save() stages the state into host memory (torch's DefaultStager, its memory kept from save to save) and hands it to
dcp.async_save, which plans, writes and commits in the background, over a process group of its own.
"""

from __future__ import annotations

import resource
from abc import abstractmethod
from concurrent.futures import Future
from typing import Any, ClassVar

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint.planner import SavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from bench.checkpoint import folders
from bench.checkpoint.base import CheckpointError, Context, Tree
from bench.checkpoint.dcp import Dcp, Writer, reasons
from bench.checkpoint.together import Together
from bench.record import clock


class DcpAsync(Dcp, Together):
    kind: ClassVar[AsyncCheckpointerType]

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._stager: Stager | None = None
        self._future: Future[Any] | None = None

    @abstractmethod
    def _writer(self, target: folders.Target) -> Writer: ...

    @abstractmethod
    def _planner(self) -> SavePlanner | None: ...

    def _save(self, step: int, tree: Tree, save: int) -> None:
        with self.phase("wait_previous"):
            self._begin_together()
        target = self.target(step, save)
        try:
            with self.phase("plan"):
                described, group = self.described(tree), self._group.get()
                stager = self._stager = self._stager or Stager(self.context.device, self.kind)
            self._future = dcp.async_save(  # type: ignore[assignment]
                described,
                storage_writer=self._writer(target),
                planner=self._planner(),
                process_group=group,
                async_checkpointer_type=self.kind,
                async_stager=stager,
            )
        except (CheckpointException, CheckpointError, OSError, RuntimeError, ValueError) as error:
            raise self._give_up(target, reasons(error)) from error
        self._phases += [["stage", *stager.staged], ["enqueue", stager.staged[1], clock()]]
        self._handed_over(target)

    def poll(self) -> bool:
        target, future = self._in_flight, self._future
        if target is None or future is None:
            return True
        if not future.done():
            if reason := self._overdue():
                raise self._give_up(target, reason)
            return False
        error = future.exception()
        if error is not None:
            raise self._give_up(target, self._death() or reasons(error)) from error
        self._in_flight = None
        return True

    def _end_writer(self) -> None:
        ended = self._end_background(self._future)
        if ended and self.context.rank == 0:  # nobody can rename it any more
            folders.clear_leftovers(self.context.directory)
        self._future, self._stager = None, None  # not closed: a thread that still runs may be reading what was staged

    @abstractmethod
    def _end_background(self, future: Future[Any] | None) -> bool:
        """End what runs in the background; False if it could not be ended in time."""


class Stager(DefaultStager):
    """Copies the state to host memory before save() goes on, and notes when. Must be idle when it is used again."""

    def __init__(self, device: str, kind: AsyncCheckpointerType) -> None:
        cuda, shared = device == "cuda", kind == AsyncCheckpointerType.PROCESS
        if shared:
            allow_many_files()
        # Not in the background, where it would race with the optimizer; pinned memory needs an accelerator.
        super().__init__(StagingOptions(cuda, shared, use_async_staging=False, use_non_blocking_copy=cuda))
        self.staged: tuple[float, float] = (0.0, 0.0)

    def stage(self, state_dict: Tree, **options: Any) -> Any:
        t_begin = clock()
        staged = super().stage(state_dict, **options)
        self.staged = (t_begin, clock())
        return staged


def allow_many_files() -> None:
    """Raise the limit of open files as far as it goes: every tensor in shared memory holds one open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
