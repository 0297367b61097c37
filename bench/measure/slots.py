"""The slots of a launch, and how long each had it: by the clock of its node's runner, whatever the workers say."""

from __future__ import annotations

from bench.measure.events import LaunchRecord


def all_slots(launch: LaunchRecord) -> list[str]:
    """Every slot of the launch, also one whose worker never wrote an event."""
    silent = {f"{node}/{local}" for node, ranks in _ranks_by_node(launch).items() for local in range(ranks)}
    return sorted(silent | launch.slots().keys(), key=lambda slot: tuple(map(int, slot.split("/"))))


def _ranks_by_node(launch: LaunchRecord) -> dict[int, int]:
    """As they were started: the reserve is on the last node. Older records do not say it: alike on all nodes then."""
    if (given := launch.launch.get("ranks_by_node")) is not None:
        return dict(enumerate(map(int, given)))
    nodes = {stream.node for stream in (*launch.workers, *launch.runners)}
    return {node: launch.world_size // len(nodes) for node in nodes}


def node_of(slot: str) -> int:
    return int(slot.split("/", maxsplit=1)[0])


def wall(launch: LaunchRecord, slot: str) -> tuple[float, float] | None:
    """Begin and end of the launch on the slot's node, s, by its runner; None if either is missing.

    Of a job that the engine started again from the first start to the end of the last.
    """
    runners = sorted((r for r in launch.runners if r.node == node_of(slot)), key=lambda r: int(r.meta["incarnation"]))
    begins = [event["t"] for runner in runners for event in runner.named("launch_begin")]
    ends = [event["t"] for runner in runners[-1:] for event in runner.named("launch_end")]
    return (float(min(begins)), float(max(ends))) if begins and ends else None


def slots_without_wall(launch: LaunchRecord) -> list[str]:
    """Slots that the ledger has to leave out."""
    return [slot for slot in all_slots(launch) if wall(launch, slot) is None]
