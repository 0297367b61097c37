"""NVIDIA Resiliency Extension: what differs between its versions (0.4.1, 0.7.0), and bounds around its writer process.

Two things of the library are never called: a blocking finalize, which waits for ever for a dead writer, and its close,
which begins with one.
"""

from __future__ import annotations

import atexit
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module, metadata
from multiprocessing.managers import SyncManager
from typing import Any

import torch

from bench.checkpoint.base import CheckpointError
from bench.checkpoint.processes import ASK_S, death, die_with, is_running, stop
from bench.record import clock

_CORE = "nvidia_resiliency_ext.checkpointing.async_ckpt.core"
_FILES = "nvidia_resiliency_ext.checkpointing.async_ckpt.filesystem_async"
_TORCH_CKPT = "nvidia_resiliency_ext.checkpointing.async_ckpt.torch_ckpt"


def version(device: str, shim: bool = False) -> str | None:
    """The installed version, or None. `shim`: uses the library's CUDA calls; on CPU the figure must say so."""
    try:
        found = metadata.version("nvidia-resiliency-ext")
    except metadata.PackageNotFoundError:
        return None
    return f"{found} (cpu-shim)" if shim and device == "cpu" else found


def make_queue(writer_needs_cuda: bool = False) -> Any:
    """An AsyncCallsQueue with a persistent writer process, in whichever version is installed.

    Without `cpu_shm_mode` the writer of 0.7.0 opens the rank's CUDA device: it dies where there is none, and takes
    device memory where there is one; only a writer that is sent CUDA tensors needs it.
    """
    queue = import_module(_CORE).AsyncCallsQueue
    # Of __init__, not of the class: in 0.7.0 its metaclass takes anything and so hides what the class takes.
    return queue(**_known(queue.__init__, persistent=True, cpu_shm_mode=not writer_needs_cuda))


