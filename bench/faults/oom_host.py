"""A real kill by the kernel for want of host memory, in a memory cgroup that holds this one process.

A limit on address space (RLIMIT_AS) would be another fault: it raises MemoryError and kills nobody.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from bench.faults.base import InjectedFault, Planned, RankFault, Scene, Site
from bench.faults.cgroup import VERSIONS, MemoryCgroup, place_for

MARGIN_BYTES = 16 << 20  # above what the process holds when it moves in: gone in some 0.1 s, most of it page faults
BLOCK_BYTES = 1 << 20
BOUND = 4  # so many margins allocated and still alive: the limit does not work


class OomHost(RankFault):
    name = "oom_host"
    expects = "The kernel kills the process (SIGKILL); only the counter of its cgroup tells it from any other kill."
    needs = "leave to make a memory cgroup (root, or delegation)"
    by_hand = "end what still runs in this memory cgroup (its cgroup.procs names it) and remove it with rmdir"

    def unavailable(self, planned: Planned, site: Site) -> str | None:
        try:
            counted = self._tried(place_for(f"bench-trial-{site.token[:8]}-{os.getpid()}"))
        except OSError as error:
            return f"no memory cgroup can be made and used ({error})"
        return None if counted else "the kernel does not count its kills in a memory cgroup"

    def _tried(self, cgroup: MemoryCgroup) -> bool:
        """All that is done with a rank, but for the allocation, with a sleeping process. Whether kills are counted."""
        cgroup.create()
        sleeper = subprocess.Popen(["sleep", "60"])
        try:
            cgroup.enter(sleeper.pid)
            cgroup.limit(MARGIN_BYTES)
            return cgroup.kills() is not None
        finally:
            sleeper.kill()
            sleeper.wait()
            cgroup.remove()

    def prepare(self, planned: Planned, scene: Scene) -> dict[str, Any]:
        cgroup = place_for(f"bench-{scene.token[:8]}-{planned.id}-{os.getpid()}")
        return {"cgroup": str(cgroup.path), "version": cgroup.version, "margin_bytes": MARGIN_BYTES}

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> None:
        cgroup = VERSIONS[details["version"]](Path(details["cgroup"]))
        cgroup.create()
        cgroup.enter(os.getpid())
        cgroup.limit(MARGIN_BYTES)
        taken: list[bytes] = []
        while len(taken) * BLOCK_BYTES < BOUND * MARGIN_BYTES:
            taken.append(b"\1" * BLOCK_BYTES)  # every page is written to
        raise InjectedFault(f"the kernel let {len(taken) * BLOCK_BYTES} bytes pass in a cgroup of {MARGIN_BYTES}")

    def undo(self, record: dict[str, Any]) -> dict[str, Any]:
        """Evidence: `oom_kill`, the kernel's count of its kills in this cgroup; nothing where it is gone already."""
        cgroup = VERSIONS[record["details"]["version"]](Path(record["details"]["cgroup"]))
        if not cgroup.path.exists():
            return {}
        kills = cgroup.kills()
        cgroup.remove()
        return {"oom_kill": kills}
