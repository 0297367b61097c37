"""A memory cgroup of its own for one process, so that the kernel's out-of-memory killer can hit it and nobody else.

Both generations: v1 (the controller mounted by itself) and v2 (the unified hierarchy), whichever holds the memory
controller on this machine. Sources: the kernel's admin-guide/cgroup-v1/memory.rst and admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

EMPTY_PATIENCE_S = 5.0  # a killed process leaves its cgroup a moment after it has died


@dataclass(frozen=True)
class MemoryCgroup(ABC):
    path: Path

    version: ClassVar[int]
    usage: ClassVar[str]
    events: ClassVar[str]  # the file that counts kills, in a line "oom_kill N"

    def create(self) -> None:
        self.path.mkdir()

    @abstractmethod
    def limit(self, more_bytes: int) -> None:
        """Allow `more_bytes` above what it uses now, swap included."""

    def enter(self, pid: int) -> None:
        """Move a process in, with all its threads. What it has allocated so far stays charged to where it was."""
        (self.path / "cgroup.procs").write_text(f"{pid}\n")

    def kills(self) -> int | None:
        """Processes in it that the kernel has killed for want of memory; None where it does not count them."""
        lines = (self.path / self.events).read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)

    def remove(self) -> None:
        """Idempotent. Raises OSError while a process is in it."""
        end = time.monotonic() + EMPTY_PATIENCE_S
        while self.path.exists():
            try:
                self.path.rmdir()
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def _limit_bytes(self, more_bytes: int) -> str:
        return f"{int((self.path / self.usage).read_text()) + more_bytes}\n"


class V1(MemoryCgroup):
    version = 1
    usage = "memory.usage_in_bytes"
    events = "memory.oom_control"

    def limit(self, more_bytes: int) -> None:
        limit = self._limit_bytes(more_bytes)
        (self.path / "memory.limit_in_bytes").write_text(limit)
        with_swap = self.path / "memory.memsw.limit_in_bytes"  # missing where the kernel does not account swap
        if with_swap.exists():
            with_swap.write_text(limit)


class V2(MemoryCgroup):
    """Not yet run on a machine with cgroup v2: its files are written as the kernel's documentation says, no more."""

    version = 2
    usage = "memory.current"
    events = "memory.events"

    def limit(self, more_bytes: int) -> None:
        (self.path / "memory.oom.group").write_text("0\n")
        (self.path / "memory.swap.max").write_text("0\n")
        (self.path / "memory.max").write_text(self._limit_bytes(more_bytes))


VERSIONS: dict[int, type[MemoryCgroup]] = {1: V1, 2: V2}


def place_for(name: str, proc: Path = Path("/proc/self")) -> MemoryCgroup:
    """A cgroup called `name`, not yet made, below where the process `proc` is. Raises OSError where there is no place.

    v2 lets a cgroup that holds processes have no controllers for its children, so there it is the nearest one above
    that hands the memory controller down.
    """
    own = dict(_own_cgroups(proc))
    for kind, options, mount, root in _mounts(proc):
        if kind == "cgroup" and "memory" in options and "memory" in own:
            return V1(_below(mount, root, own["memory"]) / name)
    for kind, _, mount, root in _mounts(proc):
        if kind == "cgroup2" and "" in own:
            return V2(_handing_down(mount, _below(mount, root, own[""])) / name)
    raise OSError("no memory cgroup is mounted")


def _own_cgroups(proc: Path) -> Iterator[tuple[str, str]]:
    """(controller, path) of the process; the controller of the unified hierarchy is ""."""
    for line in (proc / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        yield from ((controller, path) for controller in controllers.split(","))


def _mounts(proc: Path) -> Iterator[tuple[str, list[str], Path, str]]:
    """(type, options, mount point, root of the mount within the hierarchy) of all mounted cgroup hierarchies."""
    for line in (proc / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split()[:3]
        if kind.startswith("cgroup"):
            root, point = before.split()[3:5]
            yield kind, options.split(","), Path(point), root


def _below(mount: Path, root: str, path: str) -> Path:
    """Where a cgroup is seen; the mount point itself for one outside of what is mounted (in a container)."""
    try:
        return mount / Path(path).relative_to(root)
    except ValueError:
        return mount


def _handing_down(mount: Path, own: Path) -> Path:
    for folder in [own, *own.parents]:
        if "memory" in (folder / "cgroup.subtree_control").read_text().split():
            return folder
        if folder == mount:
            break
    raise OSError("cgroup v2: no cgroup above this process hands the memory controller down (delegation)")
