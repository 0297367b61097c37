"""What a run's Kubernetes objects are called, and where its files lie inside a pod."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from bench.config import Run
from bench.launch.base import Paths

# Where the volumes are mounted.
CLAIM, CHECKPOINTS, NODE = PurePosixPath("/mnt/bench"), PurePosixPath("/mnt/checkpoints"), PurePosixPath("/mnt/node")
RUN_JSON = PurePosixPath("/etc/bench/run.json")
RUNNER, READER = "runner", "reader"  # the component that a pod is, and the name of its container


@dataclass(frozen=True)
class Names:
    """What the run's objects are called, and where its files lie inside a pod."""

    run: str  # of Job or JobSet, Service and ConfigMap
    scenario: str
    jobset: bool
    result: PurePosixPath
    work_dir: PurePosixPath
    checkpoint_dir: PurePosixPath

    @classmethod
    def of(cls, config: Run, paths: Paths) -> Names:
        """`paths` are those of the submitting machine: of the result the last three folders, of the others the last."""
        scenario, key = label(config.scenario, 24), label(paths.work_dir.name, 12)
        base = CHECKPOINTS if config.cluster.checkpoint_pvc else CLAIM / "checkpoints"
        if config.storage.dir is not None:
            base = PurePosixPath(config.storage.dir)
        result = CLAIM.joinpath("results", *paths.result.parts[-3:])
        run = f"bench-{scenario}-{key}"
        return cls(run, scenario, config.cluster.jobset, result, NODE / run, base / run)

    @property
    def kind(self) -> str:
        return "JobSet" if self.jobset else "Job"

    @property
    def host(self) -> str:
        """Of node 0: <Job>-<index>.<Service>; a JobSet calls its Jobs <JobSet>-<replicated Job>-<number>."""
        return f"{self.run}-nodes-0-0.{self.run}" if self.jobset else f"{self.run}-0.{self.run}"

    @property
    def labels(self) -> dict[str, str]:
        return {
            "app.kubernetes.io/name": "bench",
            "app.kubernetes.io/instance": self.run,
            "app.kubernetes.io/component": RUNNER,
        }

    @property
    def selector(self) -> str:
        """Finds the runners' pods."""
        return ",".join(f"{key}={value}" for key, value in self.labels.items())

    @property
    def reader(self) -> str:
        return f"{self.run}-reader"


def label(text: str, most: int) -> str:
    """`text` as a part of a DNS label."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:most].strip("-") or "x"
