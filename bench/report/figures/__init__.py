"""The figures of a report: one a file, found by name; each drawn from a result alone, by `draw`."""

from __future__ import annotations

from bench.measure.accounted import Accounted
from bench.report.figures import (
    drift,
    gpu_time,
    gpus,
    matrix,
    memory,
    ranks,
    save_quantities,
    share_period,
    step_trace,
    waterfall,
)
from bench.report.figures.base import Drawing, Kind, drawn

FIGURES: dict[str, Kind] = {
    "gpu_time": Kind("Where the time went", gpu_time.draw),
    "share_period": Kind("What saving costs, by how often one saves", share_period.draw),
    "save_quantities": Kind("What one save costs: S, K and L", save_quantities.draw),
    "step_trace": Kind("Steps around a save", step_trace.draw),
    "drift": Kind("From the first save to the last", drift.draw),
    "memory": Kind("Memory while training and saving", memory.draw),
    "gpus": Kind("What the GPUs did meanwhile", gpus.draw),
    "waterfall": Kind("From a fault to where the job was", waterfall.draw),
    "matrix": Kind("Which layer recovers from which fault", matrix.draw),
    "ranks": Kind("The ranks around a fault", ranks.draw),
}


def draw(name: str, result: Accounted) -> Drawing:
    """The figure `name` of a result; what it cannot show it says."""
    kind = FIGURES[name]
    return drawn(name, kind.title, lambda: kind.draw(result))
