"""The host: file descriptors, ports, memory and /dev/shm against what the run will stage, memory cgroups."""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.doctor.base import Case, Check, judged
from bench.report import words

# Where each strategy keeps the copy that it writes from, per byte of a rank's shard; what is not named here writes from
# the state itself, tensor by tensor. "whole": rank 0 holds the state of all ranks.
STAGING = {
    "sync_full": "whole",
    "dcp_async_thread": "host",
    "dcp_async_process": "shm",
    "nvrx_async": "shm",
    "nvrx_dcp": "shm",
    "nvrx_local": "shm",
}
STAGING_CUDA = STAGING | {"nvrx_dcp": "host"}  # its writer copies from the device into memory of its own
WRITER_PROCESS = frozenset({"dcp_async_process", "nvrx_async", "nvrx_dcp", "nvrx_local"})
RANK_BYTES = {"cpu": 250_000_000, "cuda": 3_000_000_000}  # imports and libraries of a rank; CUDA's: assumed
WRITER_BYTES = 250_000_000  # of a writer process, which needs no CUDA
GRADIENTS = 4 / 3  # a CPU rank's own memory: weights and moments, and gradients as large as the weights
SPARE = 1.1
DESCRIPTORS, DESCRIPTORS_A_RANK = 512, 8  # of one process: files and pipes; sockets to every other rank and stores
PORTS = 1000  # ephemeral ones; several sockets a rank, and those that linger after a restart


def examine(case: Case) -> Iterator[Check]:
    yield descriptors(case.config.world_size, *resource.getrlimit(resource.RLIMIT_NOFILE))
    yield ports(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text())
    yield listening()
    staging = Staging.of(case)
    if staging is None:
        yield Check("memory", "skip", "a user's model is counted when it is built")
    else:
        yield shm(staging, shutil.disk_usage("/dev/shm").free)
        yield memory(staging, psutil.virtual_memory().available, cgroup_room(Path("/proc/self/cgroup").read_text()))
    yield memory_cgroup()


def descriptors(ranks: int, soft: int, hard: int) -> Check:
    needed = DESCRIPTORS + DESCRIPTORS_A_RANK * ranks
    enough = soft == resource.RLIM_INFINITY or soft >= needed
    found = f"{'no limit' if soft == resource.RLIM_INFINITY else soft} a process, about {needed} needed"
    can = hard == resource.RLIM_INFINITY or hard >= needed
    remedy = f"ulimit -n {needed}" if can else f"raise the hard limit of {hard} (limits.conf, or the container's)"
    return judged("file descriptors", enough, found, remedy, "warn")


def ports(port_range: str) -> Check:
    low, high = map(int, port_range.split())
    remedy = "widen net.ipv4.ip_local_port_range: restarts leave sockets behind that linger for a minute"
    return judged("ports", high - low >= PORTS, f"{high - low + 1} ephemeral ones ({low} to {high})", remedy, "warn")


def listening() -> Check:
    """By attempt: node 0 listens on all interfaces, and others come in."""
    try:
        with socket.socket() as server:
            server.bind(("", 0))
            server.listen()
            with socket.create_connection(("127.0.0.1", server.getsockname()[1]), timeout=3):
                return Check("listening", "ok", f"port {server.getsockname()[1]} took a connection")
    except OSError as error:
        remedy = "let processes of this user listen on ephemeral ports (firewall, security profile)"
        return Check("listening", "fail", f"a port could not be listened on: {error}", remedy)


