"""NVRx's asynchronous saves that end with a step of all ranks: what nvrx_dcp and nvrx_local share.

The library lets all ranks finalize a save when all their writers have finished, and finds that out by an all-reduce in
every poll, on CUDA. Here it goes over gloo, so that it works on CPU and does not synchronise the device, and carries
failures too: then every rank learns of any rank's failure in the same poll, and none finalizes alone.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any

import torch
import torch.distributed as dist

from bench.checkpoint import nvrx, storage
from bench.checkpoint.base import CheckpointError, Context
from bench.checkpoint.together import Together

FAILED, PENDING, DONE = 0, 1, 2  # the smallest one counts for all


class NvrxTogether(Together):
    """A queue of NVRx and its writer process, watched. A variant hands its requests to `_watch`."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watch: nvrx.WriterWatch | None = None  # made by the first save, which pays for it
        self._failed: str | None = None  # why this rank's part of the save in flight was not even handed over

    @property
    def writer_pid(self) -> int | None:
        return None if self._watch is None else self._watch.pid

    def _attempted(self, target: Any, failed: str | None) -> None:
        """This rank's part of a save is handed over, or has failed, which the next poll will tell to all ranks."""
        self._failed = failed
        self._handed_over(target)

    def poll(self) -> bool:
        """Collective while a save is in flight, and part of its cost: an all-reduce of one integer over gloo."""
        target = self._in_flight
        if target is None:
            return True
        state, reason = self._progress()
        try:
            verdict = self._agree(state)
            if verdict == PENDING:
                return False
            if verdict != FAILED:
                self.context.on_phase("commit")
            failed = self._gather(reason) if verdict == FAILED else self._finalize()
        except RuntimeError as error:
            failed = f"the ranks could not agree: {storage.describe(error)}"
        if failed is not None:
            raise self._give_up(target, failed)
        self._in_flight = None
        return True

    def drain(self) -> None:
        """All ranks leave it in the same poll. It needs no deadline of its own: each rank's writer has one."""
        while not self.poll():
            time.sleep(0.002)

    def _progress(self) -> tuple[int, str | None]:
        """This rank's part: FAILED with the reason, PENDING or DONE."""
        if self._failed is not None:
            return FAILED, self._failed
        try:
            if self._watch is not None and not self._watch.finished():
                return PENDING, None
        except CheckpointError as error:
            return FAILED, str(error)
        reason = self._refused()
        return (DONE, None) if reason is None else (FAILED, reason)

    def _refused(self) -> str | None:
        """Why a writer that has finished could not write, or None."""
        return None

    @abstractmethod
    def _finalize(self) -> str | None:
        """Called on all ranks when all their writers have finished. Returns on all ranks why it failed, or None."""

    def _agree(self, state: int) -> int:
        group = self._group.get()
        if group is None:
            return state
        smallest = torch.tensor([state])
        dist.all_reduce(smallest, dist.ReduceOp.MIN, group=group)
        return int(smallest)

    def _gather(self, reason: str | None) -> str:
        """The reasons of all ranks that have one. Collective."""
        group = self._group.get()
        if group is None:
            return str(reason)
        gathered: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(gathered, reason, group=group)
        if len(set(gathered)) == 1:  # DCP has told all ranks already
            return str(reason)
        return "; ".join(f"rank {rank}: {text}" for rank, text in enumerate(gathered) if text is not None)

    def _death(self) -> str | None:
        return None if self._watch is None else self._watch.death()

    def _end_writer(self) -> None:
        if self._watch is not None:
            self._watch.end()
        self._watch = None
