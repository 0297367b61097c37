"""Synchronous: every rank writes its own shard with torch.save and trains on when it is durable."""

from __future__ import annotations

from functools import partial

from bench.checkpoint import storage, trees
from bench.checkpoint.base import CheckpointError, Tree
from bench.checkpoint.sharded import Sharded, dump_tree


class SyncLocal(Sharded):
    name = "sync_local"

    def _save(self, step: int, tree: Tree, save: int) -> None:
        target = self.target(step, save)
        try:
            with self.phase("plan"):
                storage.withdraw(target)
                local = trees.compact(trees.localize(tree))
            # torch.save copies CUDA tensors to the host, one after the other; like the rest of it, that blocks.
            storage.write_shard(target, partial(dump_tree, local), self.context.recorder, self.phase)
        except (OSError, RuntimeError) as error:
            reason = storage.describe(error)
            raise CheckpointError(f"{self.name}: save {save} at step {step} failed: {reason}") from error
