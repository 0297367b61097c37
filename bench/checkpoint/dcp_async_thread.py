"""Asynchronous in DCP's format, from a thread of the trainer (AsyncCheckpointerType.THREAD).

The thread competes with the trainer for the interpreter lock. It cannot be killed: one that is to end stops before its
next tensor, or, waiting for a peer that is gone, with an error at the deadline at the latest.
"""

from __future__ import annotations

import io
from concurrent.futures import Future, wait
from threading import Event
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from bench.checkpoint import folders
from bench.checkpoint.base import CheckpointError, Context
from bench.checkpoint.dcp import Writer
from bench.checkpoint.dcp_async import DcpAsync
from bench.checkpoint.together import Later

STOP_S = 3.0  # a thread that is writing ends its tensor; on a slow store that may take longer, and is not waited for


class DcpAsyncThread(DcpAsync):
    name = "dcp_async_thread"
    kind = AsyncCheckpointerType.THREAD

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._stop = Event()
        self._events = Later()

    def _writer(self, target: folders.Target) -> Writer:
        return Writer(target, self._events)

    def _planner(self) -> DefaultSavePlanner:
        return StoppablePlanner(self._stop)

    def poll(self) -> bool:
        try:
            return super().poll()
        finally:
            self._events.reach(self.context.recorder)

    def _death(self) -> str | None:
        return None  # it lives as long as its trainer

    def _end_background(self, future: Future[Any] | None) -> bool:
        self._stop.set()
        self._stop = Event()
        ended = future is None or not wait([future], timeout=STOP_S).not_done
        self._events.reach(self.context.recorder)
        return ended


class StoppablePlanner(DefaultSavePlanner):
    """The default planner, which gives the writer no further tensor once it is told to stop."""

    def __init__(self, stop: Event) -> None:
        super().__init__()
        self._stop = stop

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        if self._stop.is_set():
            raise CheckpointError("the writing thread was told to stop")
        return super().resolve_data(write_item)
