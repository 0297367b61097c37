"""A segmentation fault: native code reads where it must not."""

from __future__ import annotations

import ctypes
from typing import Any

from bench.faults.base import Planned, RankFault, Scene

_PR_SET_DUMPABLE = 4


class Segfault(RankFault):
    name = "segfault"
    expects = "The kernel ends the process with SIGSEGV, exit code -11; no core file is written."

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> None:
        # A core file of a rank has the size of its memory: it would fill a disk, and its writing would be measured.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        ctypes.string_at(0)
