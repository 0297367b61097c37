"""Ranks inside inprocess.Wrapper: after a fault it aborts the process group and calls the training function again.

Two things differ from the Wrapper's defaults. Its store is hosted by the node runner, not by rank 0, so that rank 0 is
no special victim. And the abort shuts down the sockets of the training function, since the library aborts NCCL only:
on CPUs gloo is the backend, on GPUs checkpoint strategies talk over it, and ranks wait in the base store for others.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from nvidia_resiliency_ext import inprocess
from nvidia_resiliency_ext.inprocess.store import StoreMixin

from bench.record import Recorder, clock
from bench.recovery import nvrx_versions
from bench.recovery.inside.base import Attempt, Inside, Post, TrainingFunction
from bench.recovery.inside.sockets import open_sockets, shut_down


class RankGivenUp(RuntimeError):
    """The Wrapper will not call the training function in this process again."""


class OutsideStore(dist.PrefixStore, StoreMixin):  # type: ignore[misc]
    """A client of a store that outlives every rank; no rank has to wait at the end for the others to have read it."""

    def __init__(self, host: str, port: int, prefix: str, timeout: timedelta) -> None:
        super().__init__(prefix, dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout))

    @property
    def critical_ranks(self) -> tuple[int, ...]:
        return ()

    def termination_barrier(self, ranks: Iterable[Any], **arguments: Any) -> None:
        """A rank that was lost together with its monitor is named as the store gave it, in bytes: the library's barrier
        would fail on that at the end of every survivor."""
        super().termination_barrier(ranks=[int(rank) for rank in ranks], **arguments)


class Start(inprocess.initialize.Initialize):  # type: ignore[misc]
    """Before each call: notes which sockets are not the training function's, and whether this rank waits as reserve."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.sockets: frozenset[str] = frozenset()

    def __call__(self, state: Any) -> Any:
        self.sockets = open_sockets()
        if state.mode == inprocess.state.Mode.INACTIVE:
            self.recorder.instant("reserve")
        return state


class Abort(inprocess.abort.Abort):  # type: ignore[misc]
    """Wakes the training function out of whatever collective it waits in. Runs in the Wrapper's own thread.

    NCCL is aborted first, whose watchdog would end the process over connections that break under it; what else waits
    does so on a connection that the training function has opened. Groups are destroyed when nobody waits in them.
    """

    def __init__(self, start: Start, device: str) -> None:
        self.start = start
        self.device = device
        self.times: list[tuple[str, float]] = []

    def __call__(self, state: Any) -> Any:
        self.times.append(("abort", clock()))
        if self.device == "cuda" and dist.is_initialized():
            inprocess.abort.AbortTorchDistributed.shutdown_all_process_group_backends()  # none of gloo's
        shut_down(self.start.sockets)
        if dist.is_initialized():
            dist.destroy_process_group()
        self.times.append(("aborted", clock()))
        return state


class Finish(inprocess.finalize.Finalize):  # type: ignore[misc]
    """After each fault, in the training thread, which has this rank's GPU as its own: records the abort, which must not
    write beside that thread, and what memory it has left in use."""

    def __init__(self, abort: Abort, recorder: Recorder, device: str) -> None:
        self.abort = abort
        self.recorder = recorder
        self.device = device

    def __call__(self, state: Any) -> Any:
        times, self.abort.times = self.abort.times, []
        used = device_used_bytes() if times and self.device == "cuda" else None
        for name, t in times:
            about = {"device_bytes": used} if name == "aborted" and used is not None else {}
            self.recorder.instant(name, t, **about)
        return state


def device_used_bytes() -> int | None:
    """Memory in use on this rank's GPU, by whomever; None where CUDA has not started or the fault has broken it."""
    if not torch.cuda.is_initialized():
        return None
    try:
        free, total = torch.cuda.mem_get_info()
    except RuntimeError:
        return None
    return total - free


