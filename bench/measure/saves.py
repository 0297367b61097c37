"""The quantities of each save at job level (metrics.md 3), from the events of its launch.

Notation: S blocking_s, L durable_s, K cost_s, t control_step_s, sigma slowdown_share. Unknown is None, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.measure.events import LaunchRecord
from bench.measure.timeline import JobSteps, Ranks, SaveEvents, control_step_s, job_steps, save_events, writers_of
from bench.schema import Sample

CONTROL_ARM = "none"  # the arm that saves nothing: the full design's control


def samples(launches: Sequence[LaunchRecord], warmup_saves: int = 2) -> list[Sample]:
    """One Sample a save, launch by launch, in the order of the saves.

    `warmup_saves`: so many first saves of an arm in a launch of the full design are not measured; in the quick design
    the segments say what is measured. Launches of a block are paired: K of the full design needs the arm "none" there.
    """
    writers = writers_of(launches)
    views = [_view(launch, writers, warmup_saves) for launch in launches]
    controls = _control_periods_s(views)
    return [sample for view in views for sample in _launch_samples(view, controls.get(view.launch.block))]


@dataclass(frozen=True)
class _View:
    """A launch, and what its saves share."""

    launch: LaunchRecord
    writers: Mapping[str, Ranks]
    warmup_saves: int
    steps: JobSteps
    saves: list[SaveEvents]

    def in_and_out(self, save: SaveEvents | None) -> tuple[float | None, float | None]:
        """Last rank in and last rank out, s."""
        world_size = self.launch.world_size
        return (save.last_in(world_size), save.last_out(world_size)) if save else (None, None)

    def followed(self) -> Iterator[tuple[SaveEvents, SaveEvents | None]]:
        """Each save with the one after it."""
        return zip(self.saves, [*self.saves[1:], None], strict=False)


def _view(launch: LaunchRecord, writers: Mapping[str, Ranks], warmup_saves: int) -> _View:
    return _View(launch, writers, warmup_saves, job_steps(launch), list(save_events(launch).values()))


# --- one launch -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Control:
    """What a save is compared with: the step time and, in the full design, the period without saves. Seconds."""

    step_s: float | None
    period_s: float | None


def _launch_samples(view: _View, control_period_s: float | None) -> list[Sample]:
    controls: dict[tuple[int, int], _Control] = {}
    for save in view.saves:
        key = _control_key(save)
        if key not in controls:
            controls[key] = _control(view, *key, control_period_s)
    return [_sample(view, save, after, controls[_control_key(save)]) for save, after in view.followed()]


def _control_key(save: SaveEvents) -> tuple[int, int]:
    return int(save.attributes["cycle"]), int(save.attributes["segment"])


def _control(view: _View, cycle: int, segment: int, control_period_s: float | None) -> _Control:
    if cycle < 0:  # saves after the measured part have no control
        return _Control(None, None)
    if view.launch.kind != "full":
        return _Control(control_step_s(view.steps, cycle), None)
    interval = _interval(view.launch, segment)
    step_s = None if control_period_s is None or interval is None else control_period_s / interval
    return _Control(step_s, control_period_s)


def _sample(view: _View, save: SaveEvents, following: SaveEvents | None, control: _Control) -> Sample:
    launch, told = view.launch, save.attributes
    last_in, last_out = view.in_and_out(save)
    shards = save.shards(view.writers.get(save.arm, frozenset()))
    durable = max(float(shard["t"]) for shard in shards) if shards else None
    blocking_s, period_s = _minus(last_out, last_in), _period_s(view, save, following)
    full = launch.kind == "full"
    cost_s = _minus(period_s, control.period_s) if full else _quick_cost_s(view, save, durable, control.step_s)
    during = _steps_during(view, save, following, durable)
    return Sample(
        launch=launch.index,
        occasion=launch.occasion,
        cycle=int(told["cycle"]),
        arm=save.arm,
        save=save.save,
        step=int(told["step"]),
        measured=_measured(view, save),
        blocking_s=blocking_s,
        durable_s=_minus(durable, last_in),
        cost_s=cost_s,
        hidden_s=_minus(cost_s, blocking_s),
        control_step_s=control.step_s,
        during_steps=len(during),
        slowdown_share=_slowdown_share(control.step_s, during),
        period_s=period_s,
        arrive_s=_longest(save.arrive_s, launch.world_size),
        peers_s=_longest(save.peers_s, launch.world_size),
        dirty_bytes=_dirty_bytes(save, launch),
        phases=_phases(save, launch.world_size),
        interval_steps=_interval(launch, int(told["segment"])),
        write_imbalance=_write_imbalance(save) if shards else None,
        delete_s=max(save.delete_s.values(), default=None),
        **_written(shards),
    )


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _measured(view: _View, save: SaveEvents) -> bool:
    """As the worker says; in the full design a segment holds the warm-up as well, which is cut off here."""
    segment = view.launch.segment(int(save.attributes["segment"]))
    told = bool(save.attributes["measured"]) and segment is not None and bool(segment["measured"])
    return told and (view.launch.kind != "full" or save.save >= view.warmup_saves)


def _quick_cost_s(view: _View, save: SaveEvents, durable: float | None, control_s: float | None) -> float | None:
    """K of a quick segment: last rank in to the end of the last step after the save, less those steps at control speed.

    None for other segments, and where the write was not known to be durable within that time.
    """
    segment_index, (last_in, _) = int(save.attributes["segment"]), view.in_and_out(save)
    segment = view.launch.segment(segment_index)
    if segment is None or segment["interval"] is not None or last_in is None or control_s is None:
        return None
    steps = view.steps
    mine = (steps.segment == segment_index) & (steps.cycle == int(save.attributes["cycle"]))
    around = steps.where(mine & ((steps.use == "control") | (steps.use == "after")))
    after = steps.where(mine & (steps.use == "after"))
    if not around.unbroken or not len(after.step):
        return None
    window_end = float(after.end[-1])
    if save.arm in view.writers and (durable is None or durable > window_end + (view.launch.uncertainty_s or 0)):
        return None
    return window_end - last_in - len(after.step) * control_s


def _steps_during(
    view: _View, save: SaveEvents, following: SaveEvents | None, durable: float | None
) -> list[float | None]:
    """Seconds of each step that ran, fully or in part, while the write was in flight after the save had returned.

    From the end of the step before (or the last rank out) to its own end; None: the end is not known.
    """
    (_, last_out), (next_in, _) = view.in_and_out(save), view.in_and_out(following)
    if last_out is None or durable is None or (following is not None and next_in is None):
        return []
    steps = view.steps
    mask = (steps.end > last_out) & (steps.end <= (float("inf") if next_in is None else next_in))
    found: list[float | None] = []
    begin = last_out
    for end, known in zip(steps.end[mask].tolist(), steps.known[mask].tolist(), strict=True):
        if begin >= durable:
            break
        found.append(end - begin if known else None)
        begin = end
    return found


def _slowdown_share(control_s: float | None, during: Sequence[float | None]) -> float | None:
    """sigma = 1 - t / mean step during the write; None without such a step or a control."""
    durations = [seconds for seconds in during if seconds is not None]
    if control_s is None or not durations or len(durations) < len(during):
        return None
    mean_s = sum(durations) / len(durations)
    return 1 - control_s / mean_s if mean_s > 0 else None


def _period_s(view: _View, save: SaveEvents, following: SaveEvents | None) -> float | None:
    """Last rank in to the next save's last rank in; full design only, and within one segment."""
    if view.launch.kind != "full" or following is None or following.save != save.save + 1:
        return None
    same = all(save.attributes[name] == following.attributes[name] for name in ("cycle", "segment"))
    (last_in, _), (next_in, _) = view.in_and_out(save), view.in_and_out(following)
    return _minus(next_in, last_in) if same and save.arm == following.arm else None


