"""Did the files hold what the trainer meant to save? The ranks' digests against those of the process that read back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.measure.events import Event, LaunchRecord

Key = tuple[int, int, int]  # launch, step, rank


def _called(launches: Sequence[LaunchRecord], arm: str) -> dict[Key, str]:
    """Digests at the call."""
    return {
        (launch.index, int(event["step"]), worker.rank): str(event["digest"])
        for launch in launches
        for worker in launch.workers
        for event in worker.named("verify_save")
        if event["arm"] == arm
    }


def _verified(launches: Sequence[LaunchRecord], arm: str) -> Iterator[tuple[Key, Event]]:
    """What readers say, one event a rank."""
    for launch in launches:
        for runner in launch.runners:
            for event in runner.named("verified"):
                if event["arm"] == arm:
                    yield (launch.index, int(event["step"]), int(event["rank"])), event


def content_verified(launches: Sequence[LaunchRecord], arm: str) -> bool | None:
    """True if every rank's digest at the call equals that of its files; None if not all was read, see `unread`.

    False where one differs, and where a rank's files are missing, incomplete or damaged: a reader that came to an end
    says so. One that did not, because it was too slow or crashed, says nothing about the files.
    """
    told = dict(_verified(launches, arm))
    attempted = {launch for launch, _, _ in told}
    unread = {key for key, event in told.items() if event.get("unread")}
    read = {key: event["digest"] for key, event in told.items() if event["complete"]}  # an incomplete one has no digest
    compared = {key: digest for key, digest in _called(launches, arm).items() if key[0] in attempted}
    if any(read.get(key) != digest for key, digest in compared.items() if key not in unread):
        return False
    return None if unread or not compared else True


def unread(launches: Sequence[LaunchRecord], arm: str) -> list[str]:
    """Why files were not read although that was tried: each reason once."""
    return list(dict.fromkeys(str(e["unread"]) for _, e in _verified(launches, arm) if e.get("unread")))
