"""Recovery layers: who starts the ranks of a launch and what happens when one of them dies.

One layer a file, found through this dict; adding one takes a new file, a line here and a file in conf/recovery.
"""

from __future__ import annotations

from bench.recovery.base import Layer
from bench.registry import variant

LAYERS: dict[str, str] = {
    "none": "bench.recovery.plain:Plain",
    "torchrun": "bench.recovery.torchrun:Torchrun",
    "in_job": "bench.recovery.in_job:InJob",
    "in_process": "bench.recovery.in_process:InProcess",
    "nested": "bench.recovery.nested:Nested",
    "pod_restart": "bench.recovery.pod_restart:PodRestart",
    "requeue": "bench.recovery.requeue:Requeue",
}


def create(name: str) -> Layer:
    """The layer called `name`. Raises BadInput for an unknown one."""
    layer: Layer = variant(LAYERS, name, "recovery.layer", "layer")()
    return layer
