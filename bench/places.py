"""Where a run keeps what it makes beside its result."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.config import Run
from bench.launch.base import work_folder


def work_base(config: Run) -> Path:
    return Path(config.work_dir) if config.work_dir else Path(tempfile.gettempdir()) / work_folder()


def checkpoint_base(config: Run, results_dir: Path | None = None) -> Path:
    """Where this run's checkpoint folder is made. The nodes of an engine share it: by default it lies with results."""
    if config.storage.dir:
        return Path(config.storage.dir)
    if config.cluster.engine:
        return (results_dir or Path(config.results_dir).resolve()) / ".checkpoints"
    return work_base(config) / "checkpoints"
