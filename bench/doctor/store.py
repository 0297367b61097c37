"""Where checkpoints, results and events go: kinds of file systems, space, quota, and the speed of plain writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.checkpoint import storage
from bench.doctor.ask import ask, module
from bench.doctor.base import Case, Check, Level, judged
from bench.doctor.mounts import Mount, Nature, existing, mount_of
from bench.errors import BadInput
from bench.report import words

PROBE_BYTES = 512 << 20  # written at once by all processes of the probe; a save may be larger, and says so
PROBE_LEAST_BYTES = 1 << 20
PROBE_REPEATS, PROBE_PATIENCE_S = 3, 120.0
BURST, SLOW = 1.5, 0.5  # of the provisioned speed
TOOL_PATIENCE_S = 10.0


def examine(case: Case) -> Iterator[Check]:
    """The store of checkpoints; a login node of the cluster sees it too."""
    mount = mount_of(case.checkpoint_dir)
    writable = writing(case.checkpoint_dir, "checkpoint store")
    yield store(case, mount) if writable is None else writable
    yield writing(case.results_dir, "results") or results(case, mount_of(case.results_dir))
    yield apart(case)
    if not case.writing_arms:
        yield Check("space", "skip", "no arm of the run writes checkpoints")
        return
    yield space(case)
    yield quota(case, mount)
    if writable is None:
        yield probe(case, existing(case.checkpoint_dir))


def folders(case: Case) -> Iterator[Check]:
    """The node-local folder of events, logs and temporary files."""
    mount = mount_of(case.work_dir)
    refused = writing(case.work_dir, "work_dir")
    yield local(case.work_dir, mount) if refused is None else refused
    yield lasting(mount)


# --- what kind of place it is
def writing(folder: Path, name: str) -> Check | None:
    """By attempt, in the folder or where it would be made; None where it can be written to."""
    place = existing(folder)
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x")
    except OSError as error:
        remedy = "give another one (storage.dir=PATH, work_dir=PATH), or the right to write there"
        return Check(name, "fail", f"{place} cannot be written to: {error.strerror}", remedy)
    return None


def store(case: Case, mount: Mount) -> Check:
    """A store that not all nodes see breaks the run; one in memory measures memory."""
    found = f"{case.checkpoint_dir} on {mount.kind} (mounted at {mount.point})"
    needs_shared = [arm for arm in case.writing_arms if arm != "nvrx_local"]
    if needs_shared and unseen(case, mount):
        found += f"; the run has {case.config.num_nodes} nodes, and other nodes do not see it"
        return Check("checkpoint store", "fail", found, "storage.dir=PATH on a file system that all nodes mount")
    level, why = STORES.get(mount.nature, ("ok", ""))
    remedy = "storage.dir=PATH on the file system that the job's checkpoints go to"
    return Check("checkpoint store", level, found + why, remedy if level != "ok" else "")


def unseen(case: Case, mount: Mount) -> bool:
    """Whether the run has nodes that do not see what is written there."""
    return case.config.num_nodes > case.nodes_here and mount.nature in ("local", "container", "memory", "pod")


STORES: dict[Nature, tuple[Level, str]] = {
    "memory": ("warn", "; that is memory: the figures would be those of memory"),
    "container": ("warn", "; that is the container's own layer: no job saves there"),
    "pod": ("warn", "; that goes with its pod"),
}


def results(case: Case, mount: Mount) -> Check:
    """Every node's runner writes its events there."""
    found = f"{case.results_dir} on {mount.kind} (mounted at {mount.point})"
    if unseen(case, mount):
        found += "; other nodes do not see it, and their events would be lost"
        return Check("results", "fail", found, "results_dir=PATH on a file system that all nodes mount")
    return judged("results", mount.nature != "pod", found, "results_dir=PATH that outlives the pod", "warn")


def apart(case: Case) -> Check:
    devices = [existing(path).stat().st_dev for path in (case.checkpoint_dir, case.results_dir)]
    found = "results and checkpoints are on " + ("one file system" if devices[0] == devices[1] else "two file systems")
    remedy = "storage.dir=PATH or results_dir=PATH: what is recorded should not queue behind what is measured"
    return judged("separation", devices[0] != devices[1], found, remedy, "warn")


def local(work_dir: Path, mount: Mount) -> Check:
    found = f"{work_dir} on {mount.kind} (mounted at {mount.point})"
    remedy = "work_dir=PATH on a disk of each node, e.g. local NVMe"
    if mount.nature == "shared":
        why = "; other nodes' traffic would delay the recording of events"
        return Check("work_dir", "warn", found + why, remedy)
    if mount.nature == "memory":
        return Check("work_dir", "warn", f"{found}; logs and events would take memory from the run", remedy)
    return Check("work_dir", "ok", found)


def lasting(mount: Mount) -> Check:
    """Events of the last second before a container ends are only in work_dir."""
    ends = {"container": "the container", "pod": "its pod", "memory": "the node's memory"}.get(mount.nature)
    if mount.nature == "unknown":
        ends = f"whatever {mount.kind} ends with: the doctor does not know it"
    remedy = "work_dir=PATH on a mount of the host (docker -v, --container-mounts, hostPath)"
    found = f"work_dir ends with {ends}" if ends else "work_dir outlives processes and containers"
    return judged("lasting", ends is None, found, remedy, "warn")