class Healthy(inprocess.health_check.HealthCheck):  # type: ignore[misc]
    """Fails in the process that a fault of kind health_check_failure has struck."""

    def __init__(self, flag: Path | None) -> None:
        self.flag = flag

    def __call__(self, state: Any) -> Any:
        if self.flag is not None and self.flag.exists() and self.flag.read_text() == str(os.getpid()):
            raise RuntimeError(f"{self.flag.name}: this rank is marked unhealthy")
        return state


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def make_wrapper(post: Post, prefix: str) -> Any:
    """The Wrapper of this rank. Compose calls what it lists last first."""
    limits = post.limits
    start = Start(post.recorder)
    abort = Abort(start, post.device)
    checks = [Healthy(post.unhealthy_flag)]
    if post.device == "cuda":
        checks.append(inprocess.health_check.CudaHealthCheck(timeout=seconds(limits.soft_s)))
    calls = None if post.max_restarts is None else post.max_restarts + 1
    interval = seconds(limits.in_process_interval_s)
    wrapper = inprocess.Wrapper(
        store_factory=OutsideStore,
        store_kwargs={
            "host": post.host,
            "port": post.wrapper_port,
            "prefix": prefix,
            "timeout": seconds(limits.rendezvous_s),
        },
        initialize=inprocess.Compose(start, inprocess.initialize.RetryController(max_iterations=calls)),
        abort=abort,
        finalize=Finish(abort, post.recorder, post.device),
        health_check=inprocess.Compose(*checks),
        rank_assignment=inprocess.Compose(
            inprocess.rank_assignment.MaxActiveWorldSize(post.active), inprocess.rank_assignment.ShiftRanks()
        ),
        monitor_thread_interval=interval,
        monitor_process_interval=interval / 2,  # it looks only after so long without a message, one of which comes ...
        heartbeat_interval=interval,
        progress_watchdog_interval=interval,  # ... every interval: with both alike, it finds a hang seconds late
        soft_timeout=seconds(limits.soft_s),
        hard_timeout=seconds(limits.hard_s),
        heartbeat_timeout=seconds(limits.missing_rank_s),
        barrier_timeout=seconds(limits.barrier_s),
        completion_timeout=seconds(limits.completion_s),
        last_call_wait=seconds(limits.last_call_s),
        termination_grace_time=seconds(limits.grace_s),
    )
    nvrx_versions.mend_wrapper(wrapper, post.device)
    return wrapper


# Attribute of the Wrapper -> name in Timeouts.
WRAPPER_TIMES = {
    "soft_timeout": "soft_s",
    "hard_timeout": "hard_s",
    "termination_grace_time": "grace_s",
    "heartbeat_timeout": "missing_rank_s",
    "monitor_thread_interval": "in_process_interval_s",
    "last_call_wait": "last_call_s",
    "barrier_timeout": "barrier_s",
    "completion_timeout": "completion_s",
}


class InProcessInside(Inside):
    layer = "in_process"

    def __init__(self, post: Post) -> None:
        super().__init__(post)
        self._calls: Any = None  # the running CallWrapper

    def _generation(self) -> str:
        """Names this start of the ranks; restarts in place count within it."""
        return f"start-{self.post.restarts}"

    def _run(self, train: TrainingFunction) -> None:
        logging.basicConfig(level=logging.WARNING)  # else the library says nowhere why it gave a rank up
        generation = self._generation()
        wrapper = make_wrapper(self.post, generation)
        try:
            with inprocess.CallWrapper(wrapper) as self._calls:
                self._calls(lambda: self._attempt(train, generation), (), {})
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # BaseException: RestartAbort is none of Exception's, and the process must end as after any other error.
            raise RankGivenUp(f"{type(error).__name__}: {error}") from error

    def _attempt(self, train: TrainingFunction, generation: str) -> None:
        state = self._calls.state
        group = f"{generation}-{state.iteration}"
        self._call(train, Attempt(self.attempts, group, state.active_rank, state.active_world_size))

    def beat(self) -> None:
        if self._calls is not None:
            self._calls.ping()

    def starting(self) -> None:
        InProcessInside.beat(self)  # of the Wrapper alone, whatever else a nested layer beats

    def effective(self) -> dict[str, float]:
        wrapper = self._calls.wrapper
        times = {name: getattr(wrapper, attribute).total_seconds() for attribute, name in WRAPPER_TIMES.items()}
        return super().effective() | times
