"""What the tests of faults are made from: places in a temporary folder, planned faults, and ranks that are struck."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.config import Fault as Given
from bench.config import Faults as FaultsConfig
from bench.config import Run
from bench.config.parts import Checkpoint
from bench.config.recovery import Recovery
from bench.faults import create
from bench.faults.base import Planned, Scene, Site
from bench.supervise import TOKEN

ROOT = Path(__file__).resolve().parents[2]
OWN_TOKEN = f"token-of-test-{os.getpid()}"

# A rank without a trainer: it passes one moment, and says so if it gets through.
RANK = """
import json, sys, threading, time
from functools import partial
from pathlib import Path
from bench.faults.base import Scene, planned_from_json
from bench.faults.trigger import trigger_for
from bench.faults.victims import writers
given = json.loads(sys.argv[1])
paths = {name: Path(given[name]) for name in ("faults_dir", "requests_dir", "checkpoint_dir")}
children = partial(writers, Path(given["requests_dir"]), 0, 0)
scene = Scene(**paths, node=0, local_rank=0, rank=3, token=given["token"], device="cpu", children=children)
trigger = trigger_for([planned_from_json(p) for p in given["planned"]], scene)
def reach():
    trigger.reach(given["planned"][0]["at"], 7)
"""
PASSES = f"{RANK}\nreach()\nprint('went on', flush=True)\n"


def planned(kind: str, id_: str | None = None, **more: Any) -> Planned:
    about: dict[str, Any] = {"at": create(kind).moments[0], "step": 5, "node": 0, "local_rank": 0} | more
    return Planned(id_ or f"0-{kind}", kind, **about)


def places(folder: Path, arm: str = "sync_local") -> dict[str, Path]:
    """The folders of a launch, made."""
    made = {
        "faults_dir": folder / "faults",
        "requests_dir": folder / "requests",
        "checkpoint_dir": folder / "store" / arm,
    }
    for path in made.values():
        path.mkdir(parents=True, exist_ok=True)
    return made


def scene(folder: Path, **more: Any) -> Scene:
    given: dict[str, Any] = {"node": 0, "local_rank": 0, "rank": 3, "token": OWN_TOKEN, "device": "cpu"} | more
    return Scene(**places(folder), **given)


def site(folder: Path, **more: Any) -> Site:
    return Site(**{**places(folder), "node": 0, "token": OWN_TOKEN, "device": "cpu"} | more)


def rank(folder: Path, faults: Sequence[Planned], code: str = PASSES) -> subprocess.Popen[str]:
    """A process that stands for a rank; its output and what it says of an exception can be read."""
    given = {name: str(path) for name, path in places(folder).items()} | {"token": OWN_TOKEN}
    words = [sys.executable, "-c", code, json.dumps(given | {"planned": [fault.to_json() for fault in faults]})]
    env = os.environ | {TOKEN: OWN_TOKEN, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def record(folder: Path, id_: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "faults" / f"{id_}.json").read_text())
    return found


def until(condition: Callable[[], bool], patience_s: float = 60.0) -> None:
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.01)


def run(*given: Given, interval: Any = 10, keep: int = 2, arm: str = "nvrx_async", **more: Any) -> Run:
    """A resolved configuration of 2 nodes of 3 ranks with these faults; `more`: fields of bench.config.Faults."""
    faults = FaultsConfig(given=list(given), **{"per_launch": 3} | more)
    made = Run(num_nodes=2, ranks_per_node=3, checkpoint=Checkpoint(arms=[arm], interval=interval, keep=keep))
    design = replace(made.design, name="recovery")
    return replace(made, design=design, recovery=Recovery(layers=["none"]), faults=faults)
