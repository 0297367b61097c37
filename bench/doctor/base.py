"""What a check is, and what all checks know."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from bench.config import Run
from bench.doctor.meeting import Meeting, hold
from bench.schema import strategy_of

Level = Literal["ok", "warn", "fail", "skip"]
LEVELS: tuple[Level, ...] = ("fail", "warn", "skip", "ok")  # from the worst on

# Layers that restart in the living process, and those whose agent is NVRx's launcher.
IN_PROCESS = frozenset({"in_process", "nested"})
IN_JOB = frozenset({"in_job", "nested"})


@dataclass(frozen=True)
class Check:
    """What was looked at (`name`), what is there (`found`) and what to do about it (`remedy`).

    ok: as the run needs it. warn: the run works, with the loss that `found` names. fail: the run as asked would not
    work, or would measure something else. skip: not looked at; `found` says why.
    """

    name: str
    level: Level
    found: str
    remedy: str = ""


def judged(name: str, right: bool, found: str, remedy: str, otherwise: Level = "fail") -> Check:
    """An ok check, whose remedy is not needed, or one of the level `otherwise`."""
    return Check(name, "ok", found) if right else Check(name, otherwise, found, remedy)


@dataclass(frozen=True)
class Case:
    """The run that is asked for, with a definite device, and the machine at hand."""

    config: Run
    gpus: Sequence[Mapping[str, Any]]  # of environment.gpus()
    versions: Mapping[str, str | None]  # of environment.versions()
    work_dir: Path
    checkpoint_dir: Path
    results_dir: Path
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def on_node(self) -> bool:
        """Whether this machine is one of those on which the run's ranks live, and not the one that submits it."""
        kind = self.config.cluster.name
        inside = {"slurm": "SLURM_JOB_ID", "kubernetes": "KUBERNETES_SERVICE_HOST"}
        return kind not in inside or inside[kind] in self.environ

    @property
    def in_pod(self) -> bool:
        """Whether this is a pod such as the run's own: it has their volumes, and no way to the cluster's API."""
        return self.config.cluster.name == "kubernetes" and self.on_node

    @property
    def sees_store(self) -> bool:
        """Whether the checkpoint store can be looked at from here: a Slurm login node mounts it, a laptop no PVC."""
        return self.on_node or self.config.cluster.name == "slurm"

    @property
    def nodes_here(self) -> int:
        """Nodes of the run that are on this machine (a rehearsal has all of them here)."""
        return self.config.num_nodes if self.config.cluster.name == "emulated" else 1

    @property
    def writers_here(self) -> int:
        """Ranks of this machine that train and write; spare ones wait."""
        return self.nodes_here * self.config.ranks_per_node

    @property
    def ranks_here(self) -> int:
        """Of the machine that has most: spare ranks are on the last node, and this may be that one."""
        return self.writers_here + self.config.recovery.reserve

    @property
    def writing_arms(self) -> list[str]:
        """Strategies of the run that write checkpoints."""
        return [name for arm in self.config.checkpoint.arms if (name := strategy_of(arm)) != "none"]

    @property
    def layers(self) -> set[str]:
        """Recovery layers of the run."""
        return {self.config.recovery.layer, *self.config.recovery.layers} - {"none"}

    @property
    def shard_bytes(self) -> int | None:
        """Predicted bytes of one checkpoint on this machine; None where its size is not known before it is built."""
        size = self.config.predicted_checkpoint_bytes
        return None if size is None else size * self.writers_here // self.config.world_size

    @property
    def across_nodes(self) -> bool:
        """Whether a probe can be started on other nodes from here: inside a Slurm allocation of several."""
        several = self.config.num_nodes > 1 and int(self.environ.get("SLURM_JOB_NUM_NODES", "1")) > 1
        return self.config.cluster.name == "slurm" and several

    @cached_property
    def meeting(self) -> Meeting:
        """What two ranks found when they met and reduced. Takes seconds; done once."""
        config = self.config
        gpus = len(self.gpus) if config.device == "cuda" else 0
        return hold(config.cluster.interface, gpus, self.results_dir if self.across_nodes else None)
