"""Asynchronous in DCP's format through NVRx: FileSystemWriterAsync and AsyncCallsQueue.

save() plans with all ranks (the library's cache of plans spares it that from the third save on), has the tensors copied
and hands them to the writer process; when all ranks' writers have finished, a poll commits the checkpoint. The writer
always syncs its files.

On CUDA the trainer waits until its writer has copied the tensors, which the library counts as handing over ("enqueue").
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from nvidia_resiliency_ext.checkpointing.async_ckpt.filesystem_async import FileSystemWriterAsync
from nvidia_resiliency_ext.checkpointing.async_ckpt.state_dict_saver import (
    CheckpointMetadataCache,
    save_state_dict_async_plan,
)
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint._nested_dict import flatten_state_dict, unflatten_state_dict
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor

from bench.checkpoint import folders, nvrx, trees, writer
from bench.checkpoint.base import CheckpointError, Context, Tree
from bench.checkpoint.dcp import Committing, Dcp, reasons
from bench.checkpoint.nvrx_together import NvrxTogether
from bench.record import clock

WRITER_THREADS = 2  # of the library's own examples; processes in 0.4.1


class NvrxDcp(Dcp, NvrxTogether):
    name = "nvrx_dcp"
    always_fsyncs = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._results: nvrx.Results | None = None
        self._copies = Copies()  # for versions that make none
        self._plans = Plans()
        self._planned: Planned | None = None  # of the save in flight

    def _save(self, step: int, tree: Tree, save: int) -> None:
        with self.phase("wait_previous"):
            self._begin_together()
        target = self.target(step, save)
        self._attempted(target, self._attempt(target, tree))

    def _attempt(self, target: folders.Target, tree: Tree) -> str | None:
        """Plan, copy, hand over. Returns why it failed, or None."""
        try:
            self._start()
            self._planned = self._plan(target, self._safe_from_the_trainer(tree))
            with self.phase("enqueue"):
                self._hand_over(self._planned.writer)
        except (CheckpointException, CheckpointError, OSError, RuntimeError, ValueError, KeyError) as error:
            return reasons(error)
        return None

    def _start(self) -> None:
        if self._results is None:
            self._results = nvrx.Results()
        if self._watch is None:
            cuda = self.context.device == "cuda"
            self._watch = nvrx.WriterWatch(nvrx.make_queue(writer_needs_cuda=cuda), self.context.deadline_s)

    def _safe_from_the_trainer(self, tree: Tree) -> Tree:
        """The tree with copies of the CPU tensors, where the library does not make them."""
        if nvrx.copies_cpu_tensors():
            return tree
        with self.phase("stage"):
            if self.context.device == "cuda":  # only what lies on the CPU there: counters and random states
                return dict(trees.map_leaves(trees.own_cpu_tensor, tree))
            return self._copies.take(tree)

    def _plan(self, target: folders.Target, tree: Tree) -> Planned:
        t_begin = clock()
        described = self.described(tree)
        maker = Writer(target, self.context.recorder, self.context.device)
        planner, cache = DefaultSavePlanner(), self._plans.of(described)
        result = save_state_dict_async_plan(
            described, maker, self._group.get(), 0, planner, enable_cache=True, metadata_cache=cache
        )
        self._phases += [["plan", t_begin, maker.staged[0]], ["stage", *maker.staged]]
        return Planned(*result)

    def _hand_over(self, maker: Writer) -> None:
        assert self._watch is not None
        function, preload, arguments = maker.get_save_function_and_args()
        maker.t_write_begin = clock()
        if function is None:  # this rank has nothing to write
            return
        by_library = preload if self.context.device == "cuda" else None
        by_writer = None if self.context.device == "cuda" else preload
        write = partial(writer.write_dcp, writer.home_of(self.context), self.context.device, function, by_writer)
        self._watch.bound_preload()
        with self._watch.handing_over():
            self._watch.queue.schedule_async_request(nvrx.make_request(write, tuple(arguments), by_library))

    def _finalize(self) -> str | None:
        """As the library's own finalize, but a rank that failed says so instead of leaving the others waiting."""
        planned = self._planned
        assert planned is not None

        def finish(results: list[list[WriteResult]]) -> None:
            assert planned.metadata is not None
            planned.writer.finish(planned.metadata, results)

        try:
            planned.ranks.all_reduce("write", planned.writer.retrieve_write_results, finish)
        except CheckpointException as error:
            return reasons(error)
        return None

    def _end_writer(self) -> None:
        super()._end_writer()
        if self._results is not None:
            self._results.renew()
        if self.context.rank == 0:
            folders.clear_leftovers(self.context.directory)
        self._planned, self._plans, self._copies = None, Plans(), Copies()

    def close(self) -> None:
        super().close()
        results, self._results = self._results, None
        if results is not None:
            results.end()


