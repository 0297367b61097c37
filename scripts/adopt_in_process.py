"""The smallest FSDP2 training script that restarts in place through NVRx, by ordinary imports and without this suite.

    python scripts/adopt_in_process.py CHECKPOINT_DIR [STEPS] [--fail-at STEP]

starts its two ranks itself: an elastic agent (torchrun) around them would end the survivors of a killed rank before
they could recover. Copy what is marked (1) to (5) into your own script. With --fail-at, rank 1 raises once before that
step, and the same processes train on from the newest checkpoint. No `from __future__ import annotations` here: the
library reads the annotation in (4) as an object.
"""

import argparse
import os
import socket
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from nvidia_resiliency_ext import inprocess
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

RANKS = 2
SAVE_EVERY = 5


# (1) The library's store, always as a client: a process outside of the ranks hosts it, so that any rank may die, rank 0
# too, and none has to wait for the others at the end.
class OutsideStore(inprocess.store.TCPStore):
    TCP_STORE_HOST_RANK = -1


def sockets() -> dict[int, str]:
    """Descriptor -> identity of this process's sockets (Linux)."""
    found = {}
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # closed meanwhile
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return {number: target for number, target in found.items() if target.startswith("socket:")}


# (2) With gloo only: the library aborts NCCL's collectives, and a rank in a gloo collective would wait for its dead
# peer until the timeout. Shutting down the connections that training has opened wakes it at once.
class AbortGloo(inprocess.abort.Abort):
    others = frozenset()  # sockets that are not training's; the library's own must stay

    def __call__(self, state):
        for number, identity in sockets().items():
            if identity in self.others:
                continue
            # OSError: it was closed meanwhile; or it listens, and has no peer, and gloo does not survive its end.
            with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
                connection.getpeername()
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    connection.shutdown(socket.SHUT_RDWR)
        if dist.is_initialized():
            dist.destroy_process_group()
        return state


def join(iteration: int) -> None:
    """(3) A new process group for every restart, under its own prefix; rank and world size may have changed."""
    AbortGloo.others = frozenset(sockets().values())
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["GROUPS_PORT"]), is_master=False)
    dist.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        store=dist.PrefixStore(str(iteration), store),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=120),  # longer than hard_timeout, else it pre-empts the library's hang detection
    )


def newest(folder: Path) -> int:
    """The newest step with a complete checkpoint, chosen by rank 0; 0 for a fresh start."""
    found = [max((int(path.parent.name) for path in folder.glob("*/.metadata")), default=0)]
    dist.broadcast_object_list(found, src=0)
    return found[0]


# (4) What is called again after a fault. Everything that refers to the process group is made inside of it.
def train(folder: Path, steps: int, fail_at: int, call: inprocess.CallWrapper = None) -> None:
    join(call.iteration)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).to(device)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = newest(folder)
    if start:
        state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
        dcp.load(state, checkpoint_id=folder / str(start))
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    for step in range(start + 1, steps + 1):
        if step == fail_at and call.iteration == 0 and dist.get_rank() == 1:
            raise RuntimeError(f"asked to fail before step {step}")
        batch = torch.randn(32, 64, generator=torch.Generator().manual_seed(step)).to(device)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        call.ping()  # (5) A sign of life in every step: a rank that gives none is restarted after soft_timeout.
        if step % SAVE_EVERY == 0:
            state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
            dcp.save(state, checkpoint_id=folder / str(step))
            call.ping()
    if dist.get_rank() == 0 and steps > start:
        about = f"resumed from step {start}, restarted {call.iteration} times in process {os.getpid()}"
        print(f"step {steps}: loss {loss.item():.6f}, {about}")
    dist.destroy_process_group()


def run_rank(options: argparse.Namespace) -> None:
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    wrapper = inprocess.Wrapper(
        store_factory=OutsideStore,
        abort=inprocess.abort.AbortTorchDistributed() if torch.cuda.is_available() else AbortGloo(),
        health_check=inprocess.health_check.CudaHealthCheck(),
        soft_timeout=timedelta(seconds=60),  # longer than the longest step, save or load; soft < hard < barrier
        hard_timeout=timedelta(seconds=90),
        barrier_timeout=timedelta(seconds=120),
        monitor_process_interval=timedelta(seconds=0.5),  # below progress_watchdog_interval, else hangs are found late
    )
    if not torch.cuda.is_available() and hasattr(wrapper, "restart_health_check"):
        wrapper.restart_health_check = wrapper.health_check  # 0.7 adds checks of GPUs that end every rank without one
    wrapper(train)(options.folder, options.steps, options.fail_at)


def start_ranks() -> int:
    """Hosts both stores and starts the ranks. On several nodes: once per node, with the stores on one of them."""
    wrapper_store, group_store = (dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in "ab")
    common = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(wrapper_store.port), WORLD_SIZE=str(RANKS))
    # What the library's users set for NCCL, and no line in the log for every wait of its monitors.
    common |= {"TORCH_NCCL_RETHROW_CUDA_ERRORS": "0", "NCCL_NVLS_ENABLE": "0", "TORCH_CPP_LOG_LEVEL": "error"}
    common |= {"GROUPS_PORT": str(group_store.port)}
    variables = [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(RANKS)]
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env=env) for env in variables]
    return min(rank.wait() for rank in ranks)  # the job is done when one rank has come to its end


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="FSDP2 training that restarts in place.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int, nargs="?", default=20)
    parser.add_argument("--fail-at", type=int, default=-1)
    if "RANK" in os.environ:
        run_rank(parser.parse_args())
    else:
        parser.parse_args()
        sys.exit(start_ranks())
