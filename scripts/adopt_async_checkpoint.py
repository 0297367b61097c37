"""The smallest FSDP training script that saves asynchronously through NVRx, by ordinary imports and without this suite.

    torchrun --nproc-per-node=2 scripts/adopt_async_checkpoint.py CHECKPOINT_DIR [STEPS]

Copy what is marked (1) to (4) into your own script. Every rank writes its own shard; a checkpoint counts when all of
them stand under their final names. Run it again with more steps and it resumes.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import torch
import torch.distributed as dist
from nvidia_resiliency_ext.checkpointing.async_ckpt.core import AsyncCallsQueue, AsyncRequest
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

SAVE_EVERY = 5


# (1) Runs in the writer process. Temporary name, fsync, rename: a shard under its final name is whole and durable.
def write(state: dict, path: str) -> None:
    with open(path + ".tmp", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


# (2) A copy that the optimizer cannot change while it is written. NVRx copies CUDA tensors in its own helpers only; CPU
# tensors (AdamW's step counts among them) it hands on as they are.
def snapshot(value):
    if isinstance(value, DTensor):
        value = value.to_local()
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: snapshot(entry) for key, entry in value.items()}
    return [snapshot(entry) for entry in value] if isinstance(value, list) else value


def shard_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:06d}-rank-{dist.get_rank()}-of-{dist.get_world_size()}.pt"


def newest(folder: Path) -> int:
    """The newest step of which every rank has its shard; 0 for a fresh start."""
    steps = sorted({int(path.name[5:11]) for path in folder.glob("step-*.pt")}, reverse=True)
    mine = next((step for step in steps if shard_path(folder, step).exists()), 0)
    agreed = torch.tensor(mine)
    dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
    return int(agreed)


def restore(model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    saved = torch.load(path, weights_only=True)
    # The optimizer's state exists only after a step. That step decays the weights, so they are filled in afterwards.
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.to_local().copy_(saved["model"][name])
    state = optimizer.state_dict()["state"]
    for index, entries in saved["optimizer"].items():
        for name, value in entries.items():
            target = state[index][name]
            (target.to_local() if isinstance(target, DTensor) else target).copy_(value)


def main(folder: Path, steps: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    folder.mkdir(parents=True, exist_ok=True)
    start = newest(folder)
    if start:
        restore(model, optimizer, shard_path(folder, start))

    # (3) One writer process per rank; cpu_shm_mode exists from NVRx 0.7 on and is needed where there is no GPU.
    options = {"cpu_shm_mode": True} if device == "cpu" and version("nvidia-resiliency-ext") >= "0.7" else {}
    queue = AsyncCallsQueue(**options)
    for step in range(start + 1, steps + 1):
        batch = torch.randn(32, 64, generator=torch.Generator().manual_seed(step))
        loss = (model(batch.to(device)) - batch.to(device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % SAVE_EVERY == 0:
            # (4) One write in flight: finish the last one, copy, hand over, train on.
            queue.maybe_finalize_async_calls(blocking=True, no_dist=True)
            state = {"model": dict(model.named_parameters()), "optimizer": optimizer.state_dict()["state"]}
            queue.schedule_async_request(AsyncRequest(write, (snapshot(state), str(shard_path(folder, step))), []))
    queue.maybe_finalize_async_calls(blocking=True, no_dist=True)  # the last checkpoint is durable from here on
    queue.close()
    if dist.get_rank() == 0:
        print(f"step {steps}: loss {loss.item():.6f}, resumed from step {start}" if steps > start else "nothing to do")
    dist.destroy_process_group()


if __name__ == "__main__":  # the writer process imports this file: nothing may start outside of this line
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
