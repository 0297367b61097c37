"""Launchers: how one node runner is started on every node.

One launcher a file, found through this dict; adding one takes a new file, a line here and a file in conf/cluster.
"""

from __future__ import annotations

from importlib import import_module

from bench.errors import BadInput
from bench.launch.base import Launcher

LAUNCHERS: dict[str, str] = {
    "local": "bench.launch.local:Local",
    "emulated": "bench.launch.emulated:Emulated",
}


def create(name: str) -> Launcher:
    """The launcher of cluster=NAME. Raises BadInput for one that this version does not have."""
    if name not in LAUNCHERS:
        raise BadInput(
            f"cluster: {name} is not in this version; use cluster=local, or cluster=emulated for a rehearsal"
        )
    module, attribute = LAUNCHERS[name].split(":")
    launcher: Launcher = getattr(import_module(module), attribute)()
    return launcher
