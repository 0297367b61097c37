"""Steps around one save of each arm: how long each step took, while the save ran and while its write was in flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from numpy.typing import NDArray

from bench.measure.accounted import Accounted
from bench.measure.events import LaunchRecord
from bench.measure.timeline import JobSteps, Ranks, SaveEvents, control_step_s, job_steps, save_events, writers_of
from bench.report.data import measured_launches
from bench.report.figures.base import Missing, Picture
from bench.report.figures.style import FEW, GREY, INK, PALE, VERMILLION, below, canvas, plain_seconds
from bench.report.words import percent, seconds

BEFORE, AFTER, MOST_AFTER = 8, 4, 60  # steps shown before the save, after its write, and after the save at most
DURING = "#9FC8E8"


@dataclass(frozen=True, eq=False)
class Trace:
    """One save and the steps around it. Seconds since the last rank went into the save, at job level."""

    arm: str
    launch: int
    save: int
    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    out_s: float  # the last rank is out of the save
    durable_s: float | None
    control_s: float | None

    @property
    def during(self) -> NDArray[np.bool_]:
        """Steps of which a part ran while the write was in flight, after the save had returned."""
        if self.durable_s is None:
            return np.zeros(len(self.begin), dtype=np.bool_)
        found: NDArray[np.bool_] = (self.begin >= self.out_s - 1e-9) & (self.begin < self.durable_s)
        return found

    @property
    def longer(self) -> float | None:
        """By which share steps during the write were longer than control steps; None without either."""
        if self.control_s is None or not self.during.any():
            return None
        return float((self.end - self.begin)[self.during].mean()) / self.control_s - 1


def draw(result: Accounted) -> Picture:
    found = list(traces(result))
    if not found:
        raise Missing("the events of the launches were not kept, or no measured save is on record with every rank")
    figure, rows = canvas(0.8 + 0.82 * len(found), rows=len(found), sharex=True, sharey=True, squeeze=False)
    for axes, trace in zip(rows[:, 0], found, strict=True):
        _panel(axes, trace)
    rows[-1, 0].set_xlabel("seconds since the last rank went into the save")
    figure.supylabel("step", fontsize=8.5)
    below(rows[0, 0], figure, 4, _legend())
    caption = (
        f"The first measured save of each arm (launch {found[0].launch}{' and others' if _several(found) else ''}); "
        "height and width of a block: one step over all ranks, seconds. Single saves, n = 1, no interval: the figure "
        "of S, K and L holds all of them."
    )
    return Picture(figure, caption, _message(found))


def _several(found: list[Trace]) -> bool:
    return len({trace.launch for trace in found}) > 1


def traces(result: Accounted) -> Iterator[Trace]:
    """One trace an arm, of its first measured save whose ends are known."""
    launches, writers = measured_launches(result), writers_of(result.launches)
    cache: dict[int, JobSteps] = {}
    for arm in result.arms:
        for launch in launches:
            if arm not in launch.launch["arms"]:
                continue
            steps = cache.setdefault(launch.index, job_steps(launch))
            trace = _first_trace(launch, arm, steps, writers)
            if trace is not None:
                yield trace
                break


def _first_trace(launch: LaunchRecord, arm: str, steps: JobSteps, writers: Mapping[str, Ranks]) -> Trace | None:
    for save in save_events(launch).values():
        if save.arm == arm and save.attributes.get("measured") and save.last_out(launch.world_size) is not None:
            return _trace(launch, save, steps, writers)
    return None


def _trace(launch: LaunchRecord, save: SaveEvents, steps: JobSteps, writers: Mapping[str, Ranks]) -> Trace | None:
    last_in, last_out = save.last_in(launch.world_size), save.last_out(launch.world_size)
    known = steps.where(steps.known)
    if last_in is None or last_out is None or not len(known.step):
        return None
    shards = save.shards(writers.get(save.arm, frozenset()))
    durable = max(float(shard["t"]) for shard in shards) if shards else None
    number = int(save.attributes["step"])
    settled = int((known.end <= max(durable or last_out, last_out)).sum())
    last = min(known.step[min(settled, len(known.step) - 1)] + AFTER, number + MOST_AFTER)
    chosen = known.where((known.step > number - BEFORE - 1) & (known.step <= last))
    previous = np.concatenate([[np.nan], chosen.end[:-1]])
    begin = np.where(chosen.step == number + 1, last_out, previous)
    whole = np.isfinite(begin)
    cycle = int(save.attributes["cycle"])
    return Trace(
        arm=save.arm,
        launch=launch.index,
        save=save.save,
        begin=begin[whole] - last_in,
        end=chosen.end[whole] - last_in,
        out_s=last_out - last_in,
        durable_s=None if durable is None else durable - last_in,
        control_s=control_step_s(steps, cycle),
    )


def _panel(axes: Axes, trace: Trace) -> None:
    for begin, end, during in zip(trace.begin, trace.end, trace.during, strict=True):
        fill = DURING if during else PALE
        axes.bar(begin, end - begin, width=end - begin, align="edge", color=fill, edgecolor="#777777", linewidth=0.4)
    axes.axvspan(0, max(trace.out_s, 1e-4), color=VERMILLION, alpha=0.85, linewidth=0.6)
    if trace.durable_s is not None and trace.durable_s > trace.out_s:
        axes.axvspan(
            trace.out_s, trace.durable_s, ymin=0.9, facecolor="white", edgecolor=INK, hatch="//////", linewidth=0.5
        )
    if trace.control_s is not None:
        axes.axhline(trace.control_s, color=GREY, linestyle="--", linewidth=0.8)
    axes.margins(y=0.25)
    axes.yaxis.set_major_formatter(lambda value, _: plain_seconds(value))
    axes.set_title(trace.arm, loc="left", fontsize=8, pad=2)


def _legend() -> list[Patch]:
    return [
        Patch(facecolor=PALE, edgecolor="#777777", label="step, no write"),
        Patch(facecolor=DURING, edgecolor="#777777", label="step during the write"),
        Patch(facecolor=VERMILLION, label="save (S)"),
        Patch(facecolor="white", edgecolor=INK, hatch="//////", label="write in flight"),
    ]


def _message(found: list[Trace]) -> str:
    """Of many arms the ends: which save blocked longest, and after which the steps were slowed most."""
    shown = found
    if len(found) > FEW:
        slowed = max(found, key=lambda trace: trace.longer or 0.0)
        shown = list(dict.fromkeys([max(found, key=lambda trace: trace.out_s), slowed]))
    return f"{'; '.join(map(_says, shown))}{'; the others less so' if len(shown) < len(found) else ''}."


def _says(trace: Trace) -> str:
    text = f"{trace.arm}: blocked for {seconds(trace.out_s)}"
    if trace.longer is not None:
        count, word = int(trace.during.sum()), "longer" if trace.longer >= 0 else "shorter"
        text += f", then {count} step{'s' * (count > 1)} during the write, {percent(abs(trace.longer))} {word}"
    return text
