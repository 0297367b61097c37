"""What each rank had in a checkpoint of DCP's format, fingerprinted by one process that is none of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path as File
from typing import Any

import torch
from torch.distributed.checkpoint import CheckpointException, FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from bench.checkpoint import cuts
from bench.checkpoint.base import CheckpointError, Tree
from bench.checkpoint.dcp import fill, reasons
from bench.checkpoint.trees import Digest, Path, flatten, in_digest_order

BATCH_BYTES = 1 << 30  # tensors are read in batches of about this size, so that memory need not hold a checkpoint


def digests_by_rank(folder: File) -> dict[int, str]:
    """For every rank the digest (bench.checkpoint.trees.tree_digest) of its tree. Raises CheckpointError."""
    try:
        saved = FileSystemReader(folder).read_metadata()
        if cuts.KEY not in saved.state_dict_metadata:
            raise CheckpointError(f"{folder} does not say how its tensors were spread over the ranks")
        return _digests(folder, saved)
    except (OSError, RuntimeError, ValueError, KeyError, EOFError, CheckpointException) as error:
        raise CheckpointError(f"{folder} is not readable: {reasons(error)}") from error


def _digests(folder: File, saved: Metadata) -> dict[int, str]:
    tensors, others = _blank(saved)
    fill(folder, others)
    layout = cuts.Layout.from_json(others.pop(cuts.KEY))
    digests = {rank: Digest() for rank in range(layout.world_size)}
    for path, whole in _entries(folder, saved, layout, tensors, others):
        for rank, digest in digests.items():
            if cuts.owner(path) in (None, rank):
                digest.add(path, cuts.part(whole, cuts.key(path), layout, rank, layout.world_size))
    return {rank: digest.hexdigest() for rank, digest in digests.items()}


def _blank(saved: Metadata) -> tuple[dict[str, TensorStorageMetadata], Tree]:
    """(Tensors by DCP's names, placeholders of all other entries)."""
    found = saved.state_dict_metadata
    tensors = {name: about for name, about in found.items() if isinstance(about, TensorStorageMetadata)}
    return tensors, dict.fromkeys(found.keys() - tensors.keys())


def _entries(
    folder: File, saved: Metadata, layout: cuts.Layout, tensors: dict[str, TensorStorageMetadata], others: Tree
) -> Iterator[tuple[Path, Any]]:
    """All leaves in digest order; tensors are read batch by batch."""
    paths = saved.planner_data
    values = [((*paths[name], *rest), leaf) for name, value in others.items() for rest, leaf in flatten(value)]
    values += [(tuple(path), {}) for path in layout.empty]
    leaves = sorted([*values, *((paths[name], about) for name, about in tensors.items())], key=in_digest_order)
    for batch in _batches(leaves):
        read = {
            cuts.key(path): torch.empty(leaf.size, dtype=leaf.properties.dtype)
            for path, leaf in batch
            if isinstance(leaf, TensorStorageMetadata)
        }
        fill(folder, read)
        for path, leaf in batch:
            yield path, read[cuts.key(path)] if isinstance(leaf, TensorStorageMetadata) else leaf


def _batches(leaves: Iterable[tuple[Path, Any]]) -> Iterator[list[tuple[Path, Any]]]:
    batch: list[tuple[Path, Any]] = []
    size_bytes = 0
    for path, leaf in leaves:
        batch.append((path, leaf))
        if isinstance(leaf, TensorStorageMetadata):
            size_bytes += leaf.size.numel() * leaf.properties.dtype.itemsize
        if size_bytes >= BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch
