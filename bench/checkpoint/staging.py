"""The copy of the state that a background writer writes from: one flat block of shared memory per rank.

The trainer pays for exactly one copy of the bytes. The block is allocated by the first save and reused by every later
one (one write is in flight at a time), so that no later save pays for fresh pages; the writer maps the same memory, so
that nothing is pickled but the layout; and the writer's tensors are views of it, so that it copies nothing either.

The block begins with a status page, through which the writer says how its save ended: it works where a file would not
(disk full, directory gone).
"""

from __future__ import annotations

import ctypes
import io
import pickle
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import torch

from bench.checkpoint.base import CheckpointError

ALIGNMENT_BYTES = 64  # a cache line; more than the size of any element, so that views of any dtype are aligned
STATUS_BYTES = 4096  # one page: state byte, length (2 bytes), text
PENDING, DONE, FAILED = 0, 1, 2


class Slot(NamedTuple):
    """Where one tensor lies in the block."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    numel: int


@dataclass(frozen=True)
class Layout:
    """A tree of local tensors, taken apart: `sources` stay in the trainer, the rest goes to the writer."""

    sources: list[torch.Tensor]
    slots: list[Slot]
    skeleton: bytes  # the tree, pickled, with numbers of slots in place of tensors
    total_bytes: int


@dataclass(frozen=True)
class Staged:
    """A tree that is safe from the trainer, in the form that travels to the writer."""

    skeleton: bytes
    slots: bytes  # pickled: when they have not changed since the last save, this costs nothing
    block: torch.Tensor


def lay_out(tree: Any) -> Layout:
    """Plan the block for a tree of local tensors. Copies no tensor.

    The other leaves are pickled here and not by the queue, whose thread would do it later, when the trainer may already
    have changed them.
    """
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    pickler.dump(tree)
    return Layout(pickler.sources, pickler.slots, stream.getvalue(), pickler.end)


class _Pickler(pickle.Pickler):
    """Puts the number of a slot where a tensor stands; tensors that are the same memory share one, as in torch.save."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self.sources: list[torch.Tensor] = []
        self.slots: list[Slot] = []
        self.end = STATUS_BYTES
        self._known: dict[tuple[Any, ...], int] = {}

    def persistent_id(self, leaf: Any) -> int | None:
        if not isinstance(leaf, torch.Tensor):
            return None
        shape = tuple(leaf.shape)
        key = (leaf.data_ptr(), leaf.dtype, shape, leaf.stride()) if leaf.numel() else (id(leaf),)
        index = self._known.setdefault(key, len(self.slots))
        if index == len(self.slots):
            self.sources.append(leaf)
            self.slots.append(Slot(leaf.dtype, shape, self.end, leaf.numel()))
            self.end += -(-leaf.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return index


def rebuild(staged: Staged) -> Any:
    """The tree, each tensor with a storage of exactly its size that is a view of the block; keep the block alive."""
    memory = (ctypes.c_char * staged.block.numel()).from_address(staged.block.data_ptr())
    slots: list[Slot] = pickle.loads(staged.slots)
    return _Unpickler(io.BytesIO(staged.skeleton), [_view(slot, memory) for slot in slots]).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: BinaryIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(stream)
        self._tensors = tensors

    def persistent_load(self, index: int) -> torch.Tensor:
        return self._tensors[index]


def _view(slot: Slot, memory: Any) -> torch.Tensor:
    if slot.numel == 0:  # frombuffer refuses empty views
        return torch.empty(slot.shape, dtype=slot.dtype)
    # Not a slice of the block: torch.save writes a tensor's whole storage, which for a slice would be the block.
    return torch.frombuffer(memory, dtype=slot.dtype, count=slot.numel, offset=slot.offset).reshape(slot.shape)


class Stage:
    """The block of one rank and its life: allocate once, fill per save, release."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.block: torch.Tensor | None = None
        self.pinned: bool | None = None  # None: no CUDA, nothing to pin
        self._slots: list[Slot] = []
        self._packed_slots = b""
        self._views: list[torch.Tensor] = []

    def fill(self, layout: Layout) -> Staged:
        """Copy the tensors into the block; their values are then safe from the trainer. Raises CheckpointError."""
        block = self._reserve(layout)
        block[0] = PENDING
        with torch.no_grad():
            # One call for all tensors: a Python loop over hundreds of small ones costs as much as copying them.
            torch._foreach_copy_(self._views, layout.sources, non_blocking=True)
        if self.device == "cuda":
            # Copies into pinned memory are only queued: the optimizer may run again when they are through, not before.
            torch.cuda.current_stream().synchronize()
        return Staged(layout.skeleton, self._packed_slots, block)

    def _reserve(self, layout: Layout) -> torch.Tensor:
        if self.block is None or self.block.numel() < layout.total_bytes:
            self.release()
            self.block = self._allocate(layout.total_bytes)
        if layout.slots != self._slots:  # only when the tree has another shape
            self._views = [_slice(slot, self.block) for slot in layout.slots]
            self._slots, self._packed_slots = layout.slots, pickle.dumps(layout.slots)
        return self.block

    def _allocate(self, size_bytes: int) -> torch.Tensor:
        try:
            # share_memory_() copies, and so touches every page: the first save pays for them, and no later one does.
            block: torch.Tensor = torch.empty(size_bytes, dtype=torch.uint8).share_memory_()
        except RuntimeError as error:
            raise CheckpointError(
                f"{size_bytes / 1e9:.2f} GB of shared memory could not be had ({error}); "
                "enlarge /dev/shm or run fewer ranks per node"
            ) from error
        if self.device == "cuda":
            # Without it CUDA copies through a small pinned buffer of its own, at a fraction of the bandwidth.
            self.pinned = int(torch.cuda.cudart().cudaHostRegister(block.data_ptr(), block.numel(), 0)) == 0
        return block

    def release(self) -> None:
        """Give the memory back. The file behind it has no name, so nothing is left in /dev/shm."""
        if self.block is not None and self.pinned:
            torch.cuda.cudart().cudaHostUnregister(self.block.data_ptr())
        self.block, self.pinned, self._slots, self._views = None, None, [], []


def _slice(slot: Slot, block: torch.Tensor) -> torch.Tensor:
    size_bytes = slot.numel * slot.dtype.itemsize
    return block[slot.offset : slot.offset + size_bytes].view(slot.dtype).view(slot.shape)


def write_status(block: torch.Tensor, state: int, text: str = "") -> None:
    """Called by the writer as its last act of a save."""
    encoded = text.encode(errors="replace")[: STATUS_BYTES - 3]
    page = bytearray(len(encoded).to_bytes(2, "little") + encoded)
    block[1 : 1 + len(page)] = torch.frombuffer(page, dtype=torch.uint8)
    block[0] = state


def read_status(block: torch.Tensor) -> tuple[int, str]:
    page = bytes(block[:STATUS_BYTES].tolist())
    if page[0] == PENDING:  # the rest of the page is then whatever it was before
        return PENDING, ""
    length = int.from_bytes(page[1:3], "little")
    return page[0], page[3 : 3 + length].decode(errors="replace")
