"""Checkpoint strategies: how the training state reaches storage.

Adding one touches its new file, its configuration and a line of `STRATEGIES`. Importing this package does not import
torch, so that the driver can validate names and configurations on a machine that has none.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from bench.errors import BadInput, near

if TYPE_CHECKING:
    from bench.checkpoint.base import Context, Strategy
    from bench.config import Run

STRATEGIES: dict[str, str] = {
    "none": "bench.checkpoint.none:NoCheckpoint",
    "sync_local": "bench.checkpoint.sync_local:SyncLocal",
    "nvrx_async": "bench.checkpoint.nvrx_async:NvrxAsync",
    "synthetic": "bench.checkpoint.synthetic:Synthetic",
}


def create(name: str, context: Context) -> Strategy:
    """The strategy called `name`, imported now. Raises BadInput for an unknown name."""
    if name not in STRATEGIES:
        raise BadInput(f"checkpoint.arms: unknown strategy {name!r}; {near(name, STRATEGIES)}")
    module, _, attribute = STRATEGIES[name].partition(":")
    made = getattr(import_module(module), attribute)(context)
    return cast("Strategy", made)


def refusal(name: str, config: Run) -> str | None:
    """Why strategy `name` cannot run in this configuration (field, rule and remedy on one line), or None if it can."""
    if name not in STRATEGIES:
        return f"checkpoint.arms: unknown strategy {name!r}; {near(name, STRATEGIES)}"
    refuse = REFUSALS.get(name)
    return refuse(config) if refuse else None


def _refuse_nvrx_async(config: Run) -> str | None:
    # The library's own asynchronous save never syncs: beside arms that do, it would look faster than it is.
    if config.checkpoint.api == "torch_async" and config.storage.fsync:
        return "checkpoint.api: torch_async never syncs what it writes; set storage.fsync=false or checkpoint.api=queue"
    return None


def _refuse_synthetic(config: Run) -> str | None:
    if config.design.name != "calibrate":
        return "checkpoint.arms: synthetic saves nothing and only calibrates the instrument; use design=calibrate"
    given = config.checkpoint.synthetic.keys()
    if not {"block_s", "durable_s"} <= given <= {"block_s", "durable_s", "slowdown"}:
        return f"checkpoint.synthetic: takes block_s, durable_s and, if wanted, slowdown; got {sorted(given)}"
    return None


REFUSALS: dict[str, Callable[[Run], str | None]] = {
    "nvrx_async": _refuse_nvrx_async,
    "synthetic": _refuse_synthetic,
}
