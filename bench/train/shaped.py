"""A state with the shapes of an existing checkpoint, held and saved but not trained."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Shard as Sharded

from bench.checkpoint.trees import local_tensor
from bench.config import Run
from bench.errors import BadInput
from bench.train.base import TrainState, Tree, paired, require_names
from bench.train.data import mix
from bench.train.shapes import Shape, path_of, read_shapes
from bench.train.sharding import mesh_of_all


class HeldState(TrainState):
    """Random tensors of the shapes and dtypes in config.state, cut over all ranks as FSDP2 cuts.

    Scalars are whole on every rank. Each step changes every tensor a little: a writer that reads too late is found out.
    """

    def __init__(self, config: Run, device: torch.device) -> None:
        super().__init__(device)
        mesh = mesh_of_all(device)
        shapes = read_shapes(path_of(config.state or ""))
        self.tensors = {
            name: random_tensor(shape, mesh, device, mix(config.seed + mix(number)))
            for number, (name, shape) in enumerate(shapes.items())
        }
        self._marks = [mark for tensor in self.tensors.values() for mark in first_byte(local_tensor(tensor))]

    def train_step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        raise RuntimeError("a state of given shapes has no model to train: train.compute=paced")

    def skip_step(self, samples: int) -> None:
        super().skip_step(samples)
        if self._marks:
            torch._foreach_add_(self._marks, 1)

    def tree(self) -> Tree:
        return {"state": dict(self.tensors), "step": self.step, "position": self.position}

    @torch.no_grad()
    def restore(self, tree: Tree) -> None:
        require_names(tree, "state", "step", "position")
        for mine, saved in list(paired(self.tensors, tree["state"])):
            mine.copy_(saved)
        self.step, self.position = int(tree["step"]), int(tree["position"])


def random_tensor(shape: Shape, mesh: DeviceMesh, device: torch.device, seed: int) -> Tensor:
    """A tensor of this shape: a DTensor cut along its first dimension, or a scalar that is equal on all ranks."""
    dtype = dtype_of(shape)
    if not shape.size:
        return random_values((), dtype, device, seed)
    rows, rank = -(-shape.size[0] // mesh.size()), mesh.get_local_rank()
    own_rows = min(rows, max(0, shape.size[0] - rank * rows))  # as torch.chunk cuts
    local = random_values((own_rows, *shape.size[1:]), dtype, device, mix(seed + rank))
    stride = torch.empty(shape.size, device="meta").stride()
    return DTensor.from_local(local, mesh, [Sharded(0)], run_check=False, shape=torch.Size(shape.size), stride=stride)


def random_values(size: tuple[int, ...], dtype: torch.dtype, device: torch.device, seed: int) -> Tensor:
    """Values that no storage can compress to nothing."""
    generator = torch.Generator(device).manual_seed(seed >> 1)  # manual_seed takes an int64
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(size, generator=generator, device=device, dtype=wide).to(dtype)
    highest = 2 if dtype == torch.bool else 128
    return torch.randint(0, highest, size, generator=generator, device=device).to(dtype)


def dtype_of(shape: Shape) -> torch.dtype:
    found = getattr(torch, shape.dtype, None)
    if not isinstance(found, torch.dtype):
        raise BadInput(f"state: torch {torch.__version__} has no dtype {shape.dtype}; use a newer one")
    return found


def first_byte(tensor: Tensor) -> list[Tensor]:
    """The lowest byte of the first element, as something to change in place; none where any change is no value."""
    if tensor.numel() == 0 or tensor.dtype == torch.bool:
        return []
    return [tensor.view(-1).view(torch.uint8)[:1]]
