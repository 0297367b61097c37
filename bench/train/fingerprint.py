"""A checksum of the training state that does not depend on how many ranks share it.

An exact digest compares only what was cut in the same way. After a shrink of the world the same state lies in other
shards; so every element contributes a 64-bit hash of its bits and of its place in the whole tensor, and the hashes add
up: over a rank's elements, and over ranks. Not cryptographic: it finds accidents, not attacks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from bench.checkpoint.cuts import dimension, owner
from bench.checkpoint.trees import flatten, local_tensor

CHUNK = 1 << 22  # elements hashed at a time: three int64 temporaries of 32 MB each
MASK_64 = (1 << 64) - 1
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@torch.no_grad()
def state_sum(tree: Any, rank: int) -> int:
    """This rank's part of the sum, 0 <= sum < 2**64; the job's is the sum over ranks, modulo 2**64.

    Shards of DTensors count on every rank; what is whole everywhere counts on rank 0. Plain tensors of a sharding that
    keeps no DTensors (FSDP1) are a rank's own, but for scalars: they count with its number, and compare at one world
    size only. Random states are left out, as a rank of another world has its own.
    """
    total = 0
    for path, leaf in flatten(tree):
        if owner(path) is not None:
            continue
        if isinstance(leaf, DTensor):
            total += _sharded(path, leaf, rank)
        elif isinstance(leaf, Tensor):
            whole = path[0] not in ("model", "optimizer") or leaf.ndim == 0
            total += _hash(leaf, 0, _salt((path, 0 if whole else rank + 1))) if not whole or rank == 0 else 0
        elif rank == 0:
            total += _salt((path, repr(leaf)))
    return total & MASK_64


def _sharded(path: Sequence[Any], tensor: DTensor, rank: int) -> int:
    """Shard along dimension 0: its elements are a run of the whole tensor's."""
    dim, local = dimension(path, tensor), local_tensor(tensor)
    if dim is None:
        return _hash(local, 0, _salt(path)) if rank == 0 else 0
    if dim != 0:
        raise NotImplementedError(f"{path} is cut along dimension {dim}; the checksum knows dimension 0 only")
    rows = -(-tensor.shape[0] // tensor.device_mesh.size())  # torch.chunk's
    first = min(tensor.device_mesh.get_local_rank() * rows, tensor.shape[0])
    return _hash(local, first * (tensor.numel() // max(tensor.shape[0], 1)), _salt(path))


def _salt(of: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr(of).encode(), digest_size=8).digest(), "little")


def _hash(tensor: Tensor, first: int, salt: int) -> int:
    """Sum over elements of a hash of (bits, place, salt); `first`: the place of the tensor's first element."""
    flat = tensor.detach().contiguous().reshape(-1)
    bits = flat.view(_BITS[flat.element_size()]) if flat.dtype.is_floating_point else flat
    total = 0
    for begin in range(0, len(bits), CHUNK):
        part = bits[begin : begin + CHUNK].to(torch.int64)
        place = torch.arange(first + begin, first + begin + len(part), dtype=torch.int64, device=part.device)
        total += int(_mix(part ^ _mix(place + _signed(salt))).sum())
    return total & MASK_64


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014), in int64, which wraps; its shifts here keep the sign."""
    x = (x ^ (x >> 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> 27)) * _signed(0x94D049BB133111EB)
    return x ^ (x >> 31)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
