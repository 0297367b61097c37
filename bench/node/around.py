"""What a runner measures and checks around a launch: clock, storage probe, content."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from bench.checkpoint.probe import repeats_for
from bench.node import clocks
from bench.node.base import MEETING_PATIENCE_S, Scene

PROBE_PATIENCE_S = 300.0
VERIFY_PATIENCE_S = 300.0
PROBE_START_S = 0.3  # interpreters are up by then


def clock_and_probe(scene: Scene, when: str, probe: bool = True) -> None:
    """Clock offset and, if wanted, storage probe, on all nodes at the same time. `when`: before | after."""
    node = scene.node
    port = int(node.board.wait("clock", MEETING_PATIENCE_S))
    scene.recorder.instant("clock", when=when, **asdict(clocks.measure(node.host, port)))
    size = node.config.predicted_checkpoint_bytes
    if probe and node.config.storage.probe and size:
        scene.meet(f"probe-{when}")
        _probe(scene, when, size // node.config.world_size)


def _probe(scene: Scene, when: str, bytes_per_process: int) -> None:
    node, fsync, log = scene.node, scene.node.config.storage.fsync, scene.dir / f"probe-{when}.out"
    count, repeats = len(node.ranks), repeats_for(bytes_per_process)
    start_at = time.monotonic() + PROBE_START_S
    words = [str(scene.checkpoint_dir), f"n{node.number}", str(bytes_per_process), str(fsync), str(count)]
    codes = scene.call([("bench.checkpoint.probe", *words, str(repeats), str(start_at))], [log], PROBE_PATIENCE_S)
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


def verify(scene: Scene) -> None:
    """Read back, in a process of its own, the shards that this node's ranks wrote, and record their digests."""
    saves = sorted(_saves_to_verify(scene.events_dir))
    outs = [scene.dir / f"verify-{arm}.json" for arm, _ in saves]
    modules = [
        ("bench.checkpoint.verify", str(scene.checkpoint_dir / arm), str(step), str(out))
        for (arm, step), out in zip(saves, outs, strict=True)
    ]
    scene.call(modules, [scene.logs_dir / f"verify-{arm}.log" for arm, _ in saves], VERIFY_PATIENCE_S)
    for (arm, step), out in zip(saves, outs, strict=True):
        found: dict[str, Any] = json.loads(out.read_text()) if out.is_file() else {"complete": False, "digests": {}}
        for rank in scene.node.ranks:
            digest = found["digests"].get(str(rank))
            scene.recorder.instant("verified", arm=arm, step=step, rank=rank, digest=digest, complete=found["complete"])


def _saves_to_verify(events_dir: Path) -> set[tuple[str, int]]:
    saves = set()
    for path in events_dir.glob("worker-*.jsonl"):
        for line in path.read_text().splitlines():
            if '"verify_save"' in line:
                event = json.loads(line)
                saves.add((event["arm"], event["step"]))
    return saves
