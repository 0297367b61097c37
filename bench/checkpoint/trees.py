"""Nested dicts, lists and tuples of tensors and plain values: walking, localizing and fingerprinting them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor

Path = tuple[Any, ...]  # the keys and indices that lead to a leaf


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of the same shape with `function` applied to every leaf; containers are new."""
    if isinstance(tree, dict):
        return {key: map_leaves(function, value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [map_leaves(function, value) for value in tree]
    if isinstance(tree, tuple):
        return tuple(map_leaves(function, value) for value in tree)
    return function(tree)


def map_paths(function: Callable[[Path, Any], Any], tree: Any, path: Path = ()) -> Any:
    """As map_leaves, with the path of every leaf as the first argument."""
    if isinstance(tree, dict):
        return {key: map_paths(function, value, (*path, key)) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_paths(function, value, (*path, index)) for index, value in enumerate(tree))
    return function(path, tree)


def flatten(tree: Any) -> list[tuple[Path, Any]]:
    """Every leaf with its path, in the tree's own order. An empty container counts as a leaf."""
    return list(_walk((), tree))


def _walk(path: Path, tree: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _walk((*path, key), value)
    elif isinstance(tree, (list, tuple)) and tree:
        for index, value in enumerate(tree):
            yield from _walk((*path, index), value)
    else:
        yield path, tree


def local_tensor(leaf: Any) -> Any:
    """The rank's own part of a DTensor, sharing its memory; any other leaf as it is."""
    return leaf.to_local().detach() if isinstance(leaf, DTensor) else leaf


def localize(tree: Any) -> Any:
    """The tree with every DTensor replaced by this rank's local tensor. Copies nothing: tensors alias the live ones."""
    with torch.no_grad():  # with gradients on, to_local() is an autograd operation and costs ten times as much
        return map_leaves(local_tensor, tree)


def compact(tree: Any) -> Any:
    """The tree with tensors that are only a part of their storage copied out of it.

    torch.save writes a tensor's whole storage: a padded or sliced shard would write bytes that are not its own.
    """
    return map_leaves(_compact_leaf, tree)


def _compact_leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().nbytes() != leaf.nbytes:
        return leaf.detach().clone(memory_format=torch.contiguous_format)
    return leaf


def own_cpu_tensor(leaf: Any) -> Any:
    """A copy of a CPU tensor, which the trainer no longer changes; any other leaf as it is."""
    if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu":
        return leaf.detach().clone(memory_format=torch.contiguous_format)
    return leaf


def tree_digest(tree: Any) -> str:
    """SHA-256 (hex) over the paths, dtypes, shapes and bytes of local tensors and the reprs of all other leaves.

    Depends neither on the order of dict keys nor on the device of tensors (those on CUDA are copied to the CPU).
    """
    digest = Digest()
    for path, leaf in sorted(flatten(localize(tree)), key=in_digest_order):
        digest.add(path, leaf)
    return digest.hexdigest()


def in_digest_order(entry: tuple[Path, Any]) -> str:
    """Sort key of (path, leaf): the order in which a digest takes them."""
    return repr(entry[0])


class Digest:
    """A tree's digest from its leaves, one by one in digest order: no tree need be in memory as a whole."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def add(self, path: Path, leaf: Any) -> None:
        if isinstance(leaf, torch.Tensor):
            self._sha.update(f"{path!r} {leaf.dtype} {tuple(leaf.shape)}\n".encode())
            self._sha.update(tensor_bytes(leaf))
        else:
            self._sha.update(f"{path!r} {leaf!r}\n".encode())

    def hexdigest(self) -> str:
        return self._sha.hexdigest()


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """The raw bytes of a tensor in row-major order, as they are in memory (any dtype, any size)."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return flat.numpy().data
