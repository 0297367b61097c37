"""Background strategies whose ranks succeed or fail together, because one checkpoint needs all of them.

A writer that dies is first noticed on its own rank. So that no rank goes on alone, or waits for one that has given up,
every save begins with an agreement on whether all writers are fit; it is part of the save's cost.
"""

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from bench.checkpoint.base import CheckpointError, Context, Strategy
from bench.record import Recorder, clock

DEAD, RENEW, FIT = 0, 1, 2  # of a rank's writer at the start of a save; the smallest one counts for all


class OwnGroup:
    """The ranks over gloo, for one strategy alone: its collectives must not mix with those of the trainer's thread.

    Made when first asked for, collectively. No collective in it waits longer than the deadline; it then raises
    RuntimeError, as it does at once when a peer's process is gone.
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._group: dist.ProcessGroup | None = None

    def get(self) -> dist.ProcessGroup | None:
        """The group; None without torch.distributed, which means this process alone."""
        if self._group is None and dist.is_initialized():
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=self._deadline_s))
        return self._group

    def forget(self) -> None:
        """After a failure some rank may still be in a collective of the old group: the next save makes a new one."""
        self._group = None

    def close(self) -> None:
        group, self._group = self._group, None
        if group is not None and dist.is_initialized():
            dist.destroy_process_group(group)


class Grouped(Strategy):
    """A strategy whose ranks talk to each other in `_group`."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._group = OwnGroup(context.deadline_s)

    def close(self) -> None:
        self._group.close()


class Together(Grouped):
    """One write in flight per rank. A variant says with `_handed_over` that there is one."""

    background = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._in_flight: Any = None  # the save's target
        self._since = 0.0  # when it was handed over
        self._renew = False  # a failure has been told; the other ranks' writers and group must be made anew as well
        self._closed = False

    @abstractmethod
    def _end_writer(self) -> None:
        """End this rank's writer, whatever it does, and drop what was shared with it. Never hangs."""

    @abstractmethod
    def _death(self) -> str | None:
        """How this rank's writer died, or None: it is fit, or not started yet."""

    @abstractmethod
    def _failure(self, target: Any, reason: str) -> CheckpointError:
        """The error of a failed save, put on record where this rank counts as a writer."""

    def _begin_together(self) -> None:
        """Wait for the previous write, then agree with all ranks that there is nothing against another one.

        Collective (`agree_min`). Raises CheckpointError on all ranks if the writer of any has died since the last save.
        """
        if self._closed:
            raise CheckpointError(f"{self.name}: closed")
        failed = self._drain_quietly()
        died = None if failed else self._death()
        verdict = self.context.agree_min(DEAD if failed or died else RENEW if self._renew else FIT)
        if verdict != FIT:
            self._end_writer()
            self._group.forget()
            self._renew = False
        if failed:
            raise failed
        if verdict == DEAD:
            raise CheckpointError(f"{self.name}: between saves: {died or 'the writer of another rank is dead'}")

    def _drain_quietly(self) -> CheckpointError | None:
        try:
            self.drain()
        except CheckpointError as error:
            return error
        return None

    def _handed_over(self, target: Any) -> None:
        self._in_flight, self._since = target, clock()

    def _overdue(self) -> str | None:
        """That the write in flight has passed the deadline, or None."""
        if clock() - self._since <= self.context.deadline_s:
            return None
        return f"the writer did not finish within {self.context.deadline_s} s"

    def _give_up(self, target: Any, reason: str) -> CheckpointError:
        """End the writer and return the error that tells why. The next save starts anew, on all ranks."""
        self._in_flight, self._renew = None, True
        self._end_writer()
        self._group.forget()
        return self._failure(target, reason)

    def close(self) -> None:
        self._closed = True
        self._end_writer()
        if self._in_flight is not None:
            self._group.forget()  # a thread that could not be ended may still be in it
        self._in_flight = None
        super().close()


class Later:
    """Events of another thread with their true times, kept until the trainer's own writes them: one writer a file."""

    def __init__(self) -> None:
        self._noted: list[tuple[str, float, dict[str, Any]]] = []

    def instant(self, name: str, t: float | None = None, **attributes: Any) -> None:
        self._noted.append((name, clock() if t is None else t, attributes))

    def reach(self, recorder: Recorder) -> None:
        while self._noted:
            name, t, attributes = self._noted.pop(0)
            recorder.instant(name, t, **attributes)
