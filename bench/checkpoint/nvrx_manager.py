"""The parts of NVRx's local checkpointing that this suite puts in the library's place, where it provides for others.

    <directory>/of-00002/<rank>/iter_0000012_<rank>_local.pt    the library's names, the world size as its session

The library takes tensors on CUDA only, does not sync, keeps one checkpoint, and makes a vanished folder anew.
"""

from __future__ import annotations

import os
import pickle
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from nvidia_resiliency_ext.checkpointing.local.basic_state_dict import BasicTensorAwareStateDict
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import LocalCheckpointManager
from nvidia_resiliency_ext.checkpointing.local.replication.strategies import CliqueReplicationStrategy

from bench.checkpoint import storage, trees
from bench.checkpoint.base import CheckpointError, Context, Tree
from bench.checkpoint.folders import Events
from bench.record import clock

_FILE = re.compile(r"iter_(\d+)_(\d+)_local\.pt")


def session(world_size: int) -> str:
    return f"of-{world_size:05d}"


def world_sizes(directory: Path, step: int) -> list[int]:
    """The world sizes of which this host holds any shard of a step."""
    found = {path.parents[1].name for path in directory.glob(f"of-*/*/{storage.local_name(step, '*')}")}
    return sorted(int(name.removeprefix("of-")) for name in found)


class Place(NamedTuple):
    """Where a rank's shards stand. Travels to the writer."""

    directory: str
    session: str
    rank: int
    fsync: bool

    @property
    def folder(self) -> Path:
        return Path(self.directory) / self.session / str(self.rank)

    def file(self, step: int) -> Path:
        return self.folder / storage.local_name(step, self.rank)

    def present(self) -> list[tuple[int, Path]]:
        """(step, file) of all shards here, other ranks' replicas too, oldest first; none if the folder is gone."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        return sorted((int(match[1]), self.folder / name) for name in names if (match := _FILE.fullmatch(name)))


class LocalTree(BasicTensorAwareStateDict):  # type: ignore[misc]
    """A tree of local tensors on any device. `device`: where replication needs them all to be."""

    def __init__(self, tree: Tree, device: str | None) -> None:
        self.state_dict = trees.map_leaves(partial(_on, device), tree) if device else tree
        self._is_hollow = False
        self._is_own = False  # whether the tensors are copies already

    def insert_tensors(self, tensor_data: Any) -> None:
        super().insert_tensors(tensor_data)  # of replication: new on every rank
        self._is_own = True

    def copy_tensors_to_cpu(self, non_blocking: bool = False) -> None:
        if not self._is_own:
            self.state_dict = trees.map_leaves(partial(_host_copy, non_blocking), self.state_dict)
        self._is_own = True

    def restore_tensor_device(self, non_blocking: bool = True) -> None:
        return None  # a loaded tree stays on the CPU; restoring the state copies it


def _on(device: str, leaf: Any) -> Any:
    return leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf


def _host_copy(non_blocking: bool, leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return trees.own_cpu_tensor(leaf) if leaf.device.type == "cpu" else leaf.to("cpu", non_blocking=non_blocking)


class Manager(LocalCheckpointManager):  # type: ignore[misc]
    """Keeps `keep` checkpoints, puts deletions on record, syncs where configured, and makes no vanished folder anew."""

    def __init__(self, place: Place, keep: int, events: Events, arm: str, strategy: Any = None) -> None:
        super().__init__(place.directory, place.session, strategy)
        self.place, self.keep, self.events, self.arm = place, keep, events, arm
        self._rank, self._dir_created = place.rank, True

    def _my_ckpt_ids(self) -> list[Any]:
        return [self._filename_to_id(path.name) for _, path in self.place.present()]

    def _cleanup(self, iteration: int) -> None:
        """Called by the library in a thread when `iteration` is whole on all ranks."""
        t_begin, freed_bytes = clock(), 0
        shards = self.place.present()
        kept = sorted({step for step, _ in shards})[-self.keep :]
        for step, path in shards:
            if step < kept[0]:
                freed_bytes += path.stat().st_size
                path.unlink()
        if freed_bytes:
            self.events.instant("deleted", arm=self.arm, bytes=freed_bytes, t_begin=t_begin)

    def _save(self, state_dict: LocalTree, ckpt_id: Any) -> None:
        dirty, final = (self._local_ckpt_path_from_id(ckpt_id, is_dirty) for is_dirty in (True, False))
        try:
            with open(dirty, "xb") as file:
                torch.save(state_dict, file)
                file.flush()
                if self.place.fsync:
                    os.fsync(file.fileno())
            dirty.rename(final)
        except BaseException:
            with suppress(OSError):
                dirty.unlink(missing_ok=True)
            raise
        if self.place.fsync:
            storage.fsync_folder(final.parent)


def clique(nodes: int, context: Context) -> Any:
    """The library's replication over `nodes` nodes: ranks with the same place on each. Collective."""
    placed: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(placed, context.node)
    return CliqueReplicationStrategy.from_replication_params(placed.count(context.node), nodes)


def read_local(path: Path) -> Tree:
    """The tree of one shard, on the CPU, without a manager. Raises CheckpointError."""
    try:
        return dict(torch.load(path, map_location="cpu", weights_only=False).state_dict)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path} is not readable: {storage.describe(error)}") from error
