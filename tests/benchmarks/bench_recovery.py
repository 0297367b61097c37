"""What the suite adds to a recovery in place: from an exception to the next step, beside the bare library."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
from torch.distributed import TCPStore

from bench.supervise import Supervisor

HERE = Path(__file__).resolve().parent
PAIRS = 6
ADDED_BOUND_S, RATIO_BOUND = 0.1, 1.5
STEPS, AT_STEP = 12, 5
# The bare Wrapper's arguments by the names of the suite's timeouts.
TIMES = {
    "monitor_thread_interval": "in_process_interval_s",
    "heartbeat_interval": "in_process_interval_s",
    "progress_watchdog_interval": "in_process_interval_s",
    "soft_timeout": "soft_s",
    "hard_timeout": "hard_s",
    "heartbeat_timeout": "missing_rank_s",
    "barrier_timeout": "barrier_s",
    "completion_timeout": "completion_s",
    "last_call_wait": "last_call_s",
    "termination_grace_time": "grace_s",
}


def standin() -> ModuleType:
    path = HERE.parent / "recovery" / "standin.py"
    spec = importlib.util.spec_from_file_location("standin", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["standin"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def with_suite(folder: Path, module: ModuleType) -> float:
    """Seconds from the strike to the first step of the last rank, through bench.recovery and with its recorder."""
    settings = {"fault": "exception", "victim": 1, "at_step": AT_STEP, "steps": STEPS}
    outcome = module.StandIn(folder, "in_process", **settings).run()
    assert outcome.finished, outcome.logs
    struck = outcome.named("strike")[0]["t"]
    firsts = {event["pid"]: event["t"] for event in reversed(outcome.named("step")) if event["t"] > struck}
    return max(firsts.values()) - struck


def bare(folder: Path, module: ModuleType) -> float:
    stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(2)]
    times = {name: getattr(module.QUICK, of) for name, of in TIMES.items()}
    times["monitor_process_interval"] = (
        times["monitor_thread_interval"] / 2
    )  # as the suite does: hangs are found late else
    settings = {"base_port": stores[0].port, "wrapper_port": stores[1].port, "folder": str(folder), "times": times}
    settings |= {"steps": STEPS, "at_step": AT_STEP}
    (folder / "bare.json").write_text(json.dumps(settings))
    supervisor = Supervisor()
    env = os.environ | {"BARE": str(folder / "bare.json"), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, str(HERE / "bare_wrapper.py")]
    pids = [supervisor.start(command, env | {"RANK": str(rank)}, folder / f"bare-{rank}.log") for rank in range(2)]
    codes = supervisor.wait(pids, 90.0)
    supervisor.end_all()
    assert list(codes.values()) == [0, 0], (folder / "bare-1.log").read_text()
    struck = float((folder / "strike-1").read_text())
    return max(float((folder / f"first-{rank}").read_text().split()[1]) for rank in range(2)) - struck


def test_a_restart_in_place_costs_little_more_than_the_bare_librarys(bounds, tmp_path):
    module, pairs = standin(), []
    for number in range(PAIRS):
        folders = [tmp_path / f"{number}-{name}" for name in ("suite", "bare")]
        for folder in folders:
            folder.mkdir()
        pairs.append((with_suite(folders[0], module), bare(folders[1], module)))
    with_s, without_s = np.array(pairs).T
    bounds.hold("exception in place, as a multiple of the bare library", list(with_s / without_s), RATIO_BOUND, "x")
    bounds.hold("what the suite adds to it", list(with_s - without_s), ADDED_BOUND_S, "s")
