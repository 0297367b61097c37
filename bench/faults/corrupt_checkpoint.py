"""The newest checkpoint is damaged on storage, then the rank dies: recovery must fall back to the one before it.

Cut in half, every strategy notices when it loads. Flipped bits inside of the file none of them notices (measured: the
formats hold checksums, but their readers do not look): training goes on from a state that was never saved, and only the
instrument's own check of the restored state tells.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any, ClassVar

from bench.checkpoint import folders, storage
from bench.faults.base import Option, Planned, RankFault, Scene

FLIPPED_BYTES = 64
_LOCAL = re.compile(r"iter_(\d+)_\d+_local\.pt")  # NVRx's LocalCheckpointManager


class CorruptCheckpoint(RankFault):
    name = "corrupt_checkpoint"
    moments = ("step",)
    expects = "The process is gone; the newest checkpoint is cut and cannot be loaded, so the one before it is."
    options: ClassVar[dict[str, Option]] = {"how": ("truncate", "flip")}
    saves_before = 2

    def prepare(self, planned: Planned, scene: Scene) -> dict[str, Any] | None:
        """The file to be damaged; None as long as there is no complete checkpoint."""
        file = newest_file(scene.checkpoint_dir, scene.rank)
        return None if file is None else {"file": str(file), "how": self.option(planned, "how")}

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> None:
        damage(Path(details["file"]), details["how"])
        os.kill(os.getpid(), signal.SIGKILL)


def newest_file(directory: Path, rank: int) -> Path | None:
    """A file of the newest complete checkpoint: the rank's own shard, else the largest. None: there is none."""
    whole = {*storage.complete_steps(directory), *folders.complete_steps(directory)}
    files = list(storage.step_dir(directory, max(whole)).iterdir()) if whole else _newest_local(directory)
    own = [path for path in files if f"shard-{rank:05d}-" in path.name or f"_{rank}_local" in path.name]
    files = own or [path for path in files if path.is_file() and not path.name.startswith(".")]
    return max(files, key=lambda path: path.stat().st_size, default=None)


def _newest_local(directory: Path) -> list[Path]:
    """This host's files of the newest local checkpoint that all its ranks have."""
    ranks = [folder for folder in directory.glob("of-*/*") if folder.is_dir()]
    files = [{int(m[1]): path for path in folder.iterdir() if (m := _LOCAL.fullmatch(path.name))} for folder in ranks]
    common = set.intersection(*(set(found) for found in files)) if files else set()
    return [found[max(common)] for found in files] if common else []


def damage(file: Path, how: str) -> None:
    """Cut a file in half, or flip all bits of a stretch in its middle; durable when it returns."""
    middle = file.stat().st_size // 2
    with open(file, "r+b") as opened:
        if how == "truncate":
            opened.truncate(middle)
        else:
            opened.seek(middle)
            stretch = opened.read(FLIPPED_BYTES)
            opened.seek(middle)
            opened.write(bytes(byte ^ 0xFF for byte in stretch))
        opened.flush()
        os.fsync(opened.fileno())