# --- memory
@dataclass(frozen=True)
class Staging:
    """Predicted memory of the run on this machine. Unit: bytes. /dev/shm is memory too, and counted in both."""

    shm_bytes: int
    host_bytes: int
    text: str

    @classmethod
    def of(cls, case: Case) -> Staging | None:
        """None where the size of a checkpoint is not known before the model is built.

        All arms of a launch keep their copies from save to save: quick launches hold those of every arm, others one's.
        """
        shard, size, device = case.shard_bytes, case.config.predicted_checkpoint_bytes, case.config.device
        if shard is None or size is None:
            return None
        together = sum if case.config.design.name in ("quick", "calibrate") else max
        places = STAGING if device == "cpu" else STAGING_CUDA
        arms = [places.get(arm, "none") for arm in case.writing_arms] or ["none"]
        in_shm = int(together(shard if place == "shm" else 0 for place in arms))
        in_host = int(together({"host": shard, "whole": size}.get(place, 0) for place in arms))
        writers = sum(arm in WRITER_PROCESS for arm in case.writing_arms)
        processes = case.ranks_here * (RANK_BYTES[device] + writers * WRITER_BYTES)
        state = int(shard * GRADIENTS) if device == "cpu" else 0
        staged = f"{words.size(shard)} a save on this node, arms {', '.join(case.writing_arms) or 'none'}"
        return cls(in_shm, in_shm + in_host + processes + state, staged)


def shm(staging: Staging, free: int) -> Check:
    needed = int(staging.shm_bytes * SPARE)
    found = f"{words.size(free)} free, {words.size(needed)} staged there ({staging.text})"
    remedy = f"enlarge it: mount -o remount,size={-(-needed // 10**9)}G /dev/shm; docker --shm-size; cluster.shm"
    return judged("/dev/shm", free >= needed, found, remedy)


def memory(staging: Staging, available: int, room: int | None) -> Check:
    """`room`: what the memory cgroup leaves, None for no limit."""
    limited = room is not None and room < available
    there = min(available, room) if room is not None else available
    needed = int(staging.host_bytes * SPARE)
    found = f"{words.size(there)} {'left by the cgroup' if limited else 'available'}, {words.size(needed)} predicted"
    remedy = "fewer arms a run, fewer ranks a node, a smaller model, or a larger memory request"
    return judged("memory", there >= needed, f"{found} (copies, processes, CPU ranks' state)", remedy)


def cgroup_room(own: str, root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that this process's memory cgroup has left (v2 or v1); None without a limit. `own`: /proc/self/cgroup."""
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            folder, limit, used = root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        elif controllers == "":
            folder, limit, used = root, "memory.max", "memory.current"
        else:
            continue
        # Inside a container the path is often that of the host, and the limit stands at the root of what is seen.
        for place in (folder / path.lstrip("/"), folder):
            room = _room(place / limit, place / used)
            if room is not None:
                return room
    return None


def _room(limit: Path, used: Path) -> int | None:
    try:
        most = limit.read_text().strip()
        return int(most) - int(used.read_text()) if most != "max" and int(most) < 1 << 60 else None
    except OSError:
        return None


# --- memory cgroups
def memory_cgroup(root: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> Check:
    """Whether a real OOM kill can be brought about, by attempt: make a group, limit it, remove it."""
    text = Path("/proc/self/cgroup").read_text() if own is None else own
    name, remedy = "memory cgroup", "root, or a delegated cgroup; without it the fault oom_host is unavailable"
    try:
        version = _try_cgroup(root, text)
    except OSError as error:
        return Check(name, "warn", f"cannot be made: {error.strerror or error}", remedy)
    if version is None:
        return Check(name, "warn", "no memory controller can be reached", remedy)
    return Check(name, "ok", f"one could be made and limited (cgroup {version}): the fault oom_host works")


def _try_cgroup(root: Path, own: str) -> str | None:
    """The version in which a group could be made and limited; None without a memory controller. Raises OSError."""
    if (root / "memory").is_dir():
        parent, limit, version = root / "memory", "memory.limit_in_bytes", "v1"
    elif (root / "cgroup.controllers").is_file():
        match = re.search(r"^0::/(.*)$", own, re.MULTILINE)
        inside = root / (match.group(1) if match else "")
        parent, limit, version = inside if inside.is_dir() else root, "memory.max", "v2"
    else:
        return None
    group = parent / f"bench-doctor-{os.getpid()}"
    group.mkdir()
    try:
        if not (group / limit).exists():
            return None  # v2: the controller is not handed on to children of this group
        (group / limit).write_text(str(1 << 30))
    finally:
        group.rmdir()
    return version
