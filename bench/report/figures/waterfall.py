"""From a fault to the step where the job was: the parts of a recovery, by fault and layer, every episode a point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bench.measure.accounted import Accounted
from bench.measure.layers import recovery_figure
from bench.measure.points import PARTS
from bench.report.data import struck
from bench.report.figures.base import Missing, Picture
from bench.report.figures.style import FEW, FILLS, INK, below, box, canvas
from bench.report.words import seconds
from bench.schema import Recovery

NONE = "no fault struck in this result; a recovery scenario injects some"


def groups(episodes: Sequence[Recovery]) -> dict[tuple[str, str], list[Recovery]]:
    """Episodes by (fault in words, layer), in the order of these."""
    found: dict[tuple[str, str], list[Recovery]] = {}
    for episode in episodes:
        found.setdefault((episode.label, episode.layer), []).append(episode)
    return dict(sorted(found.items()))


def part_s(episode: Recovery, part: str) -> float | None:
    """Seconds of one of PARTS, or of "time_to_recover" and "time_to_catch_up"."""
    value: float | None = getattr(episode, f"{part}_s")
    return value


def draw(result: Accounted) -> Picture:
    every = struck(result)
    episodes = [each for each in every if each.time_to_recover_s is not None]
    if not episodes:
        raise Missing(NONE if not every else "no episode was recovered from, so there are no parts to show")
    found = groups(episodes)
    faults = list(dict.fromkeys(fault for fault, _ in found))
    figure, axes = canvas(1.1 + 0.24 * (len(found) + len(faults)))
    places: list[int] = []
    row = 0
    for number, ((fault, _), mine) in enumerate(found.items()):
        if number == 0 or fault != list(found)[number - 1][0]:  # a line for the name of the fault
            axes.text(0, row, f" {fault}", fontsize=7.5, fontweight="bold", va="center")
            row += 1
        places.append(row)
        _bar(axes, row, mine)
        _points(axes, row, mine)
        row += 1
    axes.set_yticks(places, [layer for _, layer in found])
    axes.set(ylim=(row - 0.4, -0.6))
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds since the fault")
    axes.grid(axis="x")
    below(axes, figure, 4, _legend([part for part in PARTS if part != "queue" or _values(episodes, part)]))
    counts = sorted({len(mine) for mine in found.values()})
    n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    caption = (
        f"Seconds; bars: median of each part, n = {n} episodes a bar; points: every episode, so the range is seen and "
        "no interval is claimed. Medians of parts need not add up to the median of the whole. "
        f"{_left_out(every, episodes)}"
    )
    return Picture(figure, caption.strip(), _says(found))


def _bar(axes: Axes, place: int, episodes: Sequence[Recovery]) -> None:
    left = 0.0
    for part in PARTS:
        values = _values(episodes, part)
        if values:
            width = median(values)
            axes.barh(place, width, left=left, height=0.5, **box(*FILLS[part]))
            left += width


def _values(episodes: Sequence[Recovery], name: str) -> list[float]:
    return [value for each in episodes if (value := part_s(each, name)) is not None]


def _points(axes: Axes, place: int, episodes: Sequence[Recovery]) -> None:
    for name, marker, face in (("time_to_recover", "o", "white"), ("time_to_catch_up", "D", "#444444")):
        values = _values(episodes, name)
        axes.scatter(
            values, [place + 0.36] * len(values), s=13, marker=marker, facecolors=face, edgecolors=INK, zorder=3
        )


def _legend(parts: Sequence[str]) -> list[Artist]:
    points: dict[str, Any] = {"linestyle": "none", "markeredgecolor": INK, "markersize": 4.5}
    return [
        *(Patch(label=part.replace("_", " "), **box(*FILLS[part])) for part in parts),
        Line2D([], [], marker="o", markerfacecolor="white", label="recovered", **points),
        Line2D([], [], marker="D", markerfacecolor="#444444", label="caught up", **points),
    ]


def _left_out(every: Sequence[Recovery], shown: Sequence[Recovery]) -> str:
    count = len(every) - len(shown)
    return f"{count} episode{'s' * (count > 1)} without a recovery: see the matrix." if count else ""


def _says(found: Mapping[tuple[str, str], Sequence[Recovery]]) -> str:
    """Of many bars the fastest and the slowest, and which part is the longest in how many of them."""
    ordered = sorted(found, key=lambda key: _whole_s(found[key]))
    shown = ordered if len(ordered) <= FEW else [ordered[0], ordered[-1]]
    longest = Counter(part for mine in found.values() if (part := _longest(mine)) is not None)
    most = ", ".join(f"{part.replace('_', ' ')} in {count}" for part, count in longest.most_common())
    return f"{'; '.join(_one(key, found[key]) for key in shown)}. Longest part: {most} of {len(found)} bars."


def _longest(episodes: Sequence[Recovery]) -> str | None:
    """The part of a recovery (catching up comes after it) with the largest median."""
    sums = {part: median(values) for part in PARTS[:-1] if (values := _values(episodes, part))}
    return max(sums, key=lambda part: sums[part], default=None)


def _one(key: tuple[str, str], episodes: Sequence[Recovery]) -> str:
    fault, layer = key
    return f"{fault} by {layer}: first new step after {seconds(_whole_s(episodes))}"


def _whole_s(episodes: Sequence[Recovery]) -> float:
    """As the tables say it. Every episode has its time."""
    found = recovery_figure(episodes, "time_to_recover_s")
    assert found is not None
    return found.median
