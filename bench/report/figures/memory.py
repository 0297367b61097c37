"""Memory: the peaks that an arm adds where launches have one arm, and the course over a launch otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.measure.accounted import Accounted
from bench.measure.events import LaunchRecord
from bench.report.data import measured_launches
from bench.report.figures.base import Missing, Picture
from bench.report.figures.style import BLUE, GREEN, INK, ORANGE, below, canvas, look
from bench.report.words import size
from bench.schema import Arm

KINDS: Mapping[str, tuple[str, str, str]] = {  # name of the quantity -> in words, colour, line
    "host_bytes": ("host, private memory of all processes", BLUE, "-"),
    "shm_bytes": ("/dev/shm", ORANGE, "--"),
    "device_bytes": ("fullest GPU", GREEN, "-."),
}
PEAKS = ("peak_host_bytes", "peak_shm_bytes", "peak_device_bytes")


def draw(result: Accounted) -> Picture:
    arms = [arm for arm in result.summary.arms if any(getattr(arm, peak) is not None for peak in PEAKS)]
    return _peaks(arms) if arms else _course(result)


def _peaks(arms: Sequence[Arm]) -> Picture:
    figure, columns = canvas(1.4 + 0.3 * len(arms), columns=3, sharey=True)
    for axes, peak, title in zip(columns, PEAKS, ("host", "/dev/shm", "GPU"), strict=True):
        for place, arm in enumerate(arms):
            found = getattr(arm, peak)
            if found is not None:
                axes.barh(place, found.median / 1e6, color=look(arm.name).colour, edgecolor=INK, linewidth=0.5)
                axes.plot([found.low / 1e6, found.high / 1e6], [place, place], color=INK, linewidth=1.6)
        axes.set_title(title)
        axes.set_xlabel("MB above the control")
        axes.grid(axis="x")
    columns[0].set_yticks(range(len(arms)), [arm.name for arm in arms])
    columns[0].invert_yaxis()
    caption = (
        "Peak of an arm's own launches less that of the block's control, node by node, the worst node; MB: 1e6 bytes. "
        f"Bars: median over blocks; lines: {_interval(arms)}."
    )
    texts = [
        f"{arm.name}: {', '.join(f'{size(found.median)} {kind}' for kind, found in _found(arm))} above the control"
        for arm in arms
    ]
    return Picture(figure, caption, f"{'; '.join(texts)}.")


def _found(arm: Arm) -> list[tuple[str, Any]]:
    named = zip(("host", "/dev/shm", "GPU"), PEAKS, strict=True)
    return [(kind, getattr(arm, peak)) for kind, peak in named if getattr(arm, peak) is not None]


def _interval(arms: Sequence[Arm]) -> str:
    figures = [found for arm in arms for _, found in _found(arm)]
    return f"{'95 % interval' if all(f.interval == 'ci95' for f in figures) else 'range'}, n = {figures[0].n}"


def _course(result: Accounted) -> Picture:
    launch, courses = _first_with_memory(measured_launches(result))
    figure, axes = canvas(2.5)
    for kind, (title, colour, line) in KINDS.items():
        for node, readings in courses.items():
            known = [(event["t"], event[kind] / 1e6) for event in readings if event.get(kind) is not None]
            if known:
                label = title if node == min(courses) else None
                times = [t - readings[0]["t"] for t, _ in known]
                axes.plot(times, [value for _, value in known], color=colour, linestyle=line, label=label)
    axes.set_xlabel("seconds since the first reading")
    axes.set_ylabel("MB")
    axes.set_ylim(bottom=0)
    axes.grid()
    below(axes, figure, 3)
    caption = (
        f"Launch {launch.index}, one line a node; the peak of each second, megabytes (1e6); n = 1 launch, no interval. "
        "Arms take turns within a launch here, so what an arm adds cannot be told apart (design=full can)."
    )
    peaks = {
        title: max(
            (e[kind] for readings in courses.values() for e in readings if e.get(kind) is not None), default=None
        )
        for kind, (title, _, _) in KINDS.items()
    }
    texts = [f"{title} {size(value)}" for title, value in peaks.items() if value is not None]
    return Picture(figure, caption, f"Peak of one node in this launch: {', '.join(texts)}.")


def _first_with_memory(launches: Sequence[LaunchRecord]) -> tuple[LaunchRecord, dict[int, list[dict[str, Any]]]]:
    for launch in launches:
        courses = {runner.node: events for runner in launch.runners if (events := runner.named("memory"))}
        if courses:
            return launch, courses
    raise Missing("memory was not sampled, or the events of the runners were not kept")
