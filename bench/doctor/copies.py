"""Probe: copies of one GPU into pinned host memory, alone or at the same time as other GPUs.

`python -m bench.doctor.copies FOLDER DEVICE COUNT`: waits in FOLDER until COUNT processes are ready, measures, prints
{"bytes_per_s": ...}.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.doctor.ask import ask, module
from bench.doctor.base import Case, Check
from bench.report import words
from bench.supervise import die_with_parent

PATIENCE_S = 60.0  # for CUDA to start in all processes
CONTENDED = 0.5  # of a GPU's copy alone; below it, links or memory are shared


def examine(case: Case) -> Iterator[Check]:
    """One GPU, then all that the run uses on this node: what staging can hope for."""
    name = "device to host"
    if case.config.device != "cuda" or not case.gpus:
        yield Check(name, "skip", "no GPU" if case.config.device == "cuda" else "the run computes on CPUs")
        return
    count = min(case.config.ranks_per_node, len(case.gpus))
    alone, error = measure(1)
    together, later_error = measure(count) if count > 1 and alone else (alone, None)
    if not alone or not together:
        remedy = "a limit on locked memory (ulimit -l), or a GPU in trouble (nvidia-smi, dmesg)"
        yield Check(name, "fail", f"a pinned copy failed: {error or later_error}", remedy)
        return
    yield judge(alone[0], together, case.shard_bytes)


def judge(alone: float, together: list[float], shard_bytes: int | None) -> Check:
    """`alone`: bytes a second of one GPU by itself; `together`: of each, all at once."""
    slowest, count = min(together), len(together)
    found = f"one GPU {words.size(alone)}/s"
    found += f"; {count} at once {words.size(slowest)}/s for the slowest" if count > 1 else ""
    if shard_bytes is not None:
        found += f": staging a save takes {words.seconds(shard_bytes / count / slowest)} or more"
    if slowest < CONTENDED * alone:
        remedy = "bind ranks to the CPU socket of their GPU; GPUs behind one PCIe switch share its link"
        return Check("device to host", "warn", found, remedy)
    return Check("device to host", "ok", found)


def measure(count: int) -> tuple[list[float], str | None]:
    """Bandwidth of each of the first `count` GPUs, all copying at once; else no figure and why."""
    with tempfile.TemporaryDirectory(prefix="bench-doctor-") as folder:
        commands = [module("bench.doctor.copies", folder, device, count) for device in range(count)]
        answers = ask(commands, 2 * PATIENCE_S)
    speeds = [answer.find("bytes_per_s") for answer in answers]
    error = next((answer.error for answer in answers if answer.error), None)
    return ([float(speed) for speed in speeds], None) if all(speeds) else ([], error)


def main(arguments: list[str]) -> int:
    import torch

    from bench.train.instrument import pinned_copy_bytes_per_s

    die_with_parent()
    folder, number, count = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    device = torch.device("cuda", number)
    torch.cuda.set_device(device)
    pinned_copy_bytes_per_s(device, repeats=1)  # CUDA has started and memory is there
    (folder / f"ready-{number}").touch()
    end = time.monotonic() + PATIENCE_S
    while len(os.listdir(folder)) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"only {len(os.listdir(folder))} of {count} GPUs were ready within {PATIENCE_S:.0f} s")
        time.sleep(0.001)
    print(json.dumps({"bytes_per_s": pinned_copy_bytes_per_s(device, repeats=20)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
