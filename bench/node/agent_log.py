"""When an agent noticed a failure: the first telling line of its log, by the time at which the runner saw it.

Agents say it nowhere else (NVRx 0.4.1, torchrun). The time is late by one look of the runner, and by what the agent
buffers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench.record import Recorder

LONGEST_TEXT = 200  # characters of a line that are kept
_FOLDERS = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")  # of an absolute path; its last name stays


class AgentLog:
    """Follows one log. Records `detected` for every line that one of `anchors` matches."""

    def __init__(self, path: Path, anchors: Sequence[str], recorder: Recorder) -> None:
        self.path = path
        self.recorder = recorder
        self._pattern = re.compile("|".join(f"(?:{anchor})" for anchor in anchors)) if anchors else None
        self._offset = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def look(self) -> None:
        if self._pattern is None or not self.path.exists() or self.path.stat().st_size <= self._offset:
            return
        with open(self.path, "rb") as log:
            log.seek(self._offset)
            text = log.read()
        self._offset += len(text)
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            words = _FOLDERS.sub("", line.decode(errors="replace").strip())  # results travel; where this ran need not
            if self._pattern.search(words):
                self.recorder.instant("detected", source="launcher_log", text=words[:LONGEST_TEXT])
