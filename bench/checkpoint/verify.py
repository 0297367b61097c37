"""Read a checkpoint back in a process of its own and fingerprint what each rank had in it.

    python -m bench.checkpoint.verify DIRECTORY STEP [OUT.json] [--ranks FIRST:END]

writes {"step": 12, "complete": true, "digests": {"0": "<sha256>", ...}, "errors": {"1": "<reason>"}} to OUT.json
(under a temporary name first) or to standard output. What cannot be read has a null digest and a reason. Exits with 0
whenever the question could be answered. Of the ranks FIRST to END - 1 only what these had is read: their own shards,
and of formats that keep whole tensors their parts.

The format is found out by what lies in the folder. No process group is needed: of formats that keep whole tensors, the
ranks' parts are cut as the layout beside the data says.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.checkpoint import cuts, folders, storage
from bench.checkpoint.base import CheckpointError, Tree
from bench.checkpoint.sharded import read_shard
from bench.checkpoint.trees import tree_digest


@dataclass
class Found:
    """What was found of one checkpoint, by rank."""

    complete: bool = False
    digests: dict[str, str | None] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def read(self, rank: int, digest: Callable[[], str]) -> None:
        try:
            self.digests[str(rank)] = digest()
        except CheckpointError as error:
            self.digests[str(rank)], self.errors[str(rank)] = None, str(error)


def verify(directory: Path, step: int, ranks: Collection[int] | None = None) -> dict[str, Any]:
    """Digests (bench.checkpoint.trees.tree_digest) of the trees of `ranks` (None: all) in one checkpoint, by rank."""
    folder = storage.step_dir(directory, step)
    if folders.complete(folder):
        found = _dcp(folder, ranks)
    elif storage.complete(folder):
        found = _shards(folder, ranks)
    else:
        found = _local(directory, step, ranks)
    return {"step": step, **vars(found)}


def _shards(folder: Path, ranks: Collection[int] | None) -> Found:
    """One file a rank, or one of all ranks."""
    size, found = storage.world_sizes(folder)[0], Found(complete=True)
    shards = [folder / storage.shard_name(rank, size) for rank in range(size)]
    if size == 1 and (layout := _layout(shards[0])):
        for rank in _chosen(layout.world_size, ranks):
            found.read(rank, lambda rank=rank: _part_digest(shards[0], rank, layout.world_size))  # type: ignore[misc]
        return found
    for rank in _chosen(size, ranks):
        found.read(rank, lambda shard=shards[rank]: tree_digest(read_shard(shard)))  # type: ignore[misc]
    return found


def _chosen(world_size: int, ranks: Collection[int] | None) -> list[int]:
    return [rank for rank in range(world_size) if ranks is None or rank in ranks]


def _layout(shard: Path) -> cuts.Layout | None:
    """The layout in a file that holds the trees of all ranks; None if it does not, or cannot be read."""
    try:
        tree = read_shard(shard, in_place=True)
    except CheckpointError:
        return None
    return cuts.Layout.from_json(tree[cuts.KEY]) if isinstance(tree, dict) and cuts.KEY in tree else None


def _part_digest(whole: Path, rank: int, world_size: int) -> str:
    tree: Tree = read_shard(whole, in_place=True)
    return tree_digest(cuts.own_part(tree, rank, world_size))


def _dcp(folder: Path, ranks: Collection[int] | None) -> Found:
    from bench.checkpoint.dcp_digest import digests_by_rank

    try:
        return Found(True, {str(rank): digest for rank, digest in digests_by_rank(folder, ranks).items()})
    except CheckpointError as error:
        return Found(True, {}, {"0": str(error)})


def _local(directory: Path, step: int, ranks: Collection[int] | None) -> Found:
    """NVRx's local format: shards of the ranks on this host, in folders of theirs."""
    here = sorted(int(path.name) for path in directory.glob("of-*/*") if path.name.isdigit())
    ranks = here if ranks is None else ranks
    shards = {rank: storage.local_shard(directory, step, rank) for rank in ranks}
    if not shards or None in shards.values():
        return Found()
    found = Found(complete=True)
    for rank, shard in shards.items():
        found.read(rank, lambda shard=shard: _local_digest(shard))  # type: ignore[misc]
    return found


def _local_digest(shard: Path) -> str:
    from bench.checkpoint.nvrx_manager import read_local

    return tree_digest(read_local(shard))


def _ranks(text: str) -> range:
    first, end = text.split(":")
    return range(int(first), int(end))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.checkpoint.verify", description="fingerprint a checkpoint")
    parser.add_argument("directory", type=Path)
    parser.add_argument("step", type=int)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--ranks", type=_ranks, help="FIRST:END, the ranks from FIRST to END - 1; without it all")
    given = parser.parse_args(arguments)
    text = json.dumps(verify(given.directory, given.step, given.ranks))
    if given.out is None:
        print(text)
    else:
        partial = given.out.with_name(given.out.name + ".tmp")
        partial.write_text(text)
        partial.replace(given.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
