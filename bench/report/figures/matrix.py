"""Which layer recovers from which fault: a cell each, with the time it took or what happened instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

from bench.measure.accounted import Accounted
from bench.measure.layers import recovery_figure
from bench.report.figures.base import Missing, Picture
from bench.report.figures.style import INK, box, canvas, plain_seconds
from bench.report.figures.waterfall import NONE, groups
from bench.schema import Recovery

LAYERS = (
    "none",
    "in_process",
    "nested",
    "in_job",
    "torchrun",
    "pod_restart",
    "requeue",
)  # fastest to slowest, as meant
DARK = 0.55  # cells above this place of the colour map get dark letters


@dataclass(frozen=True)
class Cell:
    """What came of one fault under one layer, over its episodes."""

    n: int
    recovered: int
    tolerated: int
    time_s: float | None  # median time to the first new step, of the recovered ones
    outcomes: Mapping[str, int]
    layers_used: tuple[str, ...]

    @classmethod
    def of(cls, episodes: Sequence[Recovery]) -> Cell:
        outcomes = Counter(str(each.outcome) for each in episodes)
        took = recovery_figure([each for each in episodes if each.outcome == "recovered"], "time_to_recover_s")
        used = dict.fromkeys(str(each.layer_used) for each in episodes if each.layer_used)
        time_s = took.median if took is not None else None
        return cls(len(episodes), outcomes["recovered"], outcomes["tolerated"], time_s, outcomes, tuple(used))

    def text(self, layer: str) -> str:
        head = plain_seconds(self.time_s) if self.time_s is not None else ""
        others = [
            f"{name.replace('_', chr(10) if not head else ' ')}{f' {count}/{self.n}' if self.n > 1 else ''}"
            for name, count in self.outcomes.items()
            if name != "recovered"
        ]
        count = f"{self.recovered}/{self.n}" if head and (self.recovered < self.n or self.n > 1) else ""
        other_layer = [f"by {used}" for used in self.layers_used if used != layer and layer != "none"]
        return "\n".join(part for part in (head, count, *others, *other_layer) if part)


def cells(episodes: Sequence[Recovery]) -> dict[tuple[str, str], Cell]:
    return {key: Cell.of(mine) for key, mine in groups(episodes).items()}


def draw(result: Accounted) -> Picture:
    episodes = result.summary.recoveries  # planned faults that did not strike among them
    if not episodes:
        raise Missing(NONE)
    found = cells(episodes)
    faults = list(dict.fromkeys(fault for fault, _ in found))
    layers = sorted({layer for _, layer in found}, key=lambda layer: (*LAYERS, layer).index(layer))
    figure, axes = canvas(1.0 + 0.5 * len(faults))
    times = [cell.time_s for cell in found.values() if cell.time_s]
    norm = LogNorm(min(times), max(*times, min(times) * 1.01)) if times else None
    for (fault, layer), cell in found.items():
        _cell(axes, layers.index(layer), faults.index(fault), cell, layer, norm)
    axes.set(xlim=(-0.5, len(layers) - 0.5), ylim=(len(faults) - 0.5, -0.5))
    axes.set_xticks(
        range(len(layers)), layers, rotation=35 if len(layers) > 3 else 0, ha="left" if len(layers) > 3 else "center"
    )
    axes.set_yticks(range(len(faults)), [fault.replace(", ", ",\n") for fault in faults])
    axes.tick_params(length=0)
    axes.xaxis.tick_top()
    axes.spines[:].set_visible(False)
    caption = (
        "Median seconds from the fault to the first new step, and recovered / all episodes; lighter: faster. Hatched: "
        "not recovered. A blank cell was not run. No interval: the waterfall shows every episode."
    )
    return Picture(figure, caption, _says(found))


def _cell(axes: Axes, x: int, y: int, cell: Cell, layer: str, norm: LogNorm | None) -> None:
    place = float(norm(cell.time_s)) if norm is not None and cell.time_s else 0.0
    colour = colormaps["Greys"](0.12 + 0.6 * np.clip(place, 0, 1)) if cell.time_s is not None else (1, 1, 1, 1)
    failed = cell.recovered + cell.tolerated < cell.n
    axes.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, **box(colour, "////" if failed else "")))
    ink = "white" if cell.time_s is not None and place > DARK and not failed else INK
    back = {"facecolor": "white", "edgecolor": "none", "pad": 1} if failed else None
    axes.text(x, y, cell.text(layer), ha="center", va="center", fontsize=6.3, color=ink, bbox=back, linespacing=1.05)


def _says(found: Mapping[tuple[str, str], Cell]) -> str:
    by_layer: dict[str, list[Cell]] = {}
    for (_, layer), cell in found.items():
        by_layer.setdefault(layer, []).append(cell)
    parts = []
    for layer, mine in by_layer.items():
        whole = sum(cell.recovered + cell.tolerated == cell.n for cell in mine)
        parts.append(f"{layer}: {whole} of {len(mine)} faults recovered from or tolerated in every episode")
    return f"{'; '.join(parts)}."
