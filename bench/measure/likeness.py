"""Whether two results measured the same work, and what else was different (metrics.md 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.measure.accounted import Accounted

# What a save and a step have to do, by configuration key; a key ending in a dot stands for all below it.
WORLD = ("num_nodes", "ranks_per_node")
SIZE = ("model.", "state", "state_bytes", "train.param_dtype")
STEPS = (
    "train.batch_size",
    "train.seq_len",
    "train.compute_dtype",
    "train.compute",
    "train.step_s",
    "train.sharding",
    "train.use_orig_params",
)
STORAGE = ("storage.fsync",)
# Where results go, what they may cost, whose period they are held against: no part of what was measured.
FREE = (
    "scenario",
    "about",
    "machine",
    "results_dir",
    "work_dir",
    "storage.dir",
    "resume",
    "append",
    "dry_run",
    "budget.",
    "price_per_gpu_hour",
    "job.",
    "launch_deadline_s",
    "cluster.",
    "seed",
)
SOFTWARE = ("versions.torch", "versions.nvidia_resiliency_ext", "versions.driver")
BYTES_TOLERANCE = 0.01  # file formats of other versions differ by some bytes


@dataclass(frozen=True)
class Difference:
    """One field in which two results differ; values as text."""

    field: str
    base: str
    new: str

    def __str__(self) -> str:
        return f"{self.field} ({self.base} against {self.new})"


@dataclass(frozen=True)
class Likeness:
    """`work`: makes figures incomparable. `settings`: how it was measured. `environment`: on what."""

    work: list[Difference] = field(default_factory=list)
    settings: list[Difference] = field(default_factory=list)
    environment: list[Difference] = field(default_factory=list)


def likeness(base: Accounted, new: Accounted) -> Likeness:
    """All differences between two results, sorted by what they mean."""
    work, settings = [], []
    for difference in _differences(base.config, new.config):
        if listed_below(difference.field, (*WORLD, *SIZE, *STEPS, *STORAGE)):
            work.append(difference)
        elif difference.field != "device" and not listed_below(difference.field, FREE):
            settings.append(difference)
    work += _rehearsed_or_not(base, new) + _device(base, new) + _bytes(base, new)
    environment = list(_differences(environment_of(base), environment_of(new)))
    return Likeness(work, settings, environment)


def listed_below(name: str, keys: tuple[str, ...]) -> bool:
    """Whether a field is one of `keys`, or lies below one that ends in a dot."""
    return any(name == key or (key.endswith(".") and name.startswith(key)) for key in keys)


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """By dotted key. A key that only one of the two knows is no difference: another version wrote the other one."""
    theirs = dict(_flat(new))
    for key, value in _flat(base):
        if key in theirs and value != theirs[key]:
            yield Difference(key, _text(value), _text(theirs[key]))


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def _device(base: Accounted, new: Accounted) -> list[Difference]:
    ours, theirs = base.summary.device, new.summary.device
    return [] if ours == theirs else [Difference("device", ours, theirs)]


def _rehearsed_or_not(base: Accounted, new: Accounted) -> list[Difference]:
    if base.summary.rehearsal == new.summary.rehearsal:
        return []
    return [Difference("cluster", base.config["cluster"]["name"], new.config["cluster"]["name"])]


def _bytes(base: Accounted, new: Accounted) -> list[Difference]:
    """What the arms really wrote, whatever the configuration says."""
    found = []
    for name, arm in base.arms.items():
        ours, theirs = arm.written_bytes, new.arms[name].written_bytes if name in new.arms else None
        if ours and theirs and abs(theirs / ours - 1) > BYTES_TOLERANCE:
            found.append(Difference(f"written bytes of {name}", str(ours), str(theirs)))
    return found


def environment_of(result: Accounted) -> dict[str, Any]:
    """What the figures may depend on beside the work: versions, machine, file systems, variables."""
    recorded = result.run["environment"]
    mount = recorded.get("checkpoint_mount") or {}
    names = ("machine", "versions", "gpus", "cpu", "cpus", "memory_bytes", "shm_bytes", "python_file_system")
    return {name: recorded[name] for name in (*names, "variables") if name in recorded} | {
        "checkpoint_mount": {name: mount[name] for name in ("type", "options") if name in mount}
    }
