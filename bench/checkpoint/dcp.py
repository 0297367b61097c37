"""The format of torch.distributed.checkpoint (DCP): what its synchronous and asynchronous strategies share.

All ranks write into one folder; rank 0 writes `.metadata` last and gives the folder its name. So a checkpoint becomes
durable once, when rank 0 has committed it, and rank 0 alone records that, with the bytes of all files.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint._nested_dict import flatten_state_dict, unflatten_state_dict
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import LoadPlan, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from bench.checkpoint import cuts, folders, storage
from bench.checkpoint.base import CheckpointError, Context, Tree
from bench.checkpoint.together import Grouped
from bench.checkpoint.trees import map_leaves
from bench.record import clock


class Dcp(Grouped):
    """Choice and loading of checkpoints in DCP's format. Constructing one clears what earlier ones left torn."""

    reshards = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        try:
            context.directory.mkdir(parents=True, exist_ok=True)
            if context.rank == 0:
                folders.clear_leftovers(context.directory)
        except OSError as error:
            reason = storage.describe(error)
            raise CheckpointError(f"{self.name}: {context.directory} is not usable: {reason}") from error

    def target(self, step: int, save: int) -> folders.Target:
        context = self.context
        return folders.Target(
            self.name, save, step, context.directory, context.incarnation, context.fsync, context.keep
        )

    def described(self, tree: Tree) -> Tree:
        """The tree with the layout beside it, without which nobody could tell the ranks' parts of it."""
        return {**tree, cuts.KEY: cuts.layout_of(tree, self.context.world_size).to_json()}

    def _failure(self, target: folders.Target, reason: str) -> CheckpointError:
        """The error of a failed save, put on record by rank 0, which alone counts as this format's writer."""
        if self.context.rank == 0:
            self.context.recorder.instant("failed", arm=self.name, save=target.save, reason=reason)
        return CheckpointError(f"{self.name}: save {target.save} at step {target.step} failed: {reason}")

    def newest(self) -> int | None:
        """Collective (`agree_min`): on shared storage one rank may see a new checkpoint before another one does."""
        steps = folders.complete_steps(self.context.directory)
        agreed = self.context.agree_min(steps[-1] if steps else -1)
        return None if agreed < 0 else agreed

    def load(self, step: int, like: Tree) -> Tree:
        """Reads without collectives: a rank that cannot read does not leave the others waiting."""
        folder = storage.step_dir(self.context.directory, step)
        if not folders.complete(folder):
            raise CheckpointError(f"{self.name}: {folder} holds no complete checkpoint")
        try:
            return read_like(folder, like)
        except (OSError, RuntimeError, ValueError, KeyError, EOFError, CheckpointException) as error:
            raise CheckpointError(f"{self.name}: {folder} is not readable: {reasons(error)}") from error


def reasons(error: BaseException) -> str:
    """An error as one line; of DCP's, which carries those of several ranks, each with its rank."""
    if not isinstance(error, CheckpointException):
        return storage.describe(error)
    return "; ".join(f"rank {rank}: {reasons(cause)}" for rank, (cause, _) in sorted(error.failures.items()))


# --- writing ----------------------------------------------------------------------------------------------------------


class PresentFolder(FileSystem):
    """Files of a folder that rank 0 has made: a writer that is late must not bring a folder back that was cleared."""

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        return None


class Committing:
    """Put before one of DCP's file writers: writes into the hidden folder; rank 0 publishes it in finish().

    DCP calls these methods where it carries an error from any rank to all of them.
    """

    fs: FileSystem

    def commit_to(self, target: folders.Target, events: folders.Events) -> None:
        self.fs = PresentFolder()
        self.target, self.events = target, events
        self.t_write_begin: float | None = None
        self.t_write_end: float | None = None

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)  # type: ignore[misc]
        if is_coordinator:
            folders.begin(self.target, self.events)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)  # type: ignore[misc]
        folders.publish(self.target, self.t_write_begin or clock(), self.events)


class Writer(Committing, FileSystemWriter):
    """DCP's own writer: one file a rank, in the thread that calls it."""

    def __init__(self, target: folders.Target, events: folders.Events) -> None:
        super().__init__(target.hidden, sync_files=target.fsync)
        self.commit_to(target, events)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        self.t_write_begin = clock()
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:
            raise storage.cause_of(error) from error  # on its way to the other ranks it loses what led to it
        finally:
            self.t_write_end = clock()


# --- reading ----------------------------------------------------------------------------------------------------------


def read_like(folder: Any, like: Tree) -> Tree:
    """The part of a checkpoint that `like` asks for, in new tensors; of absent entries that one rank owns, nothing.

    Raises CheckpointError where the names differ, and what DCP raises.
    """
    blank, paths = flatten_state_dict(map_leaves(_blank, like))
    saved = FileSystemReader(folder).read_metadata()
    _compare_names(blank, paths, saved)
    wanted = {name: leaf for name, leaf in blank.items() if name in saved.state_dict_metadata}
    fill(folder, wanted)
    tree: Tree = unflatten_state_dict(wanted, paths)
    _keep_dicts(like, tree)
    return tree


def _blank(leaf: Any) -> Any:
    return torch.empty_like(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _compare_names(blank: Tree, paths: dict[str, Any], saved: Metadata) -> None:
    all_paths = {**(saved.planner_data or {}), **paths}
    differing = (blank.keys() ^ saved.state_dict_metadata.keys()) - {cuts.KEY}
    if wrong := sorted(name for name in differing if cuts.owner(all_paths.get(name, ())) is None):
        raise CheckpointError(f"names differ from those of this state: {', '.join(wrong[:5])}")


def fill(folder: Any, flat: Tree) -> None:
    """Read entries by DCP's own names: tensors in place, others as new values. In this process alone."""
    _load(folder, flat, DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False))


def _load(folder: Any, flat: Tree, planner: DefaultLoadPlanner) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.load(flat, storage_reader=FileSystemReader(folder), planner=planner, no_dist=True)


def fill_stretches(folder: Any, flat: Tree, offsets: Mapping[str, Sequence[int]]) -> None:
    """As `fill`, for tensors of which only a stretch is wanted: from its offsets on, as large as the one given."""
    _load(folder, flat, _Stretches(offsets))


class _Stretches(DefaultLoadPlanner):
    """Reads the stored pieces that overlap one stretch of each tensor, whichever process saved them."""

    def __init__(self, offsets: Mapping[str, Sequence[int]]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.offsets = offsets

    def create_local_plan(self) -> LoadPlan:
        assert self.metadata is not None
        saved: Any = self.metadata.state_dict_metadata
        items: list[ReadItem] = []
        for name, into in self.state_dict.items():
            wanted = ChunkStorageMetadata(torch.Size(self.offsets[name]), into.shape)
            items += create_read_items_for_chunk_list(name, saved[name], [wanted])
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        tensor: torch.Tensor = self.state_dict[index.fqn]
        return tensor


def _keep_dicts(like: Tree, tree: Tree) -> None:
    """Put back dicts that hold no entry, as DCP knows entries only; but not those of a rank that did not exist then."""
    for name, value in like.items():
        if isinstance(value, dict) and (name in tree or cuts.owner((name,)) is None):
            _keep_dicts(value, tree.setdefault(name, {}))
