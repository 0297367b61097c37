"""Where sharded checkpoints stand and when they count: names, completeness, durability, retention. Imports no torch.

    <directory>/step-00000012/shard-00003-of-00016.pt      final name: the shard is whole and, if so configured, durable
    <directory>/step-00000012/.shard-00003-of-00016.pt.<incarnation>.tmp    being written; never read by anybody

A checkpoint is complete when every shard of the world size that the names state is there under its final name. No
marker is needed, and no rank waits for another one. Every file belongs to exactly one rank of the present world size,
which alone deletes it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bench.errors import BadInput
from bench.record import Recorder, clock

_STEP = re.compile(r"step-(\d{8,})")
_SHARD = re.compile(r"shard-(\d{5,})-of-(\d{5,})\.pt")
_TEMPORARY = re.compile(r"\.shard-(\d{5,})-of-\d{5,}\.pt\.(.+)\.tmp")


@dataclass(frozen=True)
class Target:
    """One shard of one save: where it goes and for whom. Travels to writer processes."""

    arm: str
    save: int
    step: int
    directory: Path
    rank: int
    world_size: int
    incarnation: str
    fsync: bool
    keep: int

    @property
    def final(self) -> Path:
        return step_dir(self.directory, self.step) / shard_name(self.rank, self.world_size)

    @property
    def temporary(self) -> Path:
        return self.final.with_name(f".{self.final.name}.{self.incarnation}.tmp")


def step_dir(directory: Path, step: int) -> Path:
    return directory / f"step-{step:08d}"


def shard_name(rank: int, world_size: int) -> str:
    return f"shard-{rank:05d}-of-{world_size:05d}.pt"


def local_name(step: int, rank: int | str) -> str:
    """NVRx's own name of a shard in its local format; see bench.checkpoint.nvrx_manager for the folders above it."""
    return f"iter_{step:07d}_{rank}_local.pt"


def local_shard(directory: Path, step: int, rank: int) -> Path | None:
    """A rank's shard in NVRx's local format, whatever the world size; None: it is not on this host."""
    return next(directory.glob(f"of-*/{rank}/{local_name(step, rank)}"), None)


# --- what is there ----------------------------------------------------------------------------------------------------


def _names(folder: Path) -> list[str]:
    """Names in a folder; none if it is gone: another rank may delete it at any time."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def world_sizes(folder: Path) -> list[int]:
    """The world sizes for which a step's folder holds every shard under its final name (normally one, or none)."""
    found: dict[int, set[int]] = defaultdict(set)
    for name in _names(folder):
        if match := _SHARD.fullmatch(name):
            found[int(match[2])].add(int(match[1]))
    return sorted(size for size, ranks in found.items() if ranks >= set(range(size)))


def complete(folder: Path) -> bool:
    """True if the step's folder holds a whole checkpoint."""
    return bool(world_sizes(folder))


def steps_present(directory: Path) -> list[int]:
    return sorted(int(match[1]) for name in _names(directory) if (match := _STEP.fullmatch(name)))


def complete_steps(directory: Path) -> list[int]:
    """Steps of all complete checkpoints, oldest first."""
    return [step for step in steps_present(directory) if complete(step_dir(directory, step))]


def newest_complete(directory: Path) -> int | None:
    """Step of the newest complete checkpoint, or None."""
    steps = complete_steps(directory)
    return steps[-1] if steps else None


# --- writing ----------------------------------------------------------------------------------------------------------


def no_phase(name: str) -> AbstractContextManager[None]:
    return nullcontext()


def write_shard(
    target: Target,
    dump: Callable[[BinaryIO], None],
    recorder: Recorder,
    phase: Callable[[str], AbstractContextManager[None]] = no_phase,
) -> None:
    """Write one shard, make it durable and visible, record that moment, and delete what retention no longer keeps.

    Records `durable`, or `failed` with the reason, in which case the error goes on to the caller and no file is left.
    """
    t_begin = clock()
    try:
        with phase("write"):
            retire(target, recorder)  # before writing: the disk never holds more than keep + 1 of this rank's shards
            t_begin = clock()
            size = _write_temporary(target, dump)
        with phase("commit"):
            publish(target, size, t_begin, recorder)
            retire(target, recorder)
    except BaseException as error:
        with suppress(OSError):
            target.temporary.unlink(missing_ok=True)
        recorder.instant("failed", arm=target.arm, save=target.save, reason=describe(error))
        raise


def _write_temporary(target: Target, dump: Callable[[BinaryIO], None]) -> int:
    # Not parents=True: a checkpoint directory that vanished is a failure, not something to be made anew in silence.
    target.final.parent.mkdir(exist_ok=True)
    with open(target.temporary, "wb") as file:
        dump(file)
        file.flush()
        if target.fsync:
            os.fsync(file.fileno())  # the data are on storage before the name that vouches for them
        return os.fstat(file.fileno()).st_size


