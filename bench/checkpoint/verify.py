"""Read a checkpoint back in a process of its own and fingerprint every shard.

    python -m bench.checkpoint.verify DIRECTORY STEP [OUT.json]

writes {"step": 12, "complete": true, "digests": {"0": "<sha256>", ...}, "errors": {"1": "<reason>"}} to OUT.json
(under a temporary name first) or to standard output. A shard that cannot be read has a null digest and a reason. Exits
with 0 whenever the question could be answered.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench.checkpoint import storage
from bench.checkpoint.base import CheckpointError
from bench.checkpoint.sharded import read_shard
from bench.checkpoint.trees import tree_digest


def verify(directory: Path, step: int) -> dict[str, Any]:
    """Digests (bench.checkpoint.trees.tree_digest) of all shards of one checkpoint, by rank."""
    folder = storage.step_dir(directory, step)
    sizes = storage.world_sizes(folder)
    digests: dict[str, str | None] = {}
    errors: dict[str, str] = {}
    for rank in range(sizes[0] if sizes else 0):
        try:
            digests[str(rank)] = tree_digest(read_shard(folder / storage.shard_name(rank, sizes[0])))
        except CheckpointError as error:
            digests[str(rank)], errors[str(rank)] = None, str(error)
    return {"step": step, "complete": bool(sizes), "digests": digests, "errors": errors}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.checkpoint.verify", description="fingerprint every shard")
    parser.add_argument("directory", type=Path)
    parser.add_argument("step", type=int)
    parser.add_argument("out", type=Path, nargs="?")
    given = parser.parse_args(arguments)
    text = json.dumps(verify(given.directory, given.step))
    if given.out is None:
        print(text)
    else:
        partial = given.out.with_name(given.out.name + ".tmp")
        partial.write_text(text)
        partial.replace(given.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
