"""Asynchronous through NVRx's LocalCheckpointManager: every rank's shard in storage of its own node.

The directory must be node-local. Option `replication`: how many nodes hold each shard (0: one); the copies travel
between devices before save() returns, which is part of "stage". Finalizing, choice and replication are the library's.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.base_manager import CheckpointingException

from bench.checkpoint import nvrx, staging, storage, trees
from bench.checkpoint.base import CheckpointError, Context, Tree, WrongWorldSize
from bench.checkpoint.nvrx_manager import LocalTree, Manager, Place, clique, session, world_sizes
from bench.checkpoint.nvrx_together import NvrxTogether
from bench.checkpoint.together import Later
from bench.checkpoint.writer import Home, home_of, settle
from bench.record import clock


class Target(NamedTuple):
    arm: str
    save: int
    step: int


class NvrxLocal(NvrxTogether):
    name = "nvrx_local"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._place = Place(str(context.directory), session(context.world_size), context.rank, context.fsync)
        self._events = Later()
        self._manager: Manager | None = None
        self._status: torch.Tensor | None = None  # the page on which the writer says how it went
        self._finalize_fn: Callable[[], None] | None = None
        try:
            self._place.folder.mkdir(parents=True, exist_ok=True)
            self._clear_unfinished()
        except OSError as error:
            reason = storage.describe(error)
            raise CheckpointError(f"{self.name}: {context.directory} is not usable: {reason}") from error

    @property
    def manager(self) -> Manager:
        """Made when first needed: with replication that is collective."""
        if self._manager is None:
            replication = int(self.context.options.get("replication", 0))
            strategy = clique(replication, self.context) if replication else None
            self._manager = Manager(self._place, self.context.keep, self._events, self.name, strategy)
        return self._manager

    def _save(self, step: int, tree: Tree, save: int) -> None:
        with self.phase("wait_previous"):
            self._begin_together()
        target = Target(self.name, save, step)
        self._attempted(target, self._attempt(target, tree))

    def _attempt(self, target: Target, tree: Tree) -> str | None:
        """Copy and hand over. Returns why it failed, or None."""
        context = self.context
        try:
            with self.phase("plan"):
                self._withdraw(target.step)
                self._start()
                local = LocalTree(trees.localize(tree), context.device if self.manager.repl_strategy else None)
            with self.phase("stage"), nvrx.cuda_shim(context.device):
                request = self.manager.save(local, target.step, is_async=True)
            with self.phase("enqueue"):
                self._hand_over(target, *request.async_fn_args)
            (self._finalize_fn,) = request.finalize_fns
        except (CheckpointError, CheckpointingException, OSError, RuntimeError) as error:
            return storage.describe(error)
        return None

    def _start(self) -> None:
        if self._watch is None:
            self._watch = nvrx.WriterWatch(nvrx.make_queue(), self.context.deadline_s)
            self._status = torch.zeros(staging.STATUS_BYTES, dtype=torch.uint8).share_memory_()

    def _hand_over(self, target: Target, shards: dict[Any, LocalTree]) -> None:
        assert self._watch is not None
        assert self._status is not None
        self._status[0] = staging.PENDING
        # The library would send its manager along, whose process groups no queue can carry.
        write = partial(write_shards, home_of(self.context), target, self._place)
        with self._watch.handing_over():
            self._watch.queue.schedule_async_request(nvrx.make_request(write, (self._status, shards)))

    def _refused(self) -> str | None:
        assert self._status is not None
        state, reason = staging.read_status(self._status)
        return None if state == staging.DONE else reason or "the writer left no status"

    def _finalize(self) -> str | None:
        """The library's: all ranks compare which shards are there, then old ones are deleted in a thread."""
        assert self._finalize_fn is not None
        try:
            self._finalize_fn()
        except CheckpointingException as error:
            return storage.describe(error)
        finally:
            self._events.reach(self.context.recorder)  # of the save before this one
        return None

    def _failure(self, target: Target, reason: str) -> CheckpointError:
        self.context.recorder.instant("failed", arm=self.name, save=target.save, reason=reason)
        return CheckpointError(f"{self.name}: save {target.save} at step {target.step} failed: {reason}")

    def _end_writer(self) -> None:
        super()._end_writer()
        self._status, self._finalize_fn = None, None
        with suppress(OSError):
            self._clear_unfinished()

    def _clear_unfinished(self) -> None:
        for path in self._place.folder.glob("*.dirty.pt"):
            path.unlink(missing_ok=True)

    def _withdraw(self, step: int) -> None:
        """Delete this rank's shards of this step and later ones: they stem from an attempt that was rolled back."""
        for found, path in self._place.present():
            if found >= step:
                path.unlink(missing_ok=True)

    def newest(self) -> int | None:
        """Collective: the library compares which shards all ranks have."""
        self.manager.latest_iteration = -1  # what it has in mind may be gone
        found = int(self.manager.find_latest())
        return None if found < 0 else found

    def files(self, step: int) -> list[Path]:
        return sorted(self.context.directory.glob(f"{self._place.session}/*/{storage.local_name(step, '*')}"))

    def load(self, step: int, like: Tree) -> Tree:
        """Collective with replication, where a lost shard comes from another node."""
        manager = self.manager
        if manager.repl_strategy is None and not self._place.file(step).is_file():
            raise self._absent(step)
        try:
            if manager.repl_strategy is not None:
                manager.latest_iteration = -1
                manager.find_latest()
            manager.latest_iteration = step
            return dict(manager.load()[0].state_dict)
        except (CheckpointingException, OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise CheckpointError(
                f"{self.name}: {self._place.file(step)} is not readable: {storage.describe(error)}"
            ) from error
        finally:
            manager.latest_iteration = -1

    def _absent(self, step: int) -> CheckpointError:
        directory, mine = self.context.directory, self.context.world_size
        for size in world_sizes(directory, step):
            if size != mine:
                return WrongWorldSize(
                    f"{self.name}: step {step} in {directory} was written by {size} ranks and cannot be loaded by "
                    f"{mine}: its format keeps each rank's own shard; run with {size} ranks or use one that reshards"
                )
        return CheckpointError(f"{self.name}: {directory} holds no shard of step {step} for rank {self.context.rank}")


# --- in the writer process --------------------------------------------------------------------------------------------


def write_shards(home: Home, target: Target, place: Place, status: torch.Tensor, shards: dict[Any, LocalTree]) -> None:
    """Write this rank's shard, and those it keeps for others. Never raises: the status page says how it went."""
    try:
        settle(home)
        t_begin = clock()
        manager = Manager(place, 0, home, target.arm)
        manager._save_fn(shards)
        size = sum(manager._local_ckpt_path_from_id(ckpt_id).stat().st_size for ckpt_id in shards)
        home.instant("durable", arm=target.arm, save=target.save, step=target.step, bytes=size, t_begin=t_begin)
    except Exception as error:  # noqa: BLE001 - a process boundary
        staging.write_status(status, staging.FAILED, storage.describe(error))
    else:
        staging.write_status(status, staging.DONE)
