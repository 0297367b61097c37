"""The record of a fault, created exclusively and synced before the fault acts.

Whoever creates it strikes; everybody who comes later (the same step run again, another attempt, another process) finds
it and does not. That is what "fired exactly once" rests on.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Literal

from bench.checkpoint.storage import fsync_folder
from bench.faults.base import Planned
from bench.record import clock

ROOM_BYTES = 64  # a later time stamp may have more digits


def record_of(
    planned: Planned,
    step: int,
    rank: int,
    process: tuple[int, int],
    actor: Literal["rank", "runner"],
    details: dict[str, Any],
) -> dict[str, Any]:
    """A record as `claim` takes it. `step`: steps finished. `process`: pid and start time of the rank."""
    return {
        "id": planned.id,
        "kind": planned.kind,
        "at": planned.at,
        "step": step,
        "node": planned.node,
        "local_rank": planned.local_rank,
        "rank": rank,
        "pid": process[0],
        "pid_start": process[1],
        "actor": actor,
        "details": details,
    }


def claim(faults_dir: Path, record: dict[str, Any]) -> bool:
    """Put the record into `faults_dir`, durably, stamped with the moment of return. Raises OSError.

    False: the fault was claimed before, and must not act again. Syncing may take long on a busy store and is no part of
    what the fault causes, so the time stamp (mono, wall) is put in afterwards: it survives the death of the process, if
    not of the host, of which the record then has the moment before the sync.
    """
    path = faults_dir / f"{record['id']}.json"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    try:
        size = len(_stamped(record, 0)) + ROOM_BYTES
        os.pwrite(file, _stamped(record, size), 0)
        os.fsync(file)
        fsync_folder(faults_dir)
        os.pwrite(file, _stamped(record, size), 0)
    except OSError:
        path.unlink(missing_ok=True)  # a store that is full, say: the fault will not act, so none was claimed
        raise
    finally:
        os.close(file)
    return True


def withdraw(faults_dir: Path, fault_id: str) -> None:
    """Take a record back: what was claimed had no effect, so nobody may count a recovery from it."""
    (faults_dir / f"{fault_id}.json").unlink(missing_ok=True)


def claimed(faults_dir: Path) -> set[str]:
    """Ids of the faults that have been claimed.

    By listing: on network file systems that asks the server, whereas a name once not found may stay so for a minute.
    """
    try:
        return {name.removesuffix(".json") for name in os.listdir(faults_dir) if name.endswith(".json")}
    except FileNotFoundError:
        return set()


def records(faults_dir: Path) -> list[dict[str, Any]]:
    """All records, in the order of their ids. One left empty is no record: its process died before it acted."""
    texts = [(faults_dir / f"{name}.json").read_text() for name in sorted(claimed(faults_dir))]
    return [json.loads(text) for text in texts if text]


def amend(faults_dir: Path, fault_id: str, **details: Any) -> None:
    """Add to the details of a record what was found out afterwards. Never torn. Raises OSError."""
    path = faults_dir / f"{fault_id}.json"
    record = json.loads(path.read_text())
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(record | {"details": record["details"] | details}) + "\n")
    os.replace(temporary, path)


def _stamped(record: dict[str, Any], size_bytes: int) -> bytes:
    text = json.dumps(record | {"mono": clock(), "wall": time.time()})
    return text.ljust(size_bytes - 1).encode() + b"\n"
