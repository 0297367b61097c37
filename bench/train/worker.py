"""One rank of a launch: builds the training state and the strategies, runs the loop, always closes what it opened.

Started by a node runner or an elastic agent with the usual variables (RANK, LOCAL_RANK, WORLD_SIZE) and BENCH_LAUNCH,
the path of the launch's settings on this node. It never composes a configuration. The recovery layer calls
`Rank.train`, and some layers call it again in the same process after a fault.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from bench import checkpoint
from bench.checkpoint.base import Context, Strategy
from bench.config import Run, run_from_json
from bench.design import Launch, launch_from_json
from bench.faults.base import Scene, unhealthy_flag
from bench.faults.trigger import Reached, trigger_for
from bench.faults.victims import writers
from bench.record import Recorder
from bench.recovery.inside import create_inside
from bench.recovery.inside.base import Attempt, Post, Slot
from bench.recovery.timeouts import Timeouts
from bench.schema import strategy_of
from bench.train.data import open_data
from bench.train.instrument import Instrument, pinned_copy_bytes_per_s
from bench.train.loop import Trainer, run
from bench.train.state import build_state

# Which sub-phases of a save are which moment of a fault. The first that a strategy enters counts.
MOMENT_OF_PHASE = {"stage": "staging", "plan": "staging", "write": "staging", "commit": "commit"}


@dataclass(frozen=True)
class Settings:
    """The launch as this node knows it (written by the node runner before it starts the agent)."""

    config: Run
    launch: Launch
    node: int
    token: str
    store_host: str
    store_port: int
    wrapper_port: int
    device: str
    events_dir: Path
    checkpoint_dir: Path
    faults_dir: Path  # in the result folder: records of the faults that struck
    requests_dir: Path  # on this node: faults that its runner is asked for
    collective_timeout_s: float
    timeouts: Timeouts | None


def read_settings(path: Path) -> Settings:
    raw = json.loads(path.read_text())
    raw |= {"config": run_from_json(raw["config"]), "launch": launch_from_json(raw["launch"])}
    raw |= {name: Path(raw[name]) for name in ("events_dir", "checkpoint_dir", "faults_dir", "requests_dir")}
    raw["timeouts"] = Timeouts(**raw["timeouts"]) if raw["timeouts"] else None
    return Settings(**raw)


class Rank:
    """One process of the launch. What it holds lives as long as the process, over restarts in place."""

    def __init__(self, settings: Settings, slot: Slot, device: torch.device, stack: ExitStack) -> None:
        self.settings = settings
        self.slot = slot
        self.device = device
        self.meta = self._meta(slot.rank, slot.world_size)
        self.recorder = Recorder(settings.events_dir, **self.meta)
        stack.callback(self.recorder.close)
        self.inside = create_inside(settings.launch.layer, self._post())
        stack.callback(self.inside.close)

    def _meta(self, rank: int, world_size: int) -> dict[str, Any]:
        return {
            "role": "worker",
            "launch": self.settings.launch.index,
            "node": self.settings.node,
            "local_rank": self.slot.local_rank,
            "rank": rank,
            "world_size": world_size,
            "incarnation": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
            "token": self.settings.token,
        }

    def _post(self) -> Post:
        settings = self.settings
        return Post(
            slot=self.slot,
            host=settings.store_host,
            base_port=settings.store_port,
            wrapper_port=settings.wrapper_port,
            timeouts=settings.timeouts,
            recorder=self.recorder,
            device=settings.device,
            active=settings.config.world_size,
            monitoring=settings.config.recovery.ft_monitoring,
            unhealthy_flag=unhealthy_flag(settings.requests_dir, settings.node, self.slot.local_rank),
        )

    def train(self, attempt: Attempt) -> None:
        """Join the others, build the state, and run the launch from its newest checkpoint to its end."""
        settings, config = self.settings, self.settings.config
        if self.device.type == "cuda":  # not earlier: a layer's monitor, forked before, must not inherit CUDA's files
            torch.cuda.set_device(self.device)
        strikes = self._strikes(attempt)
        if attempt.number > 0:
            gc.unfreeze()  # the attempt before this one may hold a model and its memory in cycles
            gc.collect()
        with ExitStack() as stack:
            with self.inside.section("setup"):
                strikes.reach("recovery", 0)  # within it: a job opens it as soon as it has greeted its layer
                join(settings, attempt, self.device)
                self.recorder.instant("joined", rank=attempt.rank, world_size=attempt.world_size)
                self.inside.starting()
                if settings.timeouts is not None:
                    self.recorder.instant("effective", **self.inside.effective())
                state = build_state(config, self.device)
                self.inside.starting()
                data = open_data(config.data, config.model.vocab_size, config.seed, config.train.seq_len)
                arms = self._strategies(attempt, state, strikes, stack)
                self.inside.starting()
                instrument = Instrument(self.recorder, self.device)
                if self.device.type == "cuda" and not settings.launch.endures:
                    dist.barrier(device_ids=[self.device.index])  # all GPUs of a node at once, as in a save
                    instrument.instant("d2h", bytes_per_s=pinned_copy_bytes_per_s(self.device))
                quiet_collector(collect=attempt.number == 0)
            run(Trainer(config, state, data, arms, instrument, self.inside, strikes), settings.launch)
        dist.destroy_process_group()  # after a fault the layer, or the end of the process, sees to it

    def _strikes(self, attempt: Attempt) -> Reached:
        settings = self.settings
        scene = Scene(
            faults_dir=settings.faults_dir,
            requests_dir=settings.requests_dir,
            checkpoint_dir=settings.checkpoint_dir / settings.launch.arms[0],
            node=settings.node,
            local_rank=self.slot.local_rank,
            rank=attempt.rank,
            token=settings.token,
            device="cuda" if settings.device == "cuda" else "cpu",
            children=partial(writers, settings.events_dir, settings.node, self.slot.local_rank),
        )
        return trigger_for(settings.launch.faults, scene)

    def _strategies(self, attempt: Attempt, state: Any, strikes: Reached, stack: ExitStack) -> dict[str, Strategy]:
        def on_phase(name: str) -> None:
            if (moment := MOMENT_OF_PHASE.get(name)) is not None:
                strikes.reach(moment, state.step)

        made = {}
        for arm in self.settings.launch.arms:
            made[arm] = checkpoint.create(arm, self._context(arm, attempt, on_phase))
            stack.callback(made[arm].close)
        return made

    def _context(self, arm: str, attempt: Attempt, on_phase: Callable[[str], None]) -> Context:
        settings, config = self.settings, self.settings.config
        synced = arm != strategy_of(arm)
        directory = settings.checkpoint_dir / arm
        directory.mkdir(parents=True, exist_ok=True)
        return Context(
            directory=directory,
            rank=attempt.rank,
            world_size=attempt.world_size,
            node=settings.node,
            local_rank=self.slot.local_rank,
            device=settings.device,
            incarnation=f"{settings.token[:8]}-{settings.launch.index}-{attempt.group}",
            recorder=self.recorder,
            events_dir=settings.events_dir,
            meta=self._meta(attempt.rank, attempt.world_size),
            arm=arm,
            fsync=config.storage.fsync or synced,
            keep=config.checkpoint.keep,
            deadline_s=config.checkpoint.deadline_s,
            agree_min=lambda value: agree_min(value, settings.device),
            on_phase=on_phase,
            options={
                "api": "queue" if synced else config.checkpoint.api,
                "replication": config.checkpoint.replication,
                **config.checkpoint.synthetic,
            },
        )


def join(settings: Settings, attempt: Attempt, device: torch.device) -> None:
    """Form the process group over the store that the runner of node 0 hosts, so that no rank's death takes it along.

    By env:// where the layer says so: then rank 0 hosts it, as a plain pod does.
    """
    timeout = timedelta(seconds=settings.collective_timeout_s)
    backend = "nccl" if device.type == "cuda" else "gloo"
    device_id = device if device.type == "cuda" else None
    about: dict[str, Any] = {
        "rank": attempt.rank,
        "world_size": attempt.world_size,
        "timeout": timeout,
        "device_id": device_id,
    }
    # Groups are numbered in each process, and the number is part of the keys under which ranks meet. A join that was
    # broken off has been counted by the ranks that had begun it, and by them alone.
    dist.distributed_c10d._world.group_count = 0
    if attempt.env_rendezvous:
        dist.init_process_group(backend, init_method="env://", **about)
        return
    base = dist.TCPStore(settings.store_host, settings.store_port, is_master=False, timeout=timeout)
    name = f"ranks/{settings.launch.index}/{settings.launch.occasion}/{attempt.group}"
    dist.init_process_group(backend, store=dist.PrefixStore(name, base), **about)


def agree_min(value: int, device: str) -> int:
    """The smallest of the ranks' values; collective."""
    smallest = torch.tensor([value], device=device)
    dist.all_reduce(smallest, op=dist.ReduceOp.MIN)
    return int(smallest)


def quiet_collector(collect: bool) -> None:
    """No garbage collection at random moments of a measurement; the loop collects where nothing is timed."""
    if collect:
        gc.collect()
    gc.freeze()
    gc.disable()


def main() -> int:
    settings, slot = read_settings(Path(os.environ["BENCH_LAUNCH"])), Slot.from_environment()
    torch.set_num_threads(settings.config.train.threads)
    device = torch.device("cuda", slot.local_rank) if settings.device == "cuda" else torch.device("cpu")
    with ExitStack() as stack:
        rank = Rank(settings, slot, device, stack)
        rank.inside.run(rank.train)
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
