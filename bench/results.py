"""The result folder: results/<machine>/<scenario>/<UTC time>/, and nothing measured in it is ever overwritten.

run.json                 schema version, resolved configuration, environment (the first occasion's; each further one has
                         its own), occasions with their launches, status
launches/<k>/            launch.json, events/, faults/, logs/
summary.json, samples.parquet, ledger.parquet      derived; written again whenever launches were added
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench.errors import BadInput
from bench.schema import SCHEMA_VERSION, LedgerRow, Sample, Summary


def busy_s(record: Mapping[str, Any]) -> float:
    """Seconds in which a launch had its nodes: until it ended, or left them for a queue that it has not come out of.

    Times in the engine's queue, between two starts of the job, are none of them. 0 for a launch under way.
    """
    if "started" not in record:
        return 0.0
    relaunches = record.get("relaunches", [])
    waits = bool(relaunches) and "back" not in relaunches[-1]
    end = relaunches[-1]["asked"] if waits else record.get("ended")
    queued_s = sum(each["back"] - each["asked"] for each in relaunches if "back" in each)
    return 0.0 if end is None else float(end - record["started"] - queued_s)


def write_json(path: Path, content: Any) -> None:
    """Replace `path` in one step, so that a reader or a crash never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    os.replace(temporary, path)


class ResultFolder:
    """One result on disk. `path` exists; see the module's comment for what is in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, root: Path, machine: str, scenario: str) -> ResultFolder:
        """Make a fresh folder, named by the current UTC time. Raises BadInput."""
        stamp = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H-%M-%SZ")
        path = root / machine / scenario / stamp
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise BadInput(
                f"results_dir: {path} exists already and is never overwritten; "
                "start again in a second, or give another results_dir"
            ) from None
        except OSError as error:
            raise BadInput(
                f"results_dir: {root} cannot be written ({error.strerror}); give results_dir=PATH that you may write to"
            ) from None
        (path / "launches").mkdir()
        return cls(path)

    @classmethod
    def open(cls, path: Path, key: str) -> ResultFolder:
        """An existing result; `key` is the option that named it. Raises BadInput: not a result, unknown version."""
        run = path / "run.json"
        if not run.is_file():
            raise BadInput(
                f"{key}: {path} is no result folder (it has no run.json); give the folder that a run printed"
            )
        try:
            version = json.loads(run.read_text()).get("schema_version")
        except ValueError:
            raise BadInput(f"{key}: {run} is not readable JSON; the result is damaged, start a new run") from None
        if version != SCHEMA_VERSION:
            raise BadInput(
                f"{key}: {run} has schema version {version!r}, this suite reads {SCHEMA_VERSION}; "
                "use the suite that wrote it"
            )
        return cls(path.resolve())

    def point_latest(self) -> None:
        """Point results/latest here. Once there is a run.json: whoever follows it expects one."""
        root = self.path.parents[2]
        link, temporary = root / "latest", root / f".latest.{os.getpid()}"
        temporary.symlink_to(self.path.relative_to(root))
        os.replace(temporary, link)

    # --- run.json
    def read_run(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.path / "run.json").read_text())
        return content

    def write_run(self, content: dict[str, Any]) -> None:
        write_json(self.path / "run.json", {"schema_version": SCHEMA_VERSION} | content)

    # --- launches
    def launch_dir(self, index: int) -> Path:
        return self.path / "launches" / str(index)

    def read_launch(self, index: int) -> dict[str, Any] | None:
        path = self.launch_dir(index) / "launch.json"
        return json.loads(path.read_text()) if path.is_file() else None

    def write_launch(self, index: int, content: dict[str, Any]) -> None:
        folder = self.launch_dir(index)
        for name in ("events", "logs", "faults"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        write_json(folder / "launch.json", content)

    def used_s(self, occasion: Mapping[str, Any]) -> float:
        """Seconds that an occasion's launches have had their nodes so far, however often its job was started."""
        return sum(busy_s(self.read_launch(each["index"]) or {}) for each in occasion["launches"])

    def set_aside(self, index: int) -> None:
        """Keep what an unfinished attempt at a launch recorded, out of the way of the next attempt."""
        folder = self.launch_dir(index)
        if not (folder / "events").is_dir():
            return
        attempts = folder / "attempts"
        attempts.mkdir(exist_ok=True)
        target = attempts / str(len(list(attempts.iterdir())))
        target.mkdir()
        for name in ("launch.json", "events", "logs", "faults"):
            if (folder / name).exists():
                os.replace(folder / name, target / name)

    # --- derived
    def write_derived(self, summary: Summary, samples: Sequence[Sample], ledger: Sequence[LedgerRow]) -> None:
        import pandas as pd  # half a second: only where tables are written

        write_json(self.path / "summary.json", summary.to_json())
        rows = [asdict(sample) for sample in samples]
        for row in rows:
            row["phases"] = json.dumps(row["phases"])  # a column of text: arms have different sub-phases
        pd.DataFrame(rows).to_parquet(self.path / "samples.parquet", index=False)
        pd.DataFrame([asdict(row) for row in ledger]).to_parquet(self.path / "ledger.parquet", index=False)