def _known(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Those keyword arguments that the installed version takes."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in known}


def make_request(
    function: Callable[..., None], arguments: tuple[Any, ...], preload: Callable[[], Any] | None = None
) -> Any:
    """`preload`: called by the writer in place of the second argument; the trainer waits until it has returned."""
    return import_module(_CORE).AsyncRequest(function, arguments, [], preload_fn=preload)


def dcp_writer_options(device: str) -> dict[str, Any]:
    """How FileSystemWriterAsync is to copy CPU tensors; empty where the version cannot, and the caller must copy.

    0.7.0 keeps copies in shared memory from save to save. CUDA tensors go to the writer by handle in both versions.
    """
    wanted = {"use_cpu_shm_for_gpu_tensors": True, "use_cached_data_structure": True} if device == "cpu" else {}
    return _known(import_module(_FILES).FileSystemWriterAsync.__init__, **wanted)


def copies_cpu_tensors() -> bool:
    """Whether FileSystemWriterAsync copies CPU tensors by itself (0.7.0); 0.4.1 writes what they have become since."""
    parameters = inspect.signature(import_module(_FILES).FileSystemWriterAsync.__init__).parameters
    return "use_cpu_shm_for_gpu_tensors" in parameters


class Results:
    """The queue through which writers of DCP files give their results back: a process of its own, as in the library.

    The library starts it by itself, but lets it outlive a killed trainer and has no end for it.
    """

    def __init__(self) -> None:
        self._manager = SyncManager(ctx=torch.multiprocessing.get_context("spawn"))
        self._manager.start(initializer=die_with, initargs=(os.getpid(),))
        self.renew()

    def renew(self) -> None:
        """For a new writer: drop what an ended one may have left."""
        files = import_module(_FILES)
        vars(files)["_results_queue"] = self._manager.Queue()
        # 0.7.0 remembers what it has sent to a writer, and would send a new one references to nothing.
        getattr(files.FileSystemWriterAsync, "cleanup_tensor_caches", lambda: None)()

    def end(self) -> None:
        """Bounded: the process is killed, as it holds nothing that is still wanted."""
        vars(import_module(_FILES))["_results_queue"] = None
        stop(self._manager._process, close=False)  # type: ignore[attr-defined]


def make_torch_checkpoint(device: str) -> tuple[Any, Any]:
    """(TorchAsyncCheckpoint, its queue). On CPU the queue is replaced, because the one it makes needs CUDA in 0.7.0."""
    checkpoint = import_module(_TORCH_CKPT).TorchAsyncCheckpoint()
    if device == "cpu":
        checkpoint._async_calls_queue = make_queue()
    return checkpoint, checkpoint._async_calls_queue


@contextmanager
def cuda_shim(device: str) -> Iterator[None]:
    """Lets the library's unconditional torch.cuda.synchronize() pass where there is no CUDA; elsewhere does nothing."""
    if device == "cuda" or torch.cuda.is_available():
        yield
        return
    original = torch.cuda.synchronize
    torch.cuda.synchronize = lambda device=None: None
    try:
        yield
    finally:
        torch.cuda.synchronize = original


class WriterWatch:
    """A queue and its writer process: whether the write has finished, whether the writer lives, and its end.

    The process starts with the first request. Every method returns within its bound, whatever the writer does.
    """

    def __init__(self, queue: Any, deadline_s: float) -> None:
        self.queue = queue
        self.deadline_s = deadline_s
        self.process: Any = None  # multiprocessing.Process
        self._since: float | None = None  # when the write in flight was handed over
        # An interpreter that exits joins its children, and would wait for ever for a writer that waits for work.
        self._owner_pid = os.getpid()
        atexit.register(self.end)

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def bound_preload(self) -> None:
        """Before a request: bound the library's wait for its preload, which a dead writer would make endless."""
        pending = self.queue._get_async_caller().preload_q

        def join() -> None:
            end = clock() + self.deadline_s
            with pending._cond:
                while not pending._unfinished_tasks._semlock._is_zero():
                    if not pending._cond.wait(timeout=0.1) and (reason := self._hopeless(end)):
                        raise CheckpointError(reason)

        pending.join = join

    def _hopeless(self, end: float) -> str | None:
        process = self.queue.persistent_caller.process
        if process is not None and (dead := death(process)):
            return dead
        return f"the writer did not take the data over within {self.deadline_s} s" if clock() > end else None

    @contextmanager
    def handing_over(self) -> Iterator[None]:
        """Around the call that gives the queue its request."""
        self._since = clock()
        try:
            yield
        finally:  # also after an error: it is to be ended
            caller = self.queue.persistent_caller
            self.process = None if caller is None else caller.process

    def finished(self) -> bool:
        """True when nothing is in flight. Raises CheckpointError if the writer is dead or past the deadline."""
        dead = self.death()  # looked at before the question: what a dead writer has answered is all there by then
        if self._since is None or self._ask():
            self._since = None
            return True
        if dead:
            raise CheckpointError(dead)
        if clock() - self._since > self.deadline_s:
            raise CheckpointError(f"the writer process {self.pid} did not finish within {self.deadline_s} s")
        return False

    def _ask(self) -> bool:
        # no_dist: this rank's writer only; the other form is a collective of all ranks, on a CUDA tensor.
        self.queue.maybe_finalize_async_calls(blocking=False, no_dist=True)
        return not self.queue.async_calls

    def check_alive(self) -> None:
        """Raises CheckpointError if the writer process was started and is gone."""
        if dead := self.death():
            raise CheckpointError(dead)

    def death(self) -> str | None:
        """How the writer died, or None: it lives, or was not started."""
        return None if self.process is None else death(self.process)

    def end(self) -> None:
        """End the writer by its own pid: ask if it is idle, then terminate, then kill. Idempotent, bounded."""
        atexit.unregister(self.end)
        if os.getpid() != self._owner_pid:  # a fork of the trainer that exits: the writer is not its to end
            return
        caller = self.queue.persistent_caller
        process = None if caller is None else caller.process
        idle = not self.queue.async_calls
        self._disarm(caller)
        if process is not None:
            if idle and is_running(process):
                caller.queue.put("DONE")
                process.join(ASK_S)
            stop(process)
        if caller is not None:
            _close_queues(caller)
        self.process, self._since = None, None

    def _disarm(self, caller: Any) -> None:
        """Take from the library what its __del__ and close would wait for."""
        self.queue.async_calls.clear()
        self.queue.persistent_caller = None
        if caller is not None:
            caller.process = None


def _close_queues(caller: Any) -> None:
    for queue in (caller.queue, caller.preload_q, caller.comp_q):
        queue.cancel_join_thread()  # else the exit waits until a dead reader has read what is left in the pipe
        queue.close()
