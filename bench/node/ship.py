"""Bringing node-local files into the result folder, about once a second, so that a lost node loses at most a second."""

from __future__ import annotations

import shutil
from pathlib import Path

LOG_TAIL_BYTES = 200_000


class Shipper:
    """Appends what is new in `source`'s event files to files of the same name in `target`.

    What the target holds already is asked of the target: also after a copy that broke off, nothing is there twice.
    """

    def __init__(self, source: Path, target: Path) -> None:
        self.source = source
        self.target = target

    def ship(self) -> None:
        for path in sorted(self.source.glob("*.jsonl")):
            shipped = self.target / path.name
            done = shipped.stat().st_size if shipped.exists() else 0
            if path.stat().st_size > done:
                with open(path, "rb") as local, open(shipped, "ab") as remote:
                    local.seek(done)
                    shutil.copyfileobj(local, remote)


def ship_logs(source: Path, target: Path, node: int) -> None:
    """Copy the end of each log of this node; whole logs of long runs belong on the node."""
    for path in sorted(source.glob("*.log")):
        with open(path, "rb") as log:
            log.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            (target / f"node{node}-{path.name}").write_bytes(log.read())


def last_words(folder: Path, lines: int = 1) -> str:
    """The last telling line of the logs in `folder`: what a failed launch died of, for one line of an error."""
    best = ""
    for path in sorted(folder.glob("*.log")):
        text = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
        text = [line for line in text if "resource_tracker" not in line]  # tidies up after the dead, and says so
        errors = [line for line in text if "Error" in line and not line.startswith(("warnings", "File "))]
        if errors:
            return " ".join(errors[-lines:])[:400]
        best = best or (text[-1][:400] if text else "")
    return best
