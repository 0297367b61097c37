"""Two ranks that meet: started here, or on two nodes of a Slurm allocation; what they found, in one record."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.doctor.ask import Answer, ask, module

PATIENCE_S = 150.0
RANKS = 2


@dataclass(frozen=True)
class Meeting:
    """What the ranks said, by key (see bench.doctor.ranks); `error`: the first reason why something is missing."""

    said: dict[str, list[Any]]
    error: str | None
    across: bool  # on two nodes; else two processes of this machine

    @classmethod
    def of(cls, answers: Sequence[Answer], across: bool) -> Meeting:
        said: dict[str, list[Any]] = {}
        for answer in answers:
            for line in answer.lines:
                for key, value in line.items():
                    said.setdefault(key, []).append(value)
        return cls(said, next((answer.error for answer in answers if answer.error), None), across)

    def all(self, key: str) -> list[Any]:
        return self.said.get(key, [])

    def first(self, key: str) -> Any:
        return next(iter(self.all(key)), None)


def hold(interface: str | None, gpus: int, shared_dir: Path | None) -> Meeting:
    """Let two ranks meet. `gpus`: of each machine, for NCCL. `shared_dir`: seen by two nodes, where they then run."""
    words = ["--interface", interface] if interface else []
    across = shared_dir is not None
    words += ["--nccl", str(RANKS if across and gpus else min(gpus, RANKS))]
    with tempfile.TemporaryDirectory(dir=_existing(shared_dir), prefix="bench-doctor-") as folder:
        here = ["--meet", os.path.join(folder, "address"), *words]
        if across:
            # Without a number of tasks srun takes that of the whole allocation, and then ignores --ntasks-per-node.
            tasks = [f"--nodes={RANKS}", f"--ntasks={RANKS}", "--ntasks-per-node=1"]
            srun = ["srun", *tasks, "--overlap", "--kill-on-bad-exit=0"]
            commands = [[*srun, *module("bench.doctor.ranks", *here)]]
        else:
            placed = [["--rank", rank, "--ranks", RANKS, "--host", "127.0.0.1"] for rank in range(RANKS)]
            commands = [module("bench.doctor.ranks", *here, *place) for place in placed]
        return Meeting.of(ask(commands, PATIENCE_S), across)


def _existing(folder: Path | None) -> Path | None:
    while folder is not None and not folder.exists():
        folder = folder.parent
    return folder
