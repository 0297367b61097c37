"""Faults: what breaks a rank or a node in the middle of a run, on purpose and exactly once.

One fault a file, found through this dict; adding one takes a new file and a line here. No module of this folder loads
torch before a fault that needs it strikes, so that schedules are made and checked where it is not installed.

base      what a fault is, and what it may touch          schedule  which fault strikes whom, when, in which launch
claim     the record that makes "exactly once" true       trigger   in a rank: strikes what is due
runner    in a node runner: strikes what a rank cannot, and undoes everything afterwards
"""

from __future__ import annotations

from bench.faults.base import Fault
from bench.registry import variant

FAULTS: dict[str, str] = {
    "exception": "bench.faults.exception:RaisedException",
    "sigkill": "bench.faults.sigkill:Sigkill",
    "sigterm": "bench.faults.sigterm:Sigterm",
    "segfault": "bench.faults.segfault:Segfault",
    "oom_host": "bench.faults.oom_host:OomHost",
    "oom_device": "bench.faults.oom_device:OomDevice",
    "collective_hang": "bench.faults.collective_hang:CollectiveHang",
    "os_hang": "bench.faults.os_hang:OsHang",
    "gil_lock": "bench.faults.gil_lock:GilLock",
    "gpu_error": "bench.faults.gpu_error:GpuError",
    "slow_rank": "bench.faults.slow_rank:SlowRank",
    "writer_killed": "bench.faults.writer_killed:WriterKilled",
    "node_loss": "bench.faults.node_loss:NodeLoss",
    "network_partition": "bench.faults.network_partition:NetworkPartition",
    "storage_full": "bench.faults.storage_full:StorageFull",
    "storage_slow": "bench.faults.storage_slow:StorageSlow",
    "corrupt_checkpoint": "bench.faults.corrupt_checkpoint:CorruptCheckpoint",
    "health_check_failure": "bench.faults.health_check_failure:HealthCheckFailure",
}


def create(name: str, field: str = "faults.kind") -> Fault:
    """The fault called `name`. Raises BadInput, which speaks of `field`, for an unknown one."""
    fault: Fault = variant(FAULTS, name, field, "fault")()
    return fault