class Planned(NamedTuple):
    """What save_state_dict_async_plan returns."""

    writer: Writer
    metadata: Metadata | None  # on rank 0
    ranks: Any  # torch's _DistWrapper


class Plans:
    """The library's cache of plans, which it trusts blindly: given while the tree keeps its names and shapes."""

    def __init__(self) -> None:
        self._structure: list[Any] = []
        self._cache = CheckpointMetadataCache()

    def of(self, tree: Tree) -> CheckpointMetadataCache:
        structure = [(name, *_form(leaf)) for name, leaf in flatten_state_dict(tree)[0].items()]
        if structure != self._structure:
            self._structure, self._cache = structure, CheckpointMetadataCache()
        return self._cache


def _form(leaf: Any) -> tuple[Any, ...]:
    return (leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else (type(leaf),)


class Copies:
    """Copies of a tree's CPU tensors in shared memory, kept from save to save: the writer gets them without another."""

    def __init__(self) -> None:
        self._kept: dict[str, torch.Tensor] = {}  # by DCP's names; DTensors as the tree's own

    def take(self, tree: Tree) -> Tree:
        """The tree with copies in place of its tensors. The ones of the last save must no longer be in use."""
        flat, paths = flatten_state_dict(tree)
        live = {name: leaf for name, leaf in flat.items() if isinstance(leaf, torch.Tensor)}
        for name, leaf in live.items():
            if name not in self._kept or _form(self._kept[name]) != _form(leaf):
                self._kept[name] = _like(leaf)
        kept = {name: self._kept[name] for name in live}
        with torch.no_grad():
            torch._foreach_copy_(
                list(map(trees.local_tensor, kept.values())), list(map(trees.local_tensor, live.values()))
            )
        copied: Tree = unflatten_state_dict({**flat, **kept}, paths)
        return copied


def _like(leaf: torch.Tensor) -> torch.Tensor:
    """A tensor of the same form in shared memory, its values undefined."""
    part: torch.Tensor = trees.local_tensor(leaf)
    local: torch.Tensor = torch.empty_like(part, memory_format=torch.contiguous_format).share_memory_()
    if not isinstance(leaf, DTensor):
        return local
    mesh, placements = leaf.device_mesh, leaf.placements
    made: DTensor = DTensor.from_local(local, mesh, placements, run_check=False, shape=leaf.shape, stride=leaf.stride())
    return made


class Writer(Committing, FileSystemWriterAsync):  # type: ignore[misc]
    """The library's writer of one save; its files are made by the writer process, `.metadata` by rank 0 in finish()."""

    def __init__(self, target: folders.Target, events: folders.Events, device: str) -> None:
        super().__init__(target.hidden, thread_count=WRITER_THREADS, **nvrx.dcp_writer_options(device))
        self.commit_to(target, events)
        self.staged = (0.0, 0.0)

    def prepare_write_data(self, plan: SavePlan, planner: SavePlanner) -> None:
        t_begin = clock()
        super().prepare_write_data(plan, planner)
        self.staged = (t_begin, clock())
