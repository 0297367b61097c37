"""Energy joined to what the slots did: how many joules of each GPU fell into steps, saves, waiting and loads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.measure.accounted import Accounted
from bench.measure.events import Event, LaunchRecord, Stream
from bench.report.data import measured_launches
from bench.schema import SPAN_CATEGORY
from bench.telemetry.energy import energy_j

STALLED = ("ckpt_stall", "ckpt_peers", "ckpt_drain")  # training stands still for a save


@dataclass(frozen=True)
class Energy:
    """Joules and seconds by ledger category, over the `gpus` GPUs whose counter covers their slot's spans."""

    joules: dict[str, float]
    seconds: dict[str, float]
    gpus: int

    @property
    def stalled_share(self) -> float | None:
        """Of the energy in spans, what was used while training stood still for saves."""
        total = sum(self.joules.values())
        return sum(self.joules.get(name, 0.0) for name in STALLED) / total if total > 0 else None


def gpu_samples(launch: LaunchRecord) -> dict[tuple[int, int], list[Event]]:
    """The `gpu` events of a launch by (node, index of the GPU), in order."""
    found: dict[tuple[int, int], list[Event]] = {}
    for runner in launch.runners:
        for event in runner.named("gpu"):
            found.setdefault((runner.node, int(event["index"])), []).append(event)
    return found


def energy(result: Accounted) -> Energy | None:
    """Of all measured launches; None where no GPU was watched."""
    joules: dict[str, float] = {}
    seconds: dict[str, float] = {}
    gpus: set[tuple[int, int]] = set()
    for launch in measured_launches(result):
        by_slot = {
            (node, events[0].get("local_rank")): ((node, index), events)
            for (node, index), events in gpu_samples(launch).items()
        }
        for worker in launch.workers:
            gpu, events = by_slot.get((worker.node, worker.meta["local_rank"]), (None, []))
            if gpu is None:
                continue
            for category, spans in _spans(worker):
                used = energy_j(events, spans)
                if used is not None:
                    gpus.add(gpu)
                    joules[category] = joules.get(category, 0.0) + used
                    seconds[category] = seconds.get(category, 0.0) + sum(end - begin for begin, end in spans)
    return Energy(joules, seconds, len(gpus)) if gpus else None


def _spans(worker: Stream) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """The worker's spans by ledger category; steps as `useful`, whatever became of them later."""
    found: dict[str, list[tuple[float, float]]] = {}
    steps = list(zip(worker.steps.t0.tolist(), worker.steps.t1.tolist(), strict=True))
    if steps:
        found["useful"] = steps
    for span in worker.spans:
        category = SPAN_CATEGORY.get(span["name"])
        if category is not None and category != "useful":
            found.setdefault(category, []).append((float(span["t0"]), float(span["t1"])))
    yield from found.items()
