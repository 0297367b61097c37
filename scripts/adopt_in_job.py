"""The smallest FSDP2 training script that NVRx's ft_launcher watches and restarts, without this suite.

    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 ft_launcher --standalone --nproc-per-node=2 --max-restarts=3 \\
        --ft-initial-rank-heartbeat-timeout=60 --ft-rank-heartbeat-timeout=10 --ft-workload-check-interval=1 \\
        --workers-stop-timeout=3 scripts/adopt_in_job.py CHECKPOINT_DIR [STEPS] [--fail-at STEP]

(On several nodes in place of --standalone: --nnodes, --rdzv-backend=c10d, --rdzv-endpoint and --rdzv-id, as for
torchrun. The launcher's own defaults notice a hang after 45 minutes.) Copy what is marked (1) to (3) into your own
script. With --fail-at, rank 1 is killed once before that step, and all ranks start again in new processes.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

SAVE_EVERY = 5


def newest(folder: Path) -> int:
    """The newest step with a complete checkpoint, chosen by rank 0; 0 for a fresh start."""
    found = [max((int(path.parent.name) for path in folder.glob("*/.metadata")), default=0)]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def main(folder: Path, steps: int, fail_at: int) -> None:
    # (1) This rank's line to its monitor: silence on it, not the end of the process, is how a hang is noticed.
    monitor = RankMonitorClient()
    monitor.init_workload_monitoring()
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    device = "cpu"
    if torch.cuda.is_available():
        device = "cuda"
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
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
        monitor.send_heartbeat()  # (2) In every step, and around whatever takes longer than the heartbeat timeout.
        if step == fail_at and restarts == 0 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        batch = torch.randn(32, 64, generator=torch.Generator().manual_seed(step)).to(device)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % SAVE_EVERY == 0:
            state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
            dcp.save(state, checkpoint_id=folder / str(step))
    if dist.get_rank() == 0 and steps > start:
        print(f"step {steps}: loss {loss.item():.6f}, resumed from step {start}, restarted {restarts} times")
    monitor.shutdown_workload_monitoring()  # (3) Else the end of the process looks like a failure.
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="FSDP2 training that ft_launcher restarts.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int, nargs="?", default=20)
    parser.add_argument("--fail-at", type=int, default=-1)
    options = parser.parse_args()
    main(options.folder, options.steps, options.fail_at)
