"""The half of a background save that runs in the writer process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from bench.checkpoint import nvrx, staging, storage
from bench.checkpoint.base import Context
from bench.checkpoint.processes import die_with, die_with_parent
from bench.checkpoint.sharded import dump_tree
from bench.record import Recorder


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
        storage.write_shard(job.target, partial(dump_tree, tree), recorder_of(job.events_dir, job.meta))
    except Exception as error:  # noqa: BLE001 - a process boundary
        staging.write_status(staged.block, staging.FAILED, storage.describe(error))
    else:
        staging.write_status(staged.block, staging.DONE)


@dataclass(frozen=True)
class Home:
    """Where a writer process belongs: the events it writes, and the trainer that it must not outlive."""

    events_dir: str
    meta: str  # JSON: identity of the slot, for the process's own event file
    trainer_pid: int

    def instant(self, name: str, t: float | None = None, **attributes: Any) -> None:
        """Record an event in this process's file."""
        recorder_of(self.events_dir, self.meta).instant(name, t, **attributes)


def home_of(context: Context) -> Home:
    """Called by the trainer."""
    return Home(str(context.events_dir), json.dumps(context.meta), os.getpid())


def write_dcp(
    home: Home,
    device: str,
    write: Callable[..., None],
    preload: Callable[[], Any] | None,
    rank: int,
    data: Any,
    results: Any,
) -> None:
    """Write this rank's files of a DCP checkpoint with the library's own functions. Never raises, as above.

    `preload`: makes of `data` what is to be written, where the library has not called it already.
    """
    try:
        settle(home)
        with nvrx.cuda_shim(device):
            data = data if preload is None else preload()
        write(rank, data, results)
    except Exception as error:  # noqa: BLE001 - a process boundary
        results.put(RuntimeError(storage.describe(error)))


@cache
def settle(home: Home) -> None:
    """Tie this process, and those that it forks to write files, to their parents' lives, and put its pid on record."""
    die_with(home.trainer_pid)
    os.register_at_fork(after_in_child=die_with_parent)
    recorder_of(home.events_dir, home.meta)


@cache
def recorder_of(events_dir: str, meta: str) -> Recorder:
    """This process's event file: opened by its first save, kept for all later ones."""
    identity: dict[str, Any] = json.loads(meta)
    return Recorder(Path(events_dir), **{**identity, "role": "writer"})
