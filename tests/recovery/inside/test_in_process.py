"""The abort of a rank that trains on a GPU, without one: NCCL's part is made up, gloo and its waiting are real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvidia_resiliency_ext.inprocess")
import torch
from nvidia_resiliency_ext.inprocess.abort import AbortTorchDistributed

from bench.recovery.inside import in_process
from bench.recovery.inside.in_process import Abort, Finish, Start

ROOT = Path(__file__).resolve().parents[3]

# Rank 1 comes to the first collective of a strategy's own group and to no second; rank 0 waits there, and is aborted.
PROGRAM = """
import os, sys, threading
from datetime import timedelta
import torch, torch.distributed as dist
from nvidia_resiliency_ext import inprocess
from bench.recovery.inside import in_process

rank, folder, told = int(sys.argv[1]), sys.argv[2], []
start = in_process.Start(recorder=None)
start.sockets = in_process.open_sockets()
inprocess.abort.AbortTorchDistributed.shutdown_all_process_group_backends = lambda: told.append(dist.is_initialized())
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
own = dist.new_group(backend="gloo", timeout=timedelta(seconds=1800))
dist.all_reduce(torch.ones(1), group=own)
if rank == 1:
    sys.stdin.read()  # silent, and alive, until the test has seen enough
    os._exit(0)
abort = in_process.Abort(start, "cuda")
aborting = threading.Timer(0.5, lambda: abort(None))
aborting.start()
try:
    dist.all_reduce(torch.ones(1), group=own)
except RuntimeError:
    aborting.join()
    print("woken, NCCL aborted:", told, "group left:", dist.is_initialized(), [name for name, _ in abort.times])
sys.stdout.flush()
os._exit(0)
"""


def rank(number: int, folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", PROGRAM, str(number), str(folder)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, cwd=ROOT, env={"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}, **pipes)


def test_on_a_gpu_too_the_abort_wakes_a_rank_that_waits_in_a_strategys_own_gloo_group(tmp_path):
    ranks = [rank(number, tmp_path) for number in range(2)]
    try:
        said, _ = ranks[0].communicate(timeout=120)
    finally:
        for each in ranks:
            each.kill()
            each.wait()
            each.stdin.close()
            each.stdout.close()
    assert said == "woken, NCCL aborted: [True] group left: False ['abort', 'aborted']\n"


def test_the_librarys_abort_of_nccl_has_the_name_that_the_suite_calls():
    assert callable(AbortTorchDistributed.shutdown_all_process_group_backends)


# --- what is recorded of it
class Recorder:
    def __init__(self) -> None:
        self.told: list[tuple[str, float, dict[str, Any]]] = []

    def instant(self, name: str, t: float, **about: Any) -> None:
        self.told.append((name, t, about))


def finished(device: str) -> list[tuple[str, float, dict[str, Any]]]:
    recorder = Recorder()
    abort = Abort(Start(recorder), device)
    abort.times = [("abort", 1.0), ("aborted", 1.5)]
    finish = Finish(abort, recorder, device)
    finish(None)
    finish(None)  # nothing is left to tell
    return recorder.told


def test_memory_that_is_in_use_after_the_abort_is_recorded_with_its_end(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (30, 80))
    assert finished("cuda") == [("abort", 1.0, {}), ("aborted", 1.5, {"device_bytes": 50})]
    assert finished("cpu") == [("abort", 1.0, {}), ("aborted", 1.5, {})]


def test_a_gpu_that_the_fault_has_broken_or_that_was_not_used_yet_tells_nothing(monkeypatch):
    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    assert in_process.device_used_bytes() is None
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
    assert finished("cuda") == [("abort", 1.0, {}), ("aborted", 1.5, {})]
