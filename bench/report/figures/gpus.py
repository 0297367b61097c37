"""What the GPUs did meanwhile: load, power and clocks over a launch, and the energy that saves cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from bench.measure.accounted import Accounted
from bench.measure.events import Event, LaunchRecord
from bench.measure.timeline import save_events
from bench.report.data import measured_launches
from bench.report.energy import STALLED, Energy, energy, gpu_samples
from bench.report.figures.base import Missing, Picture
from bench.report.figures.style import BLUE, INK, VERMILLION, canvas
from bench.report.words import digits, percent

PANELS = (("utilization_share", "load, %", 100.0), ("power_w", "power, W", 1.0), ("sm_clock_mhz", "SM clock, MHz", 1.0))
Samples = Mapping[tuple[int, int], Sequence[Event]]


def draw(result: Accounted) -> Picture:
    launch, samples = _first(result)
    begin = min(float(events[0]["t"]) for events in samples.values())
    figure, rows = canvas(4.0, rows=len(PANELS), sharex=True)
    for axes, (name, title, factor) in zip(rows, PANELS, strict=True):
        for save in save_events(launch).values():
            last_in, last_out = save.last_in(launch.world_size), save.last_out(launch.world_size)
            if last_in is not None and last_out is not None:
                axes.axvspan(last_in - begin, last_out - begin, color=VERMILLION, alpha=0.35, linewidth=0)
        _lines(axes, samples, name, factor, begin)
        axes.set_ylabel(title, fontsize=7.5)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y")
    rows[-1].set_xlabel("seconds since the first reading; shaded: saves")
    caption = (
        f"Launch {launch.index}, one line a GPU, n = {len(samples)} GPUs, read about once a second by the node "
        "runner; a reading of load is what the driver saw before it, so short saves may not show. No interval."
    )
    return Picture(figure, caption, _says(energy(result), samples))


def _first(result: Accounted) -> tuple[LaunchRecord, Samples]:
    for launch in measured_launches(result):
        samples = gpu_samples(launch)
        if samples:
            return launch, samples
    raise Missing("no GPU was watched: readings come from NVML on machines with GPUs")


def _lines(axes: Axes, samples: Samples, name: str, factor: float, begin: float) -> None:
    for events in samples.values():
        known = [(event["t"] - begin, factor * event[name]) for event in events if event.get(name) is not None]
        axes.plot([t for t, _ in known], [value for _, value in known], color=BLUE, linewidth=0.8, alpha=0.7)
    if not any(event.get(name) is not None for events in samples.values() for event in events):
        axes.text(0.5, 0.5, "not told by this GPU", ha="center", color=INK, transform=axes.transAxes)


def _says(used: Energy | None, samples: Samples) -> str:
    parts = []
    if used is not None and used.stalled_share is not None:
        stalled_j = sum(used.joules.get(name, 0.0) for name in STALLED)
        parts.append(
            f"Of {digits(sum(used.joules.values()) / 1000)} kJ in the spans of {used.gpus} GPUs, "
            f"{percent(used.stalled_share)} ({digits(stalled_j / 1000)} kJ) were used while training stood still "
            "for saves"
        )
    else:
        parts.append("Energy is not told: the GPUs' counters do not cover the launches")
    looks = [event for events in samples.values() for event in events if event.get("throttled_by") is not None]
    reasons = Counter(reason for event in looks for reason in event["throttled_by"] if reason != "idle")
    if reasons:
        told = ", ".join(f"{name.replace('_', ' ')} in {percent(n / len(looks))}" for name, n in reasons.most_common())
        parts.append(f"clocks were held down by {told} of the readings")
    elif looks:
        parts.append("nothing held the clocks down")
    return f"{'; '.join(parts)}."
