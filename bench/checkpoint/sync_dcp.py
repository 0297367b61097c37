"""Synchronous in DCP's format: torch.distributed.checkpoint.save, which can be loaded at any world size."""

from __future__ import annotations

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException

from bench.checkpoint import folders
from bench.checkpoint.base import CheckpointError, Tree
from bench.checkpoint.dcp import Dcp, Writer, reasons
from bench.record import clock


class SyncDcp(Dcp):
    name = "sync_dcp"

    def _save(self, step: int, tree: Tree, save: int) -> None:
        target = self.target(step, save)
        t_begin = clock()
        self.context.on_phase("plan")
        try:
            writer = Writer(target, self.context.recorder)
            dcp.save(self.described(tree), storage_writer=writer, process_group=self._group.get())
        except (CheckpointException, CheckpointError, OSError, RuntimeError, ValueError) as error:
            if self.context.rank == 0:
                folders.clear_leftovers(self.context.directory)  # a full store stays full otherwise
            raise self._failure(target, reasons(error)) from error
        self._note_phases(t_begin, writer)

    def _note_phases(self, t_begin: float, writer: Writer) -> None:
        """Planning and commit are collective, and so contain the waiting for slower ranks."""
        t_write, t_commit = writer.t_write_begin, writer.t_write_end
        if t_write is not None and t_commit is not None:
            self._phases += [["plan", t_begin, t_write], ["write", t_write, t_commit], ["commit", t_commit, clock()]]
