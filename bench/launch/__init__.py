"""Launchers: how one node runner is started on every node.

One launcher a file, found through this dict; adding one takes a new file, a line here and a file in conf/cluster.
"""

from __future__ import annotations

from bench.launch.base import Launcher
from bench.registry import variant

LAUNCHERS: dict[str, str] = {
    "local": "bench.launch.local:Local",
    "emulated": "bench.launch.emulated:Emulated",
    "slurm": "bench.launch.slurm:Slurm",
    "kubernetes": "bench.launch.kubernetes:Kubernetes",
}


def create(name: str) -> Launcher:
    """The launcher of cluster=NAME. Raises BadInput for an unknown one."""
    launcher: Launcher = variant(LAUNCHERS, name, "cluster", "launcher")()
    return launcher
