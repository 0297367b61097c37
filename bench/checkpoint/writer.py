"""The half of a background save that runs in the writer process."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from bench.checkpoint import staging, storage
from bench.checkpoint.sharded import dump_tree
from bench.record import Recorder

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


@dataclass(frozen=True)
class Job:
    """What the writer needs beside the data: the shard's target, where to record, and whose writer it is."""

    target: storage.Target
    events_dir: str
    meta: str  # JSON: identity of the slot, for the writer's own event file
    trainer_pid: int


def write_staged(job: Job, staged: staging.Staged) -> None:
    """Write a staged tree as a shard. Never raises: it says through the block's status page how it went.

    The queue of the library knows only "finished"; an exception would end the writer and its reason would be lost.
    """
    try:
        die_with(job.trainer_pid)
        tree = staging.rebuild(staged)
        storage.write_shard(job.target, partial(dump_tree, tree), _recorder(job.events_dir, job.meta))
    except Exception as error:  # noqa: BLE001 - a process boundary
        staging.write_status(staged.block, staging.FAILED, storage.describe(error))
    else:
        staging.write_status(staged.block, staging.DONE)


@cache
def _recorder(events_dir: str, meta: str) -> Recorder:
    """This process's event file: opened by its first save, kept for all later ones."""
    identity: dict[str, Any] = json.loads(meta)
    return Recorder(Path(events_dir), **{**identity, "role": "writer"})


@cache
def die_with(trainer_pid: int) -> None:
    """Let the kernel kill this process when its trainer dies, also by SIGKILL; else it would live on, output and all.

    The signal is tied to the thread that started this process: the trainer must save from a thread that lives as long
    as it does. Until its first save a writer is not covered; the node runner reaps such ones.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != trainer_pid:  # it died before the line above
        os._exit(1)
