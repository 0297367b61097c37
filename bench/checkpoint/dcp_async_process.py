"""Asynchronous in DCP's format, from a process beside each trainer (AsyncCheckpointerType.PROCESS).

torch starts that process in the background of the first save and keeps it; the processes of all ranks form a group of
their own. torch has no way to give it up, so this file knows three of its private names: where it is kept, its process,
and its request to end.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar

from torch.distributed.checkpoint import _async_process_executor as executor
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from bench.checkpoint import folders
from bench.checkpoint.dcp import Writer
from bench.checkpoint.dcp_async import DcpAsync
from bench.checkpoint.processes import ASK_S, death, is_running, stop
from bench.checkpoint.writer import Home, home_of, recorder_of


class DcpAsyncProcess(DcpAsync):
    name = "dcp_async_process"
    kind = AsyncCheckpointerType.PROCESS

    @property
    def writer_pid(self) -> int | None:
        process = Daemon.process()
        return None if process is None else process.pid

    def _writer(self, target: folders.Target) -> Writer:
        return DaemonWriter(target, home_of(self.context))

    def _planner(self) -> None:
        return None

    def _death(self) -> str | None:
        process = Daemon.process()
        return None if process is None else death(process)

    def _end_background(self, future: Future[Any] | None) -> bool:
        Daemon.end(busy=future is not None and not future.done())
        return True


class Daemon(executor._AsyncCheckpointProcess):
    """torch's process, known from its start on and not only when it is ready: it must be possible to end it before."""

    newest: ClassVar[Daemon | None] = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        Daemon.newest = self
        super().__init__(*arguments, **options)

    @classmethod
    def process(cls) -> Any:
        """The multiprocessing.Process, or None as long as it has not started."""
        process = getattr(cls.newest, "_save_process", None)
        return None if process is None or process.pid is None else process

    @classmethod
    def end(cls, busy: bool) -> None:
        """Ask it to end if it is idle, then make sure. torch starts a new one when it is needed again."""
        if busy:
            cls._await_start()
        process, daemon = cls.process(), cls.newest
        cls.newest, executor._CHECKPOINT_PROCESS = None, None
        if process is None or daemon is None:
            return
        if not busy and is_running(process):
            with suppress(OSError):
                daemon._send(executor._CheckpointSaveProcessControlOpts.TERMINATE)
                process.join(ASK_S)
        stop(process, close=False)  # torch looks at it once more when it drops the object

    @classmethod
    def _await_start(cls) -> None:
        """A save is on its way, so the process exists or is about to: torch starts it in a thread."""
        end = time.monotonic() + ASK_S
        while cls.process() is None and time.monotonic() < end:
            time.sleep(0.001)


executor._AsyncCheckpointProcess = Daemon  # type: ignore[misc]


class DaemonWriter(Writer):
    """Travels to the process with each save; the first one makes the process at home."""

    events: Home

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        settle(self.events)
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)


@cache
def settle(home: Home) -> None:
    logging.getLogger().setLevel(logging.WARNING)  # torch sets it to INFO there, for all libraries
    recorder_of(home.events_dir, home.meta)  # its pid is on record
    follow(home.trainer_pid)


def follow(trainer_pid: int) -> None:
    """End this process when the trainer has ended, however that came.

    Not by the kernel's parent-death signal: it goes by the thread that started this process, and torch's has ended.
    """
    try:
        trainer = os.pidfd_open(trainer_pid)
    except ProcessLookupError:
        os._exit(1)
    threading.Thread(target=_exit_after, args=(trainer,), daemon=True).start()


def _exit_after(trainer: int) -> None:
    select.select([trainer], [], [])
    os._exit(1)
