"""What all strategies share that write one torch.save file a rank: start, choice of a checkpoint, loading."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from bench.checkpoint import storage
from bench.checkpoint.base import CheckpointError, Context, Strategy, Tree, WrongWorldSize


class Sharded(Strategy):
    """Checkpoints in the layout of bench.checkpoint.storage. Constructing one clears what earlier ones left torn."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        try:
            context.directory.mkdir(parents=True, exist_ok=True)
            storage.clear_leftovers(context.directory, context.rank, context.world_size, context.incarnation)
        except OSError as error:
            reason = storage.describe(error)
            raise CheckpointError(f"{self.name}: {context.directory} is not usable: {reason}") from error

    def target(self, step: int, save: int) -> storage.Target:
        context = self.context
        return storage.Target(
            arm=self.name,
            save=save,
            step=step,
            directory=context.directory,
            rank=context.rank,
            world_size=context.world_size,
            incarnation=context.incarnation,
            fsync=context.fsync,
            keep=context.keep,
        )

    def newest(self) -> int | None:
        """Collective (`agree_min`): on shared storage one rank may see a new checkpoint before another one does."""
        found = storage.newest_complete(self.context.directory)
        agreed = self.context.agree_min(-1 if found is None else found)
        return None if agreed < 0 else agreed

    def load(self, step: int, like: Tree) -> Tree:
        folder = storage.step_dir(self.context.directory, step)
        sizes, mine = storage.world_sizes(folder), self.context.world_size
        if not sizes:
            raise CheckpointError(f"{self.name}: {folder} holds no complete checkpoint")
        if mine not in sizes:
            raise WrongWorldSize(
                f"{self.name}: {folder} was written by {sizes[0]} ranks and cannot be loaded by {mine}: "
                f"its format keeps each rank's own shard; run with {sizes[0]} ranks or use a strategy that reshards"
            )
        return read_shard(folder / storage.shard_name(self.context.rank, mine))


def dump_tree(tree: Any, file: BinaryIO) -> None:
    """The file format of a shard: torch.save of the tree of local tensors."""
    torch.save(tree, file)


def read_shard(path: Path, in_place: bool = False) -> Tree:
    """The tree of one shard, on the CPU. Raises CheckpointError if the file is missing, truncated or no torch file.

    Reads the file instead of mapping it: it may shrink or go afterwards, and the whole time of loading is spent here.
    `in_place`: maps it after all, for a caller that copies what it needs, a small part. Changed bytes inside tensors
    pass unnoticed, as torch.load checks no checksum; comparing digests finds them.
    """
    try:
        return cast(Tree, _load(path, in_place))
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path} is not readable: {storage.describe(error)}") from error


def _load(path: Path, in_place: bool) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=in_place)
    except pickle.UnpicklingError:
        # A user's tree may hold more than tensors and plain values; the file is this suite's own, so it may be trusted.
        return torch.load(path, map_location="cpu", weights_only=False, mmap=in_place)
