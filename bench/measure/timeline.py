"""The job's own course, over all ranks: when each step had ended everywhere, and what each save's ranks recorded.

A quantity that needs every rank is known only when every rank recorded it exactly once; otherwise it is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.measure.events import LaunchRecord, Stream

Ranks = frozenset[int]


# --- steps ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class JobSteps:
    """The steps of a launch over all ranks, by step number: arrays of one length."""

    step: NDArray[np.int64]
    end: NDArray[np.float64]  # when the last rank had finished it, s
    known: NDArray[np.bool_]  # every rank recorded it exactly once; otherwise `end` means nothing
    cycle: NDArray[np.int64]
    segment: NDArray[np.int64]
    use: NDArray[np.str_]

    def where(self, mask: NDArray[np.bool_]) -> JobSteps:
        return JobSteps(**{column.name: getattr(self, column.name)[mask] for column in fields(self)})

    @property
    def unbroken(self) -> bool:
        """There are steps, no number is missing among them, and every end is known."""
        return len(self.step) > 0 and bool(self.known.all()) and self.step[-1] - self.step[0] + 1 == len(self.step)


def job_steps(launch: LaunchRecord) -> JobSteps:
    """Join the workers' steps by number. A step that a slot ran twice (after a rollback) has no known end."""
    parts = [worker.steps for worker in launch.workers]
    slots = {name: number for number, name in enumerate(launch.slots())}
    slot = np.concatenate([np.full(len(w.steps), slots[w.slot]) for w in launch.workers] or [np.zeros(0, np.int64)])
    number = np.concatenate([part.step for part in parts] or [np.zeros(0, np.int64)])
    ends = np.concatenate([part.t1 for part in parts] or [np.zeros(0)])
    step, first, position, count = np.unique(number, return_index=True, return_inverse=True, return_counts=True)
    end = np.full(len(step), -np.inf)
    np.maximum.at(end, position, ends)
    pairs = np.unique(position * max(len(slots), 1) + slot)
    slots_of_step = np.bincount(pairs // max(len(slots), 1), minlength=len(step))
    known = (count == launch.world_size) & (slots_of_step == launch.world_size)

    def column(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])[first] if parts else np.zeros(0, np.int64)

    return JobSteps(step, end, known, column("cycle"), column("segment"), column("use"))


def control_step_s(steps: JobSteps, cycle: int) -> float | None:
    """Mean seconds of a step of `cycle` with no write in flight, gaps between steps included, pooled over its blocks.

    A block is one segment's control steps; it lasts from the end of the step before it to the end of its last step.
    """
    blocks = (_control_block(steps, cycle, segment) for segment in np.unique(steps.segment[steps.cycle == cycle]))
    measured = [block for block in blocks if block is not None]
    total_steps = sum(count for _, count in measured)
    return sum(seconds for seconds, _ in measured) / total_steps if total_steps else None


def _control_block(steps: JobSteps, cycle: int, segment: int) -> tuple[float, int] | None:
    """(seconds, steps) of one block; None if unknown. Without a step right before it, its first step is the start."""
    mask = (steps.cycle == cycle) & (steps.segment == segment) & (steps.use == "control")
    block = steps.where(mask)
    if not block.unbroken:
        return None
    before = steps.where(steps.step == block.step[0] - 1)
    if before.unbroken:
        return float(block.end[-1] - before.end[0]), len(block.step)
    return (float(block.end[-1] - block.end[0]), len(block.step) - 1) if len(block.step) > 1 else None


# --- saves ------------------------------------------------------------------------------------------------------------
@dataclass
class SaveEvents:
    """What the ranks recorded of one save; keyed by rank, `dirty_bytes` by node. Times in s."""

    arm: str
    save: int
    spans: dict[int, dict[str, Any]] = field(default_factory=dict)
    arrive_s: dict[int, float] = field(default_factory=dict)
    peers_s: dict[int, float] = field(default_factory=dict)
    durable: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    dirty_bytes: dict[int, int | None] = field(default_factory=dict)
    delete_s: dict[int, float] = field(default_factory=dict)
    failed: Ranks = frozenset()
    repeated: bool = False  # a rank recorded the save twice: its times are ambiguous

    def last_in(self, world_size: int) -> float | None:
        return None if self._partial(world_size) else max(float(span["t0"]) for span in self.spans.values())

    def last_out(self, world_size: int) -> float | None:
        return None if self._partial(world_size) else max(float(span["t1"]) for span in self.spans.values())

    def _partial(self, world_size: int) -> bool:
        return self.repeated or len(self.spans) != world_size or world_size == 0

    def shards(self, writers: Ranks) -> list[dict[str, Any]] | None:
        """The durable events of all shards; None unless every one of `writers` (at least one) made its own durable."""
        if not writers or self.failed or not writers <= self.durable.keys():
            return None
        return [event for events in self.durable.values() for event in events]

    @property
    def attributes(self) -> dict[str, Any]:
        """Of the lowest rank's span: step, cycle, segment, measured are the same on every rank."""
        return self.spans[min(self.spans)]