def publish(target: Target, size_bytes: int, t_begin: float, recorder: Recorder) -> None:
    """Give a written shard its final name and record it as durable."""
    os.replace(target.temporary, target.final)
    if target.fsync:
        fsync_folder(target.final.parent)  # the shard's name
        fsync_folder(target.directory)  # the name of the step's folder
    recorder.instant("durable", arm=target.arm, save=target.save, step=target.step, bytes=size_bytes, t_begin=t_begin)


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def describe(error: BaseException) -> str:
    """An error as one line: its class and its first line of text; where the system refused, what the system said.

    torch.save tells only that its file is shorter than it should be; the system's error is what it was handling then.
    """
    told = cause_of(error)
    lines = str(told).strip().splitlines()
    text = f"{type(told).__name__}: {lines[0]}" if lines else type(told).__name__
    return f"{text} (the file was cut short; is the store full?)" if "unexpected pos" in text else text


def cause_of(error: BaseException) -> BaseException:
    """The system's error (OSError) that led to this one, if there is one; else the error itself."""
    link: BaseException | None = error
    while link is not None and not isinstance(link, OSError):
        link = link.__cause__ or link.__context__
    return error if link is None else link


# --- deleting ---------------------------------------------------------------------------------------------------------


def retire(target: Target, recorder: Recorder) -> None:
    """Delete this rank's shards of checkpoints older than the `keep` newest complete ones; records `deleted`."""
    complete_ones = complete_steps(target.directory)
    if len(complete_ones) < target.keep:
        return
    t_begin = clock()
    freed_bytes = 0
    for step in steps_present(target.directory):
        if step < complete_ones[-target.keep]:
            freed_bytes += _remove_own(step_dir(target.directory, step), target.rank, target.world_size)
    if freed_bytes:
        recorder.instant("deleted", arm=target.arm, bytes=freed_bytes, t_begin=t_begin)


def withdraw(target: Target) -> None:
    """Delete this rank's shards of the very step that is to be written.

    They stem from an earlier attempt that was rolled back; left in place, they would make a checkpoint look complete
    that mixes two attempts.
    """
    folder = step_dir(target.directory, target.step)
    for path in _own(folder, target.rank, target.world_size):
        path.unlink(missing_ok=True)


def clear_leftovers(directory: Path, rank: int, world_size: int, incarnation: str) -> None:
    """Delete what earlier incarnations left unfinished in this rank's name. Call it before any rank saves.

    That is: temporary files of other incarnations, and this rank's shards of checkpoints that never became complete.
    """
    for step in steps_present(directory):
        folder = step_dir(directory, step)
        for name in _names(folder):
            match = _TEMPORARY.fullmatch(name)
            if match and int(match[1]) % world_size == rank and match[2] != incarnation:
                (folder / name).unlink(missing_ok=True)
        if not complete(folder):
            _remove_own(folder, rank, world_size)


def _own(folder: Path, rank: int, world_size: int) -> Iterator[Path]:
    """Shards of a folder that this rank answers for. Modulo: those of a larger, earlier world have an owner as well."""
    for name in _names(folder):
        match = _SHARD.fullmatch(name)
        if match and int(match[1]) % world_size == rank:
            yield folder / name


def _remove_own(folder: Path, rank: int, world_size: int) -> int:
    """Delete this rank's shards of a step and, as the last one, the folder. Returns the bytes freed."""
    freed_bytes = 0
    for path in _own(folder, rank, world_size):
        with suppress(FileNotFoundError):
            size = path.stat().st_size
            path.unlink()
            freed_bytes += size
    with suppress(OSError):  # other ranks' shards are still in it, or another rank was first
        folder.rmdir()
    return freed_bytes


# --- before anything starts -------------------------------------------------------------------------------------------


def check_directory(directory: Path, field: str = "storage.dir") -> None:
    """Raises BadInput if the directory is missing, is none, or cannot be written to (found out by writing)."""
    if not directory.is_dir():
        state = "is not a directory" if directory.exists() else "does not exist"
        raise BadInput(f"{field}: {directory} {state}; create it or give another one")
    trial = directory / f".bench-trial-{os.getpid()}"
    try:
        trial.write_bytes(b"x")
        trial.unlink()
    except OSError as error:
        raise BadInput(f"{field}: {directory} cannot be written to ({error.strerror}); give a writable one") from error


def make_directory(directory: Path, field: str) -> None:
    """Make it, and the folders above it, where they are missing. Raises BadInput if it cannot be made or written to."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{field}: {directory} cannot be made ({error.strerror}); give {field}=PATH") from None
    check_directory(directory, field)


def check_space(directory: Path, checkpoint_bytes: int, keep: int, arms: int = 1, field: str = "storage.dir") -> None:
    """Raises BadInput if the free space does not hold keep + 1 checkpoints (one is being written) of every arm.

    `checkpoint_bytes`: predicted bytes of one checkpoint over all ranks. `arms`: how many of them write checkpoints.
    """
    needed, free = checkpoint_bytes * (keep + 1) * arms, shutil.disk_usage(directory).free
    if needed > free:
        raise BadInput(
            f"{field}: {directory} has {free / 1e9:.2f} GB free, but {arms} arm(s) x (checkpoint.keep={keep} + 1) "
            f"checkpoints of {checkpoint_bytes / 1e9:.2f} GB need {needed / 1e9:.2f} GB; "
            "free space, lower checkpoint.keep or take a smaller model"
        )
