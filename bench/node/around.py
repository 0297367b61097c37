"""What a runner measures and checks around a launch: clock, storage probe, content."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from bench.checkpoint.probe import SHORT_REPEATS, repeats_for
from bench.checkpoint.to_read import bytes_to_read
from bench.node import clocks
from bench.node.base import MEETING_PATIENCE_S, Scene
from bench.predict import expected_save_s
from bench.schema import syncs

LEAST_PROBE_PATIENCE_S, PROBE_PATIENCE = 300.0, 3.0  # the latter: times what the prediction assumes of the store
READ_BYTES_PER_S = 50e6  # a node reads and fingerprints a checkpoint at least so fast, or it is stuck
LEAST_READING_PATIENCE_S = 300.0
PROBE_START_S = 0.3  # interpreters are up by then


def clock_and_probe(scene: Scene, when: str, probe: bool = True) -> None:
    """Clock offset and, if wanted, storage probe, on all nodes at the same time. `when`: before | after."""
    node = scene.node
    port = int(node.board.wait("clock", MEETING_PATIENCE_S))
    scene.recorder.instant("clock", when=when, **asdict(clocks.measure(node.host, port)))
    size = _checkpoint_bytes(scene)
    if probe and node.config.storage.probe and size:
        settings = _fsync_settings(scene)
        for fsync in settings:
            scene.meet(f"probe-{when}-{fsync}", after_probe_patience_s(scene))
            _probe(scene, when, fsync, size // node.config.world_size, short=len(settings) > 1)


def _checkpoint_bytes(scene: Scene) -> int | None:
    """As predicted; of a user's own model as the pilot wrote it, so that the pilot itself has no probe."""
    predicted = scene.node.config.predicted_checkpoint_bytes
    return predicted if predicted is not None else (scene.record.get("pilot") or {}).get("written_bytes")


def probe_patience_s(scene: Scene) -> float:
    """How long one probe may take, all nodes together."""
    config, size = scene.node.config, _checkpoint_bytes(scene) or 0
    expected_s = repeats_for(size // config.world_size) * expected_save_s(config, size, scene.node.device)
    return max(LEAST_PROBE_PATIENCE_S, PROBE_PATIENCE * expected_s)


def after_probe_patience_s(scene: Scene) -> float:
    """For nodes that meet after a probe."""
    return probe_patience_s(scene) + MEETING_PATIENCE_S


def _fsync_settings(scene: Scene) -> list[bool]:
    """Those of the launch's arms that write, each of which is held against a probe with its own; off before on."""
    fsync = scene.node.config.storage.fsync
    return sorted({syncs(arm, fsync) for arm in scene.record["arms"] if arm != "none"} or {fsync})


def _probe(scene: Scene, when: str, fsync: bool, bytes_per_process: int, short: bool) -> None:
    node, log = scene.node, scene.dir / f"probe-{when}-{fsync}.out"
    count, repeats = len(node.ranks), repeats_for(bytes_per_process)
    repeats = min(repeats, SHORT_REPEATS) if short else repeats
    start_at = time.monotonic() + PROBE_START_S
    words = [str(scene.checkpoint_dir), f"n{node.number}", str(bytes_per_process), str(fsync), str(count)]
    codes = scene.call(
        [("bench.checkpoint.probe", *words, str(repeats), str(start_at))], [log], probe_patience_s(scene)
    )
    if codes != [0]:
        scene.recorder.instant("note", text=f"storage probe {when} the launch failed: exit codes {codes}")
        return
    seconds = json.loads(log.read_text())["seconds"]
    scene.recorder.instant(
        "probe",
        when=when,
        bytes_per_s=bytes_per_process * count / median(seconds),
        processes=count,
        bytes_per_process=bytes_per_process,
        fsync=fsync,
        seconds=seconds,
    )


# --- reading back
def reading_patience_s(scene: Scene) -> float:
    """How long this node's reading back may take, by the bytes of its ranks; 0 where nothing is to be read."""
    config, saves = scene.node.config, _saves_to_verify(scene.events_dir)
    sizes = [bytes_to_read(scene.checkpoint_dir / a, step, scene.node.ranks, config.world_size) for a, step in saves]
    return max(LEAST_READING_PATIENCE_S, sum(sizes) / READ_BYTES_PER_S) if saves else 0.0


def verify(scene: Scene, patience_s: float) -> None:
    """Read back, in processes of their own, what this node's ranks wrote, and record its digests.

    What nobody came to the end of reading is recorded as unread, with the reason: that says nothing about the files.
    """
    saves, ranks = sorted(_saves_to_verify(scene.events_dir)), scene.node.ranks
    outs = [scene.dir / f"verify-{arm}.json" for arm, _ in saves]
    modules = [
        (
            "bench.checkpoint.verify",
            *(str(scene.checkpoint_dir / arm), str(step), str(out)),
            *("--ranks", f"{ranks.start}:{ranks.stop}"),
        )
        for (arm, step), out in zip(saves, outs, strict=True)
    ]
    codes = scene.call(modules, [scene.logs_dir / f"verify-{arm}.log" for arm, _ in saves], patience_s)
    for (arm, step), out, code in zip(saves, outs, codes, strict=True):
        found = json.loads(out.read_text()) if out.is_file() else _unread(scene, arm, code, patience_s)
        about = {key: found[key] for key in ("complete", "unread") if key in found}
        for rank in ranks:
            digest = found["digests"].get(str(rank))
            scene.recorder.instant("verified", arm=arm, step=step, rank=rank, digest=digest, **about)


def _unread(scene: Scene, arm: str, code: int | None, patience_s: float) -> dict[str, Any]:
    node = scene.node.number
    reason = f"node {node} had not read it within {patience_s:.0f} s"
    if code is not None:
        reason = f"the reader ended with exit code {code}; see logs/node{node}-verify-{arm}.log of the launch"
    return {"complete": None, "unread": reason, "digests": {}}


def _saves_to_verify(events_dir: Path) -> set[tuple[str, int]]:
    saves = set()
    for path in events_dir.glob("worker-*.jsonl"):
        for line in path.read_text().splitlines():
            if '"verify_save"' in line:
                event = json.loads(line)
                saves.add((event["arm"], event["step"]))
    return saves
