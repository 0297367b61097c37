"""Where checkpoints stand that all ranks write into one folder (DCP's format), and when they count.

    <directory>/step-00000012/.metadata, __0_0.distcp ...    final name: all of it is there and, if so set, durable
    <directory>/.step-00000012.<incarnation>.tmp/            being written; never read by anybody

DCP writes its `.metadata` last, but its data under the final name, where an older attempt's files may already lie.
Here the ranks write into a hidden folder, and rank 0 alone makes it, renames it when everybody has finished, and
deletes what is old: with one actor nothing can be renamed while it is being deleted.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.checkpoint.storage import fsync_folder, step_dir, steps_present
from bench.record import clock

METADATA = ".metadata"


class Events(Protocol):
    """What a writer may record with: a Recorder, or something that reaches one later."""

    def instant(self, name: str, t: float | None = None, **attributes: Any) -> None: ...


@dataclass(frozen=True)
class Target:
    """The checkpoint of one save, of all ranks. Travels to writer processes."""

    arm: str
    save: int
    step: int
    directory: Path
    incarnation: str
    fsync: bool
    keep: int

    @property
    def final(self) -> Path:
        return step_dir(self.directory, self.step)

    @property
    def hidden(self) -> Path:
        return self.directory / f".{self.final.name}.{self.incarnation}.tmp"


def complete(folder: Path) -> bool:
    return (folder / METADATA).is_file()


def complete_steps(directory: Path) -> list[int]:
    """Steps of all complete checkpoints, oldest first."""
    return [step for step in steps_present(directory) if complete(step_dir(directory, step))]


def begin(target: Target, events: Events) -> None:
    """Make the hidden folder, empty, and room for it; for rank 0, before any rank writes. Raises OSError.

    A checkpoint of the very step stems from an earlier attempt that was rolled back: it goes.
    """
    clear_leftovers(target.directory)
    shutil.rmtree(target.final, ignore_errors=True)
    retire(target, events)
    target.hidden.mkdir()  # without parents: a checkpoint directory that vanished is a failure


def publish(target: Target, t_begin: float, events: Events) -> None:
    """Give a whole checkpoint its final name, record it as durable, and delete what retention no longer keeps.

    Its files have been synced one by one, if so configured. For rank 0. Raises OSError.
    """
    size = size_bytes(target.hidden)
    if target.fsync:
        fsync_folder(target.hidden)  # the names of the files
    target.hidden.rename(target.final)
    if target.fsync:
        fsync_folder(target.directory)
    events.instant("durable", arm=target.arm, save=target.save, step=target.step, bytes=size, t_begin=t_begin)
    retire(target, events)


def retire(target: Target, events: Events) -> None:
    """Delete checkpoints older than the `keep` newest complete ones; records `deleted`."""
    whole = complete_steps(target.directory)
    if len(whole) < target.keep:
        return
    t_begin, freed_bytes = clock(), 0
    for step in steps_present(target.directory):
        if step < whole[-target.keep]:
            freed_bytes += _remove(step_dir(target.directory, step))
    if freed_bytes:
        events.instant("deleted", arm=target.arm, bytes=freed_bytes, t_begin=t_begin)


def _remove(folder: Path) -> int:
    """Delete a checkpoint, its `.metadata` first: from then on it no longer counts. Returns the bytes freed."""
    size = size_bytes(folder)
    with suppress(FileNotFoundError):
        (folder / METADATA).unlink()
    shutil.rmtree(folder, ignore_errors=True)
    return size


def clear_leftovers(directory: Path) -> None:
    """Delete what was never finished, writing or deleting; its writers have ended. For rank 0."""
    torn = [step_dir(directory, step) for step in steps_present(directory)]
    for path in [*directory.glob(".step-*.tmp"), *(folder for folder in torn if not complete(folder))]:
        shutil.rmtree(path, ignore_errors=True)


def size_bytes(folder: Path) -> int:
    """Bytes of the files in a folder; of one that is gone, 0."""
    try:
        with os.scandir(folder) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
    except FileNotFoundError:
        return 0
