"""The smallest program that every recovery layer can restart: gloo ranks count together, and some are struck.

Run as a rank: `python -m gloo_program`, with GLOO_PROGRAM=path of the JSON that `Settings` describes. Counting is the
training: a step is one all_reduce, rank 0 keeps the count in a file, and an attempt resumes from there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bench.record import Recorder
from bench.recovery.inside import create_inside
from bench.recovery.inside.base import Attempt, Inside, Post, Slot
from bench.recovery.timeouts import Timeouts


@dataclass(frozen=True)
class Settings:
    layer: str
    host: str
    base_port: int
    wrapper_port: int
    timeouts: dict[str, float]
    collective_s: float
    folder: str  # events, the count, marks of faults that have struck
    active: int
    steps: int
    fault: str | None  # exception | sigkill | sigstop | hang (of short sleeps) | unhealthy | always
    victim: int  # rank
    at_step: int
    again: int | None  # the rank that is killed in addition, in the second attempt, before it joins
    monitoring: str
    node: int


def strike(settings: Settings, step: int, rank: int, recorder: Recorder) -> None:
    """Once per program, whatever process comes by; fault "always": at each step, for ever."""
    if settings.fault == "always":
        raise RuntimeError("struck again")
    if settings.fault is None or rank != settings.victim or step != settings.at_step:
        return
    try:
        os.close(os.open(Path(settings.folder) / "struck", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    recorder.instant("strike", fault=settings.fault)
    if settings.fault == "unhealthy":
        (Path(settings.folder) / f"unhealthy-{rank}").write_text(str(os.getpid()))
    if settings.fault in ("exception", "unhealthy"):
        raise RuntimeError("struck")
    if settings.fault in ("sigkill", "sigstop"):
        os.kill(os.getpid(), signal.SIGKILL if settings.fault == "sigkill" else signal.SIGSTOP)
    while settings.fault == "hang":
        time.sleep(0.05)


def join(settings: Settings, attempt: Attempt) -> None:
    about: dict[str, Any] = {"rank": attempt.rank, "world_size": attempt.world_size}
    about["timeout"] = timedelta(seconds=settings.collective_s)
    if attempt.env_rendezvous:
        dist.init_process_group("gloo", init_method="env://", **about)
        return
    base = dist.TCPStore(settings.host, settings.base_port, is_master=False)
    dist.init_process_group("gloo", store=dist.PrefixStore(attempt.group, base), **about)


def count(settings: Settings, attempt: Attempt, inside: Inside, recorder: Recorder) -> None:
    kept = Path(settings.folder) / "count"
    if attempt.number == 1 and attempt.rank == settings.again:
        os.kill(os.getpid(), signal.SIGKILL)
    with inside.section("setup"):
        join(settings, attempt)
        recorder.instant("joined", rank=attempt.rank, world_size=attempt.world_size)
        recorder.instant("effective", **inside.effective())
        done = torch.tensor(int(kept.read_text()) if attempt.rank == 0 and kept.exists() else 0)
        dist.broadcast(done, 0)
    for step in range(int(done) + 1, settings.steps + 1):
        strike(settings, step, attempt.rank, recorder)
        with inside.section("step"):
            ranks = torch.ones(1)
            dist.all_reduce(ranks)
            assert int(ranks) == attempt.world_size
            recorder.instant("step", step=step)
            if attempt.rank == 0:
                (kept.with_suffix(".new")).write_text(str(step))
                os.replace(kept.with_suffix(".new"), kept)
        inside.beat()
    dist.destroy_process_group()


def main() -> None:
    settings = Settings(**json.loads(Path(os.environ["GLOO_PROGRAM"]).read_text()))
    slot = Slot.from_environment()
    recorder = Recorder(
        Path(settings.folder), role="worker", node=settings.node, local_rank=slot.local_rank, rank=slot.rank
    )
    post = Post(
        slot=slot,
        host=settings.host,
        base_port=settings.base_port,
        wrapper_port=settings.wrapper_port,
        timeouts=Timeouts.from_json(settings.timeouts),
        recorder=recorder,
        device="cpu",
        active=settings.active,
        monitoring=settings.monitoring,
        unhealthy_flag=Path(settings.folder) / f"unhealthy-{slot.rank}",
    )
    inside = create_inside(settings.layer, post)
    try:
        inside.run(lambda attempt: count(settings, attempt, inside, recorder))
        recorder.instant("measured_end")
    finally:
        inside.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    code = 0
    try:
        main()
    except Exception:  # noqa: BLE001 - the process boundary
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
