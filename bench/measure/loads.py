"""Loading a checkpoint as a restarted job does: the time at job level, and how much came from the page cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.measure.events import Event, LaunchRecord
from bench.measure.statistics import figure
from bench.schema import Figure


@dataclass(frozen=True)
class Load:
    """One load of an arm's newest checkpoint, over all ranks. `cold`: the page cache had been asked to drop it."""

    launch: int
    arm: str
    cold: bool
    seconds: float | None  # last rank in to last rank out; None: a rank did not come to its end
    cached_share: float | None  # share of the files that stayed in the page cache, of the worst node


def loads(launches: Sequence[LaunchRecord]) -> list[Load]:
    """All loads that were made to be timed, in the order of launches; those of a restart carry no `cold`.

    Only of launches that went well: a span is on record also where the load failed, and then says nothing.
    """
    found = []
    for launch in launches:
        if launch.launch.get("status") != "ok":
            continue
        spans: dict[tuple[str, bool], dict[int, Event]] = {}
        for worker in launch.workers:
            for span in worker.spans:
                if span["name"] == "load" and span.get("cold") is not None:
                    spans.setdefault((str(span["arm"]), bool(span["cold"])), {})[worker.rank] = span
        found += [_load(launch, arm, cold, by_rank) for (arm, cold), by_rank in spans.items()]
    return found


def _load(launch: LaunchRecord, arm: str, cold: bool, by_rank: dict[int, Event]) -> Load:
    seconds = None
    if len(by_rank) == launch.world_size:
        last_in = max(float(span["t0"]) for span in by_rank.values())
        seconds = max(float(span["t1"]) for span in by_rank.values()) - last_in
    shares = [float(span["cached_share"]) for span in by_rank.values() if span.get("cached_share") is not None]
    return Load(launch.index, arm, cold, seconds, max(shares, default=None))


def load_figure(found: Sequence[Load], arm: str, cold: bool) -> Figure | None:
    """Seconds over the launches; a launch loads an arm once cold and once warm."""
    mine = [load for load in found if load.arm == arm and load.cold == cold]
    return figure([load.seconds for load in mine if load.seconds is not None])
