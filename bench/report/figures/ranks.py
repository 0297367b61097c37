"""The ranks around a fault: what each slot did, from before it struck until all ranks step again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from bench.measure.accounted import Accounted
from bench.measure.events import LaunchRecord, Stream
from bench.report.data import struck
from bench.report.figures.base import Missing, Picture
from bench.report.figures.style import BLACK, GREEN, INK, ORANGE, PALE, SKY, VERMILLION, below, box, canvas
from bench.report.figures.waterfall import NONE
from bench.report.words import seconds
from bench.schema import Recovery

SPANS = {  # name of a span -> in words, colour, hatch
    "step": ("step", PALE, ""),
    "aborted": ("step cut off", SKY, "xxxx"),
    "save": ("save", VERMILLION, ""),
    "arrive": ("waits for other ranks", ORANGE, "////"),
    "peers": ("waits for other ranks", ORANGE, "////"),
    "load": ("loads", GREEN, "----"),
}
MARGIN = 0.25  # of the time to recover, shown before the fault and after the first new step
LEAST_MARGIN_S = 0.5
CLOSE = 0.06  # of the time shown: points closer than that share a label
SHOWN_POINTS = ("detected", "stopped", "restarted", "first_step")


@dataclass(frozen=True)
class Scene:
    """One episode in its launch. `begin`, `end`: the part shown, s of node 0's clock; `t`: the fault."""

    launch: LaunchRecord
    episode: Recovery
    t: float
    begin: float
    end: float


def draw(result: Accounted) -> Picture:
    scene = _scene(result)
    slots, episode = scene.launch.slots(), scene.episode
    figure, axes = canvas(1.6 + max(0.2 * len(slots), 0.6))
    for place, streams in enumerate(slots.values()):
        _slot(axes, place, streams, scene)
    _points(axes, episode, scene.end - scene.begin)
    axes.set_yticks(range(len(slots)), list(slots) if len(slots) <= 32 else [""] * len(slots))
    axes.set(xlim=(scene.begin - scene.t, scene.end - scene.t), ylim=(len(slots) - 0.4, -0.7))
    axes.set_xlabel("seconds since the fault")
    axes.set_ylabel("slot (node/local rank)")
    below(axes, figure, 4, _legend())
    caption = (
        f"Launch {scene.launch.index}, episode {episode.episode}: {episode.label} at slot {episode.node}/"
        f"{episode.local_rank} under {episode.layer}; seconds, node clocks aligned to node 0. Thin line: a process "
        "with an event file lives; a gap in it: none does. One episode, n = 1, no interval."
    )
    return Picture(figure, caption, _says(episode))


def _scene(result: Accounted) -> Scene:
    """The first recovered episode whose fault and events are on record."""
    if not struck(result):
        raise Missing(NONE)
    for episode in struck(result):
        launch = next((each for each in result.launches if each.index == episode.launch), None)
        if launch is None or episode.outcome != "recovered" or episode.time_to_recover_s is None:
            continue
        records = [fault for fault in launch.faults if fault["id"] in episode.faults]
        if records:
            t, took = float(records[0]["t"]), episode.time_to_recover_s + (episode.instrument_s or 0.0)
            margin = max(MARGIN * took, LEAST_MARGIN_S)
            return Scene(launch, episode, t, t - margin, t + took + margin)
    raise Missing("no recovered episode has its fault's record and its events in this result")


def _points(axes: Axes, episode: Recovery, shown_s: float) -> None:
    """The fault, and what is known of when it was detected, stopped, restarted, stepped; close ones share a label."""
    axes.axvline(0, color=BLACK, linewidth=1.4)
    told = {"fault": 0.0} | {name: t for name, t in episode.points_s.items() if t is not None and name in SHOWN_POINTS}
    labels: list[tuple[float, str]] = []
    for name, t in sorted(told.items(), key=lambda pair: pair[1]):
        axes.axvline(t, color=BLACK, linewidth=0.6, linestyle="--")
        if labels and t - labels[-1][0] < CLOSE * shown_s:
            labels[-1] = (labels[-1][0], f"{labels[-1][1]}, {name.replace('_', ' ')}")
        else:
            labels.append((t, name.replace("_", " ")))
    for t, label in labels:
        text = axes.annotate(label, (t, 1.01), xycoords=("data", "axes fraction"), fontsize=7, annotation_clip=False)
        text.set(rotation=22, verticalalignment="bottom")


def _slot(axes: Axes, place: int, streams: Sequence[Stream], scene: Scene) -> None:
    for stream in streams:
        life = _clipped(stream.first_t, stream.last_t, scene)
        if life is not None:
            axes.plot([life[0], sum(life)], [place, place], color=INK, linewidth=0.8, zorder=1)
        for name, begin, end in _spans(stream):
            bar = _clipped(begin, end, scene)
            if bar is not None:
                _, colour, hatch = SPANS[name]
                axes.broken_barh([bar], (place - 0.34, 0.68), zorder=2, **box(colour, hatch, 0.3))


def _spans(stream: Stream) -> list[tuple[str, float, float]]:
    steps = stream.steps
    found = [("step", float(t0), float(t1)) for t0, t1 in zip(steps.t0, steps.t1, strict=True)]
    for span in stream.spans:
        name = "aborted" if span["name"] == "step" else span["name"]
        if name in SPANS:
            found.append((name, float(span["t0"]), float(span["t1"])))
    if stream.open_span is not None and stream.open_span.name in SPANS:
        name = "aborted" if stream.open_span.name == "step" else stream.open_span.name
        found.append((name, stream.open_span.t, max(stream.last_t, stream.open_span.t)))
    return found


def _clipped(begin: float, end: float, scene: Scene) -> tuple[float, float] | None:
    """(begin since the fault, length) of the visible part."""
    low, high = max(begin, scene.begin), min(end, scene.end)
    return (low - scene.t, high - low) if high > low else None


def _legend() -> list[Patch]:
    named = {label: (colour, hatch) for label, colour, hatch in SPANS.values()}
    return [Patch(label=label, **box(colour, hatch)) for label, (colour, hatch) in named.items()]


def _says(episode: Recovery) -> str:
    lost = f"; {episode.lost_steps} finished steps were lost" if episode.lost_steps is not None else ""
    used = f" (by {episode.layer_used})" if episode.layer_used else ""
    return f"The first new step was done {seconds(episode.time_to_recover_s)} after the fault{used}{lost}."
