"""One rank of a launch: builds the training state and the strategies, runs the loop, always closes what it opened.

Started by a node runner or an elastic agent with the usual variables (RANK, LOCAL_RANK, WORLD_SIZE) and BENCH_LAUNCH,
the path of the launch's settings on this node. It never composes a configuration.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from bench import checkpoint
from bench.checkpoint.base import Context, Strategy
from bench.config import Run, run_from_json
from bench.design import Launch, launch_from_json
from bench.record import Recorder
from bench.train.data import open_data
from bench.train.instrument import Instrument, pinned_copy_bytes_per_s
from bench.train.loop import Trainer, run
from bench.train.state import build_state


@dataclass(frozen=True)
class Settings:
    """The launch as this node knows it (written by the node runner before it starts the agent)."""

    config: Run
    launch: Launch
    node: int
    token: str
    store_host: str
    store_port: int
    device: str
    events_dir: Path
    checkpoint_dir: Path
    collective_timeout_s: float


def read_settings(path: Path) -> Settings:
    raw = json.loads(path.read_text())
    raw |= {"config": run_from_json(raw["config"]), "launch": launch_from_json(raw["launch"])}
    raw |= {name: Path(raw[name]) for name in ("events_dir", "checkpoint_dir")}
    return Settings(**raw)


@dataclass(frozen=True)
class Slot:
    rank: int
    local_rank: int
    world_size: int
    incarnation: int  # 0 at the start of a launch; counts an elastic agent's restarts

    @classmethod
    def from_environment(cls) -> Slot:
        variables = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
        rank, local_rank, world_size, restarts = (os.environ.get(name) for name in variables)
        return cls(int(rank or 0), int(local_rank or 0), int(world_size or 1), int(restarts or 0))


def join(settings: Settings, slot: Slot, device: torch.device) -> None:
    """Form the process group over the store that the runner of node 0 hosts, so that no rank's death takes it along."""
    timeout = timedelta(seconds=settings.collective_timeout_s)
    base = dist.TCPStore(settings.store_host, settings.store_port, is_master=False, timeout=timeout)
    name = f"ranks/{settings.launch.index}/{settings.launch.occasion}/{slot.incarnation}"
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=dist.PrefixStore(name, base),
        rank=slot.rank,
        world_size=slot.world_size,
        timeout=timeout,
        device_id=device if device.type == "cuda" else None,
    )


def strategies(
    settings: Settings, slot: Slot, recorder: Recorder, meta: dict[str, Any], stack: ExitStack
) -> dict[str, Strategy]:
    made = {}
    for arm in settings.launch.arms:
        made[arm] = checkpoint.create(arm, context(arm, settings, slot, recorder, meta))
        stack.callback(made[arm].close)
    return made


def context(arm: str, settings: Settings, slot: Slot, recorder: Recorder, meta: dict[str, Any]) -> Context:
    config = settings.config
    synced = arm != checkpoint.strategy_of(arm)
    directory = settings.checkpoint_dir / arm
    directory.mkdir(parents=True, exist_ok=True)
    return Context(
        directory=directory,
        rank=slot.rank,
        world_size=slot.world_size,
        node=settings.node,
        local_rank=slot.local_rank,
        device=settings.device,
        incarnation=f"{settings.token[:8]}-{settings.launch.index}-{slot.incarnation}",
        recorder=recorder,
        events_dir=settings.events_dir,
        meta=meta,
        arm=arm,
        fsync=config.storage.fsync or synced,
        keep=config.checkpoint.keep,
        deadline_s=config.checkpoint.deadline_s,
        agree_min=lambda value: agree_min(value, settings.device),
        options={
            "api": "queue" if synced else config.checkpoint.api,
            "replication": config.checkpoint.replication,
            **config.checkpoint.synthetic,
        },
    )


def agree_min(value: int, device: str) -> int:
    """The smallest of the ranks' values; collective."""
    smallest = torch.tensor([value], device=device)
    dist.all_reduce(smallest, op=dist.ReduceOp.MIN)
    return int(smallest)


def quiet_collector() -> None:
    """No garbage collection at random moments of a measurement; the loop collects where nothing is timed."""
    gc.collect()
    gc.freeze()
    gc.disable()


def main() -> int:
    settings, slot = read_settings(Path(os.environ["BENCH_LAUNCH"])), Slot.from_environment()
    config = settings.config
    torch.set_num_threads(config.train.threads)
    device = torch.device("cuda", slot.local_rank) if settings.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    meta = {
        "role": "worker",
        "launch": settings.launch.index,
        "node": settings.node,
        "local_rank": slot.local_rank,
        "rank": slot.rank,
        "world_size": slot.world_size,
        "incarnation": slot.incarnation,
        "token": settings.token,
    }
    with ExitStack() as stack:
        recorder = Recorder(settings.events_dir, **meta)
        stack.callback(recorder.close)
        join(settings, slot, device)
        stack.callback(dist.destroy_process_group)
        state = build_state(config, device)
        data = open_data(config.data, config.model.vocab_size, config.seed, config.train.seq_len)
        arms = strategies(settings, slot, recorder, meta, stack)
        instrument = Instrument(recorder, device)
        if device.type == "cuda":
            dist.barrier(device_ids=[device.index])  # all GPUs of a node at once, as in a save
            instrument.instant("d2h", bytes_per_s=pinned_copy_bytes_per_s(device))
        quiet_collector()
        run(Trainer(config, state, data, arms, instrument), settings.launch)
    return 0


def run_and_leave() -> NoReturn:
    """End at once: all is closed, and threads of libraries may abort an interpreter that winds down."""
    try:
        code = main()
    except Exception:  # noqa: BLE001 - the process boundary: the launch fails, with the reason in this rank's log
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run_and_leave()