def save_events(launch: LaunchRecord) -> dict[tuple[str, int], SaveEvents]:
    """All saves of a launch by (arm, save), in the order in which they were entered."""
    found: dict[tuple[str, int], SaveEvents] = {}
    for worker in launch.workers:
        _add_spans(found, worker)
    for stream in (*launch.workers, *launch.writers):
        _add_instants(found, stream)
    for stream in (*launch.workers, *launch.writers):
        _add_deletions(found, stream)
    entered = {key: save for key, save in found.items() if save.spans}
    order = sorted(entered, key=lambda key: min(float(span["t0"]) for span in entered[key].spans.values()))
    return {key: entered[key] for key in order}


def _of(found: dict[tuple[str, int], SaveEvents], event: Mapping[str, Any]) -> SaveEvents:
    key = (str(event["arm"]), int(event["save"]))
    return found.setdefault(key, SaveEvents(*key))


def _add_spans(found: dict[tuple[str, int], SaveEvents], worker: Stream) -> None:
    for span in worker.spans:
        if span["name"] not in ("save", "arrive", "peers"):
            continue
        save, rank = _of(found, span), worker.rank
        if span["name"] == "save":
            save.repeated |= rank in save.spans
            save.spans[rank] = span
        else:
            waits = save.arrive_s if span["name"] == "arrive" else save.peers_s
            waits[rank] = float(span["t1"] - span["t0"])


def _add_instants(found: dict[tuple[str, int], SaveEvents], stream: Stream) -> None:
    for instant in stream.instants:
        if instant["name"] == "durable":
            _of(found, instant).durable.setdefault(stream.rank, []).append(instant)
        elif instant["name"] == "failed":
            save = _of(found, instant)
            save.failed |= {stream.rank}
        elif instant["name"] == "dirty":
            _of(found, instant).dirty_bytes[stream.node] = instant["dirty_bytes"]


def _add_deletions(found: Mapping[tuple[str, int], SaveEvents], stream: Stream) -> None:
    """Time spent deleting old checkpoints belongs to the save that the rank had entered last."""
    for event in stream.named("deleted"):
        entered = [
            save
            for save in found.values()
            if save.arm == event["arm"] and stream.rank in save.spans and _entry(save, stream) <= event["t_begin"]
        ]
        if entered:
            last = max(entered, key=lambda save: _entry(save, stream))
            seconds = float(event["t"]) - float(event["t_begin"])
            last.delete_s[stream.rank] = last.delete_s.get(stream.rank, 0.0) + seconds


def _entry(save: SaveEvents, stream: Stream) -> float:
    return float(save.spans[stream.rank]["t0"])


def writers_of(launches: Iterable[LaunchRecord]) -> dict[str, Ranks]:
    """Per arm, the ranks that must make a shard durable in every save; an arm that writes nothing is absent.

    By evidence over all launches: rank 0 alone where no other rank ever wrote (a checkpoint gathered there, or one
    that counts once rank 0 has committed it), otherwise every rank.
    """
    seen: dict[str, set[int]] = {}
    world_size = 0
    for launch in launches:
        world_size = max(world_size, launch.world_size)
        for stream in (*launch.workers, *launch.writers):
            for instant in stream.instants:
                if instant["name"] in ("durable", "failed"):
                    seen.setdefault(str(instant["arm"]), set()).add(stream.rank)
    return {arm: frozenset({0} if ranks == {0} else range(world_size)) for arm, ranks in seen.items()}


@dataclass(frozen=True)
class Flight:
    """The write of one save after the ranks had left it: from the last rank out to the last shard durable, s."""

    arm: str
    cycle: int
    begin: float
    end: float


def flights(launch: LaunchRecord, writers: Mapping[str, Ranks]) -> list[Flight]:
    """The writes that outlasted their save, where both ends are known."""
    found = []
    for save in save_events(launch).values():
        begin, shards = save.last_out(launch.world_size), save.shards(writers.get(save.arm, frozenset()))
        if begin is not None and shards is not None:
            end = max(float(shard["t"]) for shard in shards)
            if end > begin:
                found.append(Flight(save.arm, int(save.attributes["cycle"]), begin, end))
    return found