def _longest(by_rank: Mapping[int, float], world_size: int) -> float | None:
    return max(by_rank.values()) if by_rank and len(by_rank) == world_size else None


def _phases(save: SaveEvents, world_size: int) -> dict[str, float]:
    """The slowest rank's seconds in each sub-phase (all its entries together). Empty if a rank is missing."""
    longest: dict[str, float] = {}
    if save.repeated or len(save.spans) != world_size:
        return longest
    for span in save.spans.values():
        of_rank: dict[str, float] = {}
        for name, t0, t1 in span.get("phases", []):
            of_rank[name] = of_rank.get(name, 0.0) + t1 - t0
        for name, seconds in of_rank.items():
            longest[name] = max(longest.get(name, 0.0), seconds)
    return longest


def _dirty_bytes(save: SaveEvents, launch: LaunchRecord) -> int | None:
    """Sum over the nodes; None unless every node could read it."""
    nodes = {worker.node for worker in launch.workers}
    values = [save.dirty_bytes.get(node) for node in nodes]
    known = [int(value) for value in values if value is not None]
    return sum(known) if known and len(known) == len(nodes) else None


def _written(shards: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    """Bytes of all shards, and the time from the first writer's begin to the last shard durable."""
    if not shards:
        return {"written_bytes": None, "write_s": None, "write_bytes_per_s": None}
    written_bytes = sum(int(shard["bytes"]) for shard in shards)
    write_s = max(float(shard["t"]) for shard in shards) - min(float(shard["t_begin"]) for shard in shards)
    rate = written_bytes / write_s if write_s > 0 else None
    return {"written_bytes": written_bytes, "write_s": write_s, "write_bytes_per_s": rate}


def _write_imbalance(save: SaveEvents) -> float | None:
    """Slowest rank's own writing time over the ranks' median; None for a single writer."""
    times = [max(float(e["t"]) for e in own) - min(float(e["t_begin"]) for e in own) for own in save.durable.values()]
    return max(times) / median(times) if len(times) > 1 and median(times) > 0 else None


# --- pairs of launches (full design) ----------------------------------------------------------------------------------
def _control_periods_s(views: Sequence[_View]) -> dict[tuple[int, int], float]:
    """Mean measured period (s) of the arm "none" in each block: (occasion, block) -> seconds."""
    periods: dict[tuple[int, int], list[float]] = {}
    for view in views:
        for save, following in view.followed():
            period_s = _period_s(view, save, following)
            if save.arm == CONTROL_ARM and _measured(view, save) and period_s is not None:
                periods.setdefault(view.launch.block, []).append(period_s)
    return {block: sum(values) / len(values) for block, values in periods.items()}


def _interval(launch: LaunchRecord, segment: int) -> int | None:
    """Steps between the saves of a segment of the full design; None for the quick design and a segment that is none."""
    found = launch.segment(segment)
    return int(found["interval"]) if launch.kind == "full" and found is not None and found["interval"] else None
