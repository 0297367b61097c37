"""How much of a checkpoint the ranks of one node have in it, by what lies on the disk. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from bench.checkpoint import folders, storage


def bytes_to_read(directory: Path, step: int, ranks: range, world_size: int) -> int:
    """Bytes of the files of `ranks`; of formats without a file a rank, their share of the whole checkpoint."""
    folder = storage.step_dir(directory, step)
    shards = [folder / storage.shard_name(rank, world_size) for rank in ranks]
    local = [path for rank in ranks if (path := storage.local_shard(directory, step, rank)) is not None]
    own = [path.stat().st_size for path in [*shards, *local] if path.is_file()]
    return sum(own) if own else folders.size_bytes(folder) * len(ranks) // world_size
