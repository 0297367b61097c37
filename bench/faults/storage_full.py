"""The store of checkpoints is full: a filler takes what is free until the kernel says so (ENOSPC)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, ClassVar

from bench.faults.base import NodeFault, Option, Planned, Site
from bench.faults.filesystem import shared_with_others

BLOCK_BYTES = 4096


class StorageFull(NodeFault):
    name = "storage_full"
    moments = ("step", "staging", "write", "commit", "load")
    expects = (
        "Saves fail with ENOSPC and leave nothing torn; training goes on or starts again, and later saves succeed."
    )
    needs = "a file system for this run's checkpoints alone"
    options: ClassVar[dict[str, Option]] = {"seconds": 10.0}
    by_hand = "the store may still be full: delete this file"

    def unavailable(self, planned: Planned, site: Site) -> str | None:
        return shared_with_others(site.checkpoint_dir, site.faults_dir, site.requests_dir)

    def prepare(self, planned: Planned, site: Site) -> dict[str, Any]:
        return {"filler": str(site.checkpoint_dir / f".bench-filler-{planned.id}-n{site.node}")}

    def strike(self, planned: Planned, site: Site, details: dict[str, Any]) -> None:
        if reason := self.unavailable(planned, site):
            raise OSError(reason)
        fill(Path(details["filler"]))

    def lifted_after_s(self, planned: Planned) -> float:
        return float(self.option(planned, "seconds"))

    def touches(self, details: dict[str, Any]) -> tuple[str, ...]:
        return (str(Path(details["filler"]).parent),)

    def undo(self, record: dict[str, Any]) -> dict[str, Any]:
        filler = Path(record["details"]["filler"])
        try:
            size = filler.stat().st_size
            filler.unlink()
        except FileNotFoundError:
            return {}
        return {"filler_bytes": size}


def fill(path: Path) -> None:
    """Reserve all free space of a file system in one file, without writing it. Raises OSError for other reasons."""
    status = os.statvfs(path.parent)
    chunk, size = status.f_bfree * status.f_frsize, 0
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        while chunk >= BLOCK_BYTES:  # less and less: the file system needs some of it to keep the books
            try:
                os.posix_fallocate(file, size, chunk)
                size += chunk
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                chunk //= 2
    finally:
        os.close(file)
