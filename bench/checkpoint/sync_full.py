"""Synchronous and gathered: rank 0 collects the whole state and writes it with torch.save, while all others wait.

The naive way, and the form in which models are handed on. In layout it is a checkpoint of one shard, of one rank; as it
is whole, any number of ranks can load it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from bench.checkpoint import cuts, storage
from bench.checkpoint.base import CheckpointError, Context, Strategy, Tree
from bench.checkpoint.sharded import dump_tree, read_shard
from bench.checkpoint.trees import Path, flatten, map_paths

WRITTEN, NOT_WRITTEN = 1, 0


class SyncFull(Strategy):
    name = "sync_full"
    reshards = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        try:
            context.directory.mkdir(parents=True, exist_ok=True)
            if context.rank == 0:
                storage.clear_leftovers(context.directory, 0, 1, context.incarnation)
        except OSError as error:
            reason = storage.describe(error)
            raise CheckpointError(f"{self.name}: {context.directory} is not usable: {reason}") from error

    def _save(self, step: int, tree: Tree, save: int) -> None:
        with self.phase("stage"):
            whole = gather(tree, self.context)
        failed = self._write(step, save, whole) if self.context.rank == 0 else None
        with self.phase("commit"):  # of the others: waiting until rank 0 has written
            agreed = self.context.agree_min(NOT_WRITTEN if failed else WRITTEN)
        if agreed == NOT_WRITTEN:
            raise CheckpointError(f"{self.name}: save {save} at step {step} failed: {from_rank_0(failed)}")

    def _write(self, step: int, save: int, whole: Tree) -> str | None:
        context = self.context
        target = storage.Target(
            self.name, save, step, context.directory, 0, 1, context.incarnation, context.fsync, context.keep
        )
        try:
            storage.withdraw(target)
            storage.write_shard(target, partial(dump_tree, whole), context.recorder, self.phase)
        except (OSError, RuntimeError) as error:
            return storage.describe(error)
        return None

    def newest(self) -> int | None:
        """Collective (`agree_min`): on shared storage one rank may see a new checkpoint before another one does."""
        found = storage.newest_complete(self.context.directory)
        agreed = self.context.agree_min(-1 if found is None else found)
        return None if agreed < 0 else agreed

    def load(self, step: int, like: Tree) -> Tree:
        folder = storage.step_dir(self.context.directory, step)
        if not storage.complete(folder):
            raise CheckpointError(f"{self.name}: {folder} holds no complete checkpoint")
        whole = read_shard(folder / storage.shard_name(0, 1), in_place=True)
        return cuts.own_part(whole, self.context.rank, self.context.world_size)


def from_rank_0(text: str | None) -> str:
    """What rank 0 has to say, on all ranks. Collective."""
    told = [text]
    if dist.is_initialized():
        dist.broadcast_object_list(told, src=0)
    return str(told[0])


def gather(tree: Tree, context: Context) -> Tree:
    """On rank 0 the whole tree on the CPU, with its layout; on others nothing. Collective: an all-gather per tensor."""
    layout = cuts.layout_of(tree, context.world_size)
    is_first = context.rank == 0
    with torch.no_grad():
        whole: Tree = map_paths(lambda path, leaf: _whole(leaf, is_first), tree)
    for path, leaf in _entries_of_others(tree, context):
        _put(whole, path, leaf)
    return {**whole, cuts.KEY: layout.to_json()} if is_first else {}


def _whole(leaf: Any, keep: bool) -> Any:
    if isinstance(leaf, DTensor):
        leaf = leaf.full_tensor()  # every rank gets it; only rank 0 keeps it, and only in host memory
    return (leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf) if keep else None


def _entries_of_others(tree: Tree, context: Context) -> list[tuple[Path, Any]]:
    """On rank 0 the entries that only other ranks have (their random states)."""
    if context.world_size == 1:
        return []
    own = [(path, leaf) for path, leaf in flatten(tree) if cuts.owner(path) is not None]
    gathered: list[Any] | None = [None] * context.world_size if context.rank == 0 else None
    dist.gather_object(own, gathered, dst=0)
    return [entry for entries in (gathered or [])[1:] for entry in entries]


def _put(tree: Tree, path: Path, leaf: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = leaf
