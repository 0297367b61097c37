"""Did the files hold what the trainer meant to save? The ranks' digests against those of the process that read back."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measure.events import LaunchRecord

Key = tuple[int, int, int]  # launch, step, rank


def _digests(launches: Sequence[LaunchRecord], arm: str) -> tuple[dict[Key, str], dict[Key, str | None]]:
    """(at the call, as read back); a checkpoint that was read as incomplete has no digest."""
    called: dict[Key, str] = {}
    read: dict[Key, str | None] = {}
    for launch in launches:
        for worker in launch.workers:
            for event in worker.named("verify_save"):
                if event["arm"] == arm:
                    called[launch.index, int(event["step"]), worker.rank] = str(event["digest"])
        for runner in launch.runners:
            for event in runner.named("verified"):
                if event["arm"] == arm:
                    digest = event["digest"] if event["complete"] else None
                    read[launch.index, int(event["step"]), int(event["rank"])] = digest
    return called, read


def content_verified(launches: Sequence[LaunchRecord], arm: str) -> bool | None:
    """True if every rank's digest at the call equals that of its files; None if nothing was compared.

    False also where a rank's files are missing or incomplete although others were read.
    """
    called, read = _digests(launches, arm)
    attempted = {launch for launch, _, _ in read}
    compared = {key: digest for key, digest in called.items() if key[0] in attempted}
    if not compared:
        return None
    return all(read.get(key) == digest for key, digest in compared.items())
