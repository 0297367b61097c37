"""Recovery layers: who starts the ranks of a launch and what happens when one of them dies.

One layer a file, found through this dict; adding one takes a new file, a line here and a file in conf/recovery.
"""

from __future__ import annotations

from bench.config import Run
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


def refusal(config: Run) -> str | None:
    """Why the layers of a run cannot serve it, as the one line of a BadInput; None: they can.

    Spare ranks are slots of every launch that is compared: all layers can use them, or none has them.
    """
    layers = {name: create(name) for name in config.recovery.layers or [config.recovery.layer]}
    idle = [name for name, layer in layers.items() if not layer.takes_reserve]
    if config.recovery.reserve and idle:
        use = "have no use" if len(idle) > 1 else "has no use"
        leave = " alone, in a run of their own" if len(idle) < len(layers) else ""
        return f"recovery.reserve: {', '.join(idle)} {use} for spare ranks; give them to in_process or nested{leave}"
    return next((refused for layer in layers.values() if (refused := layer.refusal(config)) is not None), None)
