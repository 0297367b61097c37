"""Checkpoint strategies: how the training state reaches storage.

Adding one touches its new file, its configuration and a line of `STRATEGIES`. Importing this package does not import
torch, so that the driver can validate names and configurations on a machine that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, cast

from bench.errors import near
from bench.registry import variant
from bench.schema import SYNCED, strategy_of

if TYPE_CHECKING:
    from bench.checkpoint.base import Context, Strategy
    from bench.config import Run

STRATEGIES: dict[str, str] = {
    "none": "bench.checkpoint.none:NoCheckpoint",
    "sync_full": "bench.checkpoint.sync_full:SyncFull",
    "sync_local": "bench.checkpoint.sync_local:SyncLocal",
    "sync_dcp": "bench.checkpoint.sync_dcp:SyncDcp",
    "dcp_async_thread": "bench.checkpoint.dcp_async_thread:DcpAsyncThread",
    "dcp_async_process": "bench.checkpoint.dcp_async_process:DcpAsyncProcess",
    "nvrx_async": "bench.checkpoint.nvrx_async:NvrxAsync",
    "nvrx_dcp": "bench.checkpoint.nvrx_dcp:NvrxDcp",
    "nvrx_local": "bench.checkpoint.nvrx_local:NvrxLocal",
    "synthetic": "bench.checkpoint.synthetic:Synthetic",
}

# Of which one each is measured with fsync beside arms that do not sync, the first that takes part.
SYNCHRONOUS = ("sync_local", "sync_dcp", "sync_full")
ASYNCHRONOUS = ("nvrx_async", "dcp_async_process", "dcp_async_thread", "nvrx_local")
DCP_ASYNC_TORCH = (2, 9)


def with_synced_pair(arms: Sequence[str]) -> list[str]:
    """`arms` of a run without fsync, and one pair with it: what durable means there differs, so both are measured.

    The pair is one synchronous and one asynchronous arm; a kind that takes no part, or syncs already, adds nothing.
    """
    added = []
    for kind in (SYNCHRONOUS, ASYNCHRONOUS):
        there = [arm for arm in kind if arm in arms]
        if there and not any(arm + SYNCED in arms for arm in kind):
            added.append(there[0] + SYNCED)
    return [*arms, *added]


def create(arm: str, context: Context) -> Strategy:
    """The strategy behind an arm, imported now. Raises BadInput for an unknown name."""
    made = variant(STRATEGIES, strategy_of(arm), "checkpoint.arms", "strategy")(context)
    return cast("Strategy", made)


def refusal(arm: str, config: Run) -> str | None:
    """Why an arm cannot run in this configuration (field, rule and remedy on one line), or None if it can."""
    name = strategy_of(arm)
    if arm != name:
        synced, durable = replace(config.storage, fsync=True), replace(config.checkpoint, api="queue")
        config = replace(config, storage=synced, checkpoint=durable)
    if name not in STRATEGIES:
        return f"checkpoint.arms: unknown strategy {name!r}; {near(name, STRATEGIES)}"
    refuse = REFUSALS.get(name)
    return refuse(config) if refuse else None


def _refuse_nvrx_async(config: Run) -> str | None:
    # The library's own asynchronous save never syncs: beside arms that do, it would look faster than it is.
    if config.checkpoint.api == "torch_async" and config.storage.fsync:
        return "checkpoint.api: torch_async never syncs what it writes; set storage.fsync=false or checkpoint.api=queue"
    return None


def _refuse_nvrx_dcp(config: Run) -> str | None:
    # It syncs whatever the option says: beside arms that do not, it would look slower than it is.
    if not config.storage.fsync:
        return "storage.fsync: nvrx_dcp always syncs what it writes; set storage.fsync=true or leave nvrx_dcp out"
    return None


def _refuse_nvrx_local(config: Run) -> str | None:
    nodes, replication = config.num_nodes, config.checkpoint.replication
    if nodes > 1 and config.storage.dir is not None:
        # What it wrote there would be called local and would not be.
        return (
            "storage.dir: nvrx_local writes to each node's own storage, and storage.dir is shared by all; "
            "leave storage.dir out, in a run without the arms that need a shared store"
        )
    if replication and config.device == "cpu":
        return "checkpoint.replication: NVRx moves replicas between CUDA devices only; set it to 0 or device=cuda"
    if replication and nodes % replication:
        return (
            f"checkpoint.replication: must divide num_nodes={nodes}, since each shard is kept on {replication} nodes; "
            "change one of the two, or set it to 0"
        )
    return None


def _refuse_dcp_async(config: Run) -> str | None:
    installed = _version("torch")
    if installed is not None and installed < DCP_ASYNC_TORCH:
        needed = ".".join(map(str, DCP_ASYNC_TORCH))
        return (
            f"checkpoint.arms: dcp_async_* stage with torch's DefaultStager; install torch>={needed} or leave them out"
        )
    return None


def _version(package: str) -> tuple[int, int] | None:
    """(major, minor) of what is installed here, or None: the machine that plans need not be the one that runs."""
    try:
        major, minor = metadata.version(package).split(".")[:2]
    except metadata.PackageNotFoundError:
        return None
    return int(major), int(minor)


def _refuse_synthetic(config: Run) -> str | None:
    if config.design.name != "calibrate":
        return "checkpoint.arms: synthetic saves nothing and only calibrates the instrument; use design=calibrate"
    given = config.checkpoint.synthetic.keys()
    if not {"block_s", "durable_s"} <= given <= {"block_s", "durable_s", "slowdown"}:
        return f"checkpoint.synthetic: takes block_s, durable_s and, if wanted, slowdown; got {sorted(given)}"
    return None


REFUSALS: dict[str, Callable[[Run], str | None]] = {
    "dcp_async_thread": _refuse_dcp_async,
    "dcp_async_process": _refuse_dcp_async,
    "nvrx_async": _refuse_nvrx_async,
    "nvrx_dcp": _refuse_nvrx_dcp,
    "nvrx_local": _refuse_nvrx_local,
    "synthetic": _refuse_synthetic,
}
