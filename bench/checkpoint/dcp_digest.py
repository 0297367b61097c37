"""What each rank had in a checkpoint of DCP's format, fingerprinted by one process that is none of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

import torch
from torch.distributed.checkpoint import CheckpointException, FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from bench.checkpoint import cuts
from bench.checkpoint.base import CheckpointError, Tree
from bench.checkpoint.dcp import fill, fill_stretches, reasons
from bench.checkpoint.trees import Digest, Path, flatten, in_digest_order

BATCH_BYTES = 1 << 30  # tensors are read in batches of about this size, so that memory need not hold a checkpoint


@dataclass(frozen=True)
class Stretch:
    """What the ranks asked for hold of a tensor, in one piece: along `dim` from `begin` on; None: all of it."""

    dtype: torch.dtype
    whole: torch.Size
    dim: int | None
    begin: int
    end: int

    @classmethod
    def of(cls, about: TensorStorageMetadata, name: str, layout: cuts.Layout, ranks: Collection[int]) -> Stretch:
        dim, whole = layout.cuts.get(name), about.size
        if dim is None:
            return cls(about.properties.dtype, whole, None, 0, 0)
        extents = [cuts.extent(whole[dim], rank, layout.world_size) for rank in ranks]
        begins, ends = zip(*extents, strict=True)
        return cls(about.properties.dtype, whole, dim, min(begins), max(ends))

    @property
    def offsets(self) -> list[int]:
        return [self.begin if dim == self.dim else 0 for dim in range(len(self.whole))]

    @property
    def shape(self) -> list[int]:
        return [self.end - self.begin if dim == self.dim else length for dim, length in enumerate(self.whole)]

    @property
    def size_bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def part(self, read: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
        """What `rank` holds, of the stretch that was read."""
        if self.dim is None:
            return read
        begin, end = cuts.extent(self.whole[self.dim], rank, world_size)
        return read.narrow(self.dim, begin - self.begin, end - begin)


def digests_by_rank(folder: File, ranks: Collection[int] | None = None) -> dict[int, str]:
    """For each of `ranks` (None: all) the digest (bench.checkpoint.trees.tree_digest) of its tree.

    Reads what these ranks hold and no more. Raises CheckpointError.
    """
    try:
        saved = FileSystemReader(folder).read_metadata()
        if cuts.KEY not in saved.state_dict_metadata:
            raise CheckpointError(f"{folder} does not say how its tensors were spread over the ranks")
        return _digests(folder, saved, ranks)
    except (OSError, RuntimeError, ValueError, KeyError, EOFError, CheckpointException) as error:
        raise CheckpointError(f"{folder} is not readable: {reasons(error)}") from error


def _digests(folder: File, saved: Metadata, ranks: Collection[int] | None) -> dict[int, str]:
    tensors, others = _wanted(saved, ranks)
    fill(folder, others)
    layout = cuts.Layout.from_json(others.pop(cuts.KEY))
    digests = {rank: Digest() for rank in range(layout.world_size) if ranks is None or rank in ranks}
    if not digests:
        return {}
    stretches = {name: Stretch.of(about, name, layout, digests.keys()) for name, about in tensors.items()}
    for path, leaf in _entries(folder, saved, layout, stretches, others):
        stretch = stretches.get(cuts.key(path))
        for rank, digest in digests.items():
            if cuts.owner(path) in (None, rank):
                digest.add(path, leaf if stretch is None else stretch.part(leaf, rank, layout.world_size))
    return {rank: digest.hexdigest() for rank, digest in digests.items()}


def _wanted(saved: Metadata, ranks: Collection[int] | None) -> tuple[dict[str, TensorStorageMetadata], Tree]:
    """(Tensors by DCP's names, placeholders of all other entries), without those that only other ranks have."""
    paths, found = saved.planner_data, saved.state_dict_metadata
    if ranks is not None:
        found = {name: about for name, about in found.items() if cuts.owner(paths[name]) in (None, *ranks)}
    tensors = {name: about for name, about in found.items() if isinstance(about, TensorStorageMetadata)}
    return tensors, dict.fromkeys(found.keys() - tensors.keys())


def _entries(
    folder: File, saved: Metadata, layout: cuts.Layout, stretches: dict[str, Stretch], others: Tree
) -> Iterator[tuple[Path, Any]]:
    """All leaves in digest order; tensors are read batch by batch."""
    paths = saved.planner_data
    values = [((*paths[name], *rest), leaf) for name, value in others.items() for rest, leaf in flatten(value)]
    values += [(tuple(path), {}) for path in layout.empty]
    leaves = sorted([*values, *((paths[name], wanted) for name, wanted in stretches.items())], key=in_digest_order)
    for batch in _batches(leaves):
        wanted = {cuts.key(path): leaf for path, leaf in batch if isinstance(leaf, Stretch)}
        read = {name: torch.empty(stretch.shape, dtype=stretch.dtype) for name, stretch in wanted.items()}
        some = {name: tensor for name, tensor in read.items() if tensor.numel()}
        fill_stretches(folder, some, {name: wanted[name].offsets for name in some})
        for path, leaf in batch:
            yield path, read[cuts.key(path)] if isinstance(leaf, Stretch) else leaf


def _batches(leaves: Iterable[tuple[Path, Any]]) -> Iterator[list[tuple[Path, Any]]]:
    batch: list[tuple[Path, Any]] = []
    size_bytes = 0
    for path, leaf in leaves:
        batch.append((path, leaf))
        if isinstance(leaf, Stretch):
            size_bytes += leaf.size_bytes
        if size_bytes >= BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch
