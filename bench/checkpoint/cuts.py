"""Which part of a whole tensor each rank holds, so that whole checkpoints can be cut into the ranks' trees again.

Formats that keep whole tensors (sync_full, DCP) forget who held what: a tensor of one row looks the same whether every
rank had it or rank 0 alone. They keep a Layout beside the data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Shard

from bench.checkpoint.base import CheckpointError, Tree
from bench.checkpoint.trees import Path, flatten, map_paths

KEY = "bench_layout"  # top-level name of the layout beside a tree
_OWN = re.compile(r"rank_(\d+)")


@dataclass(frozen=True)
class Layout:
    """How a tree was spread over `world_size` ranks. Keys are paths joined by dots, as DCP names its entries."""

    world_size: int
    cuts: dict[str, int]  # of cut tensors: the dimension along which torch.chunk gives each rank its part (see extent)
    empty: list[list[Any]]  # paths of empty dicts, which DCP drops

    def to_json(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Layout:
        return cls(**json.loads(text))


def layout_of(tree: Tree, world_size: int) -> Layout:
    """Of a live tree, from its DTensors. Raises CheckpointError for one that is cut in more than one way."""
    leaves = flatten(tree)
    cuts = {key(path): dimension(path, leaf) for path, leaf in leaves if isinstance(leaf, DTensor)}
    empty = [list(path) for path, leaf in leaves if isinstance(leaf, dict)]
    return Layout(world_size, {name: dim for name, dim in cuts.items() if dim is not None}, empty)


def dimension(path: Sequence[Any], tensor: DTensor) -> int | None:
    """The dimension along which a DTensor is cut; None: every rank has it whole."""
    placements = tensor.placements
    if len(placements) == 1 and isinstance(placements[0], Shard):
        return int(placements[0].dim)
    if all(placement.is_replicate() for placement in placements):
        return None
    raise CheckpointError(f"{key(path)} is spread as {placements}; this suite's formats know tensors cut once only")


def key(path: Iterable[Any]) -> str:
    return ".".join(map(str, path))


def owner(path: Sequence[Any]) -> int | None:
    """The only rank that has this entry (its path holds "rank_N"); None: every rank has it."""
    for name in path:
        if isinstance(name, str) and (match := _OWN.fullmatch(name)):
            return int(match[1])
    return None


def part(whole: Any, name: str, layout: Layout, rank: int, world_size: int) -> Any:
    """What `rank` of `world_size` holds of an entry: a view for tensors that are cut, possibly empty."""
    dim = layout.cuts.get(name)
    if dim is None or not isinstance(whole, torch.Tensor):
        return whole
    begin, end = extent(whole.shape[dim], rank, world_size)
    return whole.narrow(dim, begin, end - begin)


def extent(length: int, rank: int, world_size: int) -> tuple[int, int]:
    """Begin and end of a rank's part of a dimension of `length`, as torch.chunk cuts it: the last ones may be empty."""
    each = -(-length // world_size)
    return min(rank * each, length), min((rank + 1) * each, length)


def own_part(whole: Tree, rank: int, world_size: int) -> Tree:
    """The tree of one rank, cut out of a whole one: own memory, so that the file need not stay."""
    layout = Layout.from_json(whole[KEY])

    def cut(path: Path, leaf: Any) -> Any:
        mine = part(leaf, key(path), layout, rank, world_size)
        return mine.clone(memory_format=torch.contiguous_format) if isinstance(mine, torch.Tensor) else mine

    tree: Tree = map_paths(cut, _without_others(whole, rank))
    del tree[KEY]
    return tree


def _without_others(tree: Any, rank: int) -> Any:
    """Without the entries of other ranks; a dict that held only such ones stays, empty."""
    if not isinstance(tree, dict):
        return tree
    mine = {name: value for name, value in tree.items() if owner((name,)) in (None, rank)}
    return {name: _without_others(value, rank) for name, value in mine.items()}