# --- space
def space(case: Case) -> Check:
    size, arms, keep = case.config.predicted_checkpoint_bytes, len(case.writing_arms), case.config.checkpoint.keep
    if size is None:
        return Check("space", "skip", "a user's model is counted when it is built")
    place = existing(case.checkpoint_dir)
    try:
        storage.check_space(place, size, keep, arms)
    except BadInput as error:
        found, _, remedy = str(error).partition(": ")[2].rpartition("; ")
        return Check("space", "fail", found, remedy)
    needed, free = size * (keep + 1) * arms, shutil.disk_usage(place).free
    return Check("space", "ok", f"{words.size(free)} free, {words.size(needed)} needed by {arms} arm{'s' * (arms > 1)}")


def quota(case: Case, mount: Mount) -> Check:
    """What the user may still write, where a tool of the system tells."""
    size, place = case.config.predicted_checkpoint_bytes, existing(case.checkpoint_dir)
    user = str(os.getuid())
    lustre = mount.kind == "lustre"
    command = ["lfs", "quota", "-q", "-u", user, mount.point] if lustre else ["quota", "--no-wrap", "-f", str(place)]
    tool = shutil.which(command[0])
    if size is None or tool is None:
        why = "the model's size is not known yet" if size is None else f"{command[0]} is not installed"
        return Check("quota", "skip", f"{why}; free space says nothing about quotas")
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_PATIENCE_S).stdout
    except subprocess.TimeoutExpired:
        return Check("quota", "skip", f"{command[0]} did not answer within {TOOL_PATIENCE_S:.0f} s")
    left = quota_left(answer)
    if left is None:
        return Check("quota", "ok", "none set for this user")
    needed = size * (case.config.checkpoint.keep + 1) * len(case.writing_arms)
    found = f"{words.size(left)} left of this user's quota, {words.size(needed)} needed"
    return judged("quota", left >= needed, found, "a larger quota, a smaller checkpoint.keep, or fewer arms")


def quota_left(answer: str) -> int | None:
    """Bytes left to a user by the output of `lfs quota -q` or `quota`: file system, kB used, soft limit, hard limit.

    None without a limit. A star behind the used kB marks a user who is over the soft limit already.
    """
    for row in answer.splitlines():
        match = re.match(r"\s*(/\S*|\S+:/\S*)\s+(\d+)\*?\s+(\d+)\s+(\d+)", row)
        if match:
            used, *limits = map(int, match.groups()[1:])
            least = min((limit for limit in limits if limit), default=None)
            return None if least is None else (least - used) * 1024
    return None


# --- speed
def probe(case: Case, place: Path) -> Check:
    """As many writers as ranks here, at the same time, with the run's fsync: what a save can hope for."""
    shard, ranks, fsync = case.shard_bytes or PROBE_BYTES, case.writers_here, case.config.storage.fsync
    each = max(min(shard, PROBE_BYTES) // ranks, PROBE_LEAST_BYTES)
    if shutil.disk_usage(place).free < 2 * each * ranks:
        return Check("storage probe", "skip", f"{place} is too full to be written to")
    with tempfile.TemporaryDirectory(dir=place, prefix="bench-doctor-") as folder:
        arguments = (folder, "doctor", each, fsync, ranks, PROBE_REPEATS, 0)
        (answer,) = ask([module("bench.checkpoint.probe", *arguments)], PROBE_PATIENCE_S)
    seconds = answer.find("seconds")
    if not seconds:
        return Check("storage probe", "fail", f"writing failed: {answer.error}", "mend the store, or give another one")
    speed = each * ranks / median(seconds)
    found = f"{words.size(speed)}/s ({ranks} writers of {words.size(each)}, fsync {'on' if fsync else 'off'})"
    if case.shard_bytes is not None:
        found += f": a save of {words.size(shard)} takes {words.seconds(shard / speed)} or more"
        found += ", if the store keeps that up" if shard > each * ranks * 2 else ""
    return _against_provisioned(case, speed, found)


def _against_provisioned(case: Case, speed: float, found: str) -> Check:
    provisioned = case.config.storage.provisioned_bytes_per_s
    if provisioned is None:
        return Check("storage probe", "ok", found)
    ratio = speed * case.config.num_nodes / case.nodes_here / provisioned
    if ratio > BURST:
        why = f"; all nodes together {ratio:.1f} times the provisioned {words.size(provisioned)}/s: bursts or a cache"
        return Check("storage probe", "warn", found + why, "measure longer than the burst lasts; storage.fsync=true")
    alone = case.config.num_nodes == case.nodes_here
    if ratio < SLOW and alone:
        why = f"; {ratio:.0%} of the provisioned {words.size(provisioned)}/s"
        return Check("storage probe", "warn", found + why, "stripe counts, client settings, or who else writes now")
    return Check("storage probe", "ok", found)
