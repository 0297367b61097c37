"""Asynchronous through NVRx: the trainer stages its shard and trains on, a writer process makes it durable.

Two ways, by `options["api"]`:
  queue        NVRx's AsyncCallsQueue runs this suite's own function (bench.checkpoint.writer): same format, fsync and
               rename as sync_local, and the writer itself stamps the moment at which the shard is durable.
  torch_async  the published TorchAsyncCheckpoint.async_save, as it comes: torch.save in the writer, no fsync. It names
               no moment of completion, so the shard is renamed and stamped when a poll of the trainer learns of it:
               later than the truth by up to one step. Its copy of CUDA tensors is part of "enqueue".
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Protocol

from bench.checkpoint import nvrx, staging, storage, trees, writer
from bench.checkpoint.base import CheckpointError, Context, Tree
from bench.checkpoint.sharded import Sharded
from bench.errors import BadInput, near
from bench.record import clock

Phase = Callable[[str], AbstractContextManager[None]]


class WriterReported(CheckpointError):
    """The writer could not write, and has put that on record itself."""


class Api(Protocol):
    """One way into the library; serves one write at a time and lives as long as its writer process."""

    watch: nvrx.WriterWatch

    def submit(self, target: storage.Target, tree: Tree, phase: Phase) -> None:
        """Take the values that `tree` has now, and have them written. Raises CheckpointError, OSError."""

    def settle(self, target: storage.Target) -> None:
        """Called once when the writer has finished. Raises CheckpointError if the shard was not written."""

    def release(self) -> None:
        """Give memory back; the writer has ended."""


class NvrxAsync(Sharded):
    name = "nvrx_async"
    background = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        api = context.options.get("api", "queue")
        if api not in APIS:
            raise BadInput(f"checkpoint.api: unknown way {api!r}; {near(api, APIS)}")
        self._make_api = APIS[api]
        self._api: Api | None = None  # made by the first save, which pays for it; made anew after a failure
        self._in_flight: storage.Target | None = None
        self._closed = False

    @property
    def writer_pid(self) -> int | None:
        return None if self._api is None else self._api.watch.pid

    def _save(self, step: int, tree: Tree, save: int) -> None:
        if self._closed:
            raise CheckpointError(f"{self.name}: closed")
        with self.phase("wait_previous"):
            self.drain()
        self._in_flight = self.target(step, save)
        try:
            if self._api is None:
                self._api = self._make_api(self.context)
            self._api.submit(self._in_flight, tree, self.phase)
        except (CheckpointError, OSError) as error:
            reason = str(error) if isinstance(error, CheckpointError) else storage.describe(error)
            raise self._give_up(reason) from error

    def poll(self) -> bool:
        if self._api is None:
            return True
        try:
            if not self._api.watch.finished():
                return False
            if self._in_flight is not None:
                self._api.settle(self._in_flight)
                self._in_flight = None
            self._api.watch.check_alive()  # a writer that died between saves is noticed before the next one needs it
        except WriterReported as error:
            raise self._give_up(str(error), record=False) from error
        except CheckpointError as error:
            raise self._give_up(str(error)) from error
        return True

    def _give_up(self, reason: str, record: bool = True) -> CheckpointError:
        """Puts a failure on record and returns the error that tells it, once. The next save starts a new writer."""
        target = self._discard()
        if target is None:
            return CheckpointError(f"{self.name}: between saves: {reason}")
        if record:
            self.context.recorder.instant("failed", arm=self.name, save=target.save, reason=reason)
        return CheckpointError(f"{self.name}: save {target.save} at step {target.step} failed: {reason}")

    def _discard(self) -> storage.Target | None:
        """End the writer, whatever it does. Returns what it was writing."""
        api, target = self._api, self._in_flight
        self._api, self._in_flight = None, None
        if api is not None:
            api.watch.end()
            api.release()
        if target is not None:
            with suppress(OSError):
                target.temporary.unlink(missing_ok=True)  # a writer that is killed cannot remove it itself
        return target

    def close(self) -> None:
        self._closed = True
        self._discard()


class QueueApi:
    """AsyncCallsQueue with the suite's own function, reading from one block of shared memory."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stage = staging.Stage(context.device)
        self.watch = nvrx.WriterWatch(nvrx.make_queue(), context.deadline_s)

    def submit(self, target: storage.Target, tree: Tree, phase: Phase) -> None:
        with phase("plan"):
            storage.withdraw(target)
            layout = staging.lay_out(trees.localize(tree))
        first = self._stage.block is None
        with phase("stage"):
            staged = self._stage.fill(layout)
        if first and self._stage.pinned is not None:
            self._context.recorder.instant("staging", arm=target.arm, pinned=self._stage.pinned)
        with phase("enqueue"), self.watch.handing_over():
            request = nvrx.make_request(writer.write_staged, (self._job(target), staged))
            self.watch.queue.schedule_async_request(request)

    def _job(self, target: storage.Target) -> writer.Job:
        context = self._context
        return writer.Job(target, str(context.events_dir), json.dumps(context.meta), os.getpid())

    def settle(self, target: storage.Target) -> None:
        if self._stage.block is None:
            raise CheckpointError("the staging memory is gone")
        state, reason = staging.read_status(self._stage.block)
        if state != staging.DONE:
            raise WriterReported(reason or "the writer left no status")

    def release(self) -> None:
        self._stage.release()


class TorchAsyncApi:
    """TorchAsyncCheckpoint.async_save, with what it needs to be correct and no more."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._checkpoint, queue = nvrx.make_torch_checkpoint(context.device)
        self.watch = nvrx.WriterWatch(queue, context.deadline_s)
        self._t_begin = 0.0

    def submit(self, target: storage.Target, tree: Tree, phase: Phase) -> None:
        with phase("plan"):
            storage.withdraw(target)
            storage.retire(target, self._context.recorder)
            target.final.parent.mkdir(exist_ok=True)
            local = trees.localize(tree)
        with phase("stage"):
            # The library copies CUDA tensors but hands on those of the CPU as they are, and the writer then finds in
            # them what the trainer has made of them since.
            local = trees.map_leaves(trees.own_cpu_tensor, local)
        with phase("enqueue"), self.watch.handing_over(), nvrx.cuda_shim(self._context.device):
            self._t_begin = clock()
            self._checkpoint.async_save(local, str(target.temporary))  # on CUDA: copies to the host, then synchronizes

    def settle(self, target: storage.Target) -> None:
        recorder = self._context.recorder
        try:
            size = target.temporary.stat().st_size
            storage.publish(target, size, self._t_begin, recorder)
            storage.retire(target, recorder)
        except OSError as error:
            raise CheckpointError(storage.describe(error)) from error

    def release(self) -> None:
        return None


APIS: dict[str, Callable[[Context], Api]] = {"queue": QueueApi, "torch_async": TorchAsyncApi}
