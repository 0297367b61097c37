"""What a report of a large result costs: 64 slots of 20,000 events each, read, accounted and made into report.html."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.schema import SCHEMA_VERSION
from tests.measure.streams import File, Scenario, run_json, simulate

ROOT = Path(__file__).resolve().parents[2]
NODES, RANKS_PER_NODE, EVENTS = 8, 8, 20_000
REPORT_BOUND_S, ACCOUNT_BOUND_S, MEMORY_BOUND_MB = 60.0, 10.0, 2000.0
LINEAR = 1.5  # over the quarter, per event; quadratic growth would be 4
MODEL = {"target": None, "dim": 64, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_dim": 128, "vocab_size": 256}
TRAIN = {"compute": "real", "step_s": None, "batch_size": 2, "seq_len": 64, "compute_dtype": "auto"}
SCENARIO = Scenario(nodes=NODES, ranks_per_node=RANKS_PER_NODE, control_steps=40, probe_bytes_per_s=1e9)

# Runs one step and says how long it took and what the process needed at its peak (VmHWM, MB).
MEASURED = """
import sys, time
from pathlib import Path
import bench.report.html, bench.report.series  # loading modules is no part of the work
from bench.measure.accounted import Accounted
from bench.measure.events import read_launches
from bench.results import ResultFolder
folder, what = Path(sys.argv[1]), sys.argv[2]
launches = read_launches(folder / "launches") if what == "account" else []

def once():
    begin, cpu = time.perf_counter(), time.process_time()
    if what == "account":
        Accounted.of(ResultFolder(folder).read_run(), launches)
    else:
        code = bench.report.series.report([f"run={folder}", f"out={folder / 'out'}"])
        assert code in (0, 1), code
    return time.perf_counter() - begin, time.process_time() - cpu

took, worked = min(once() for _ in range(int(sys.argv[3])))
peak_kb = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print("cost", took, worked, int(peak_kb) * 1024 / 1e6)
"""


def write_large(folder: Path, events: int) -> Path:
    """A result of one launch. All slots record the same: one is played, and its lines are written for every slot."""
    one = replace(SCENARIO, nodes=1, ranks_per_node=1, cycles=4)
    few, more = (len(simulate(replace(one, cycles=cycles)).workers[0].events) for cycles in (4, 8))
    whole = replace(one, cycles=4 + round(4 * (events - few) / (more - few)))
    job = simulate(whole)
    assert abs(len(job.workers[0].events) / events - 1) < 0.03
    launch = folder / "launches" / "1"
    (launch / "events").mkdir(parents=True)
    (launch / "launch.json").write_text(json.dumps(whole.launch()))
    for node in range(NODES):
        copy(job.runners[0], launch, node, -1)
        for local_rank in range(RANKS_PER_NODE):
            copy(job.workers[0], launch, node, local_rank)
            copy(job.writers[0], launch, node, local_rank)
    run = run_json(SCENARIO, model=MODEL, train=TRAIN, device="cpu")
    (folder / "run.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION} | run))
    return folder


def copy(file: File, launch: Path, node: int, local_rank: int) -> None:
    """The events of a file as those of another slot: only its first line says whose they are."""
    first, rest = file.text().split("\n", 1)
    rank = node * RANKS_PER_NODE + local_rank if local_rank >= 0 else -1
    world_size = NODES * RANKS_PER_NODE
    identity = {"node": node, "local_rank": local_rank, "rank": rank, "world_size": world_size, "pid": 100 + rank}
    meta = json.loads(first) | identity
    path = launch / "events" / f"{meta['role']}-n{node}-r{local_rank}-{meta['pid']}-7.jsonl"
    path.write_text(json.dumps(meta) + "\n" + rest)


def cost_of(folder: Path, what: str, repeats: int = 1) -> tuple[float, float, float]:
    """Seconds, CPU seconds and MB of "report" (folder to report.html) or "account" (once read); the quickest."""
    command = [sys.executable, "-c", MEASURED, str(folder), what, str(repeats)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    _, seconds, worked_s, peak_mb = done.stdout.splitlines()[-1].split()
    return float(seconds), float(worked_s), float(peak_mb)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large(tmp_path_factory.mktemp("large") / "result", EVENTS)


@pytest.mark.timeout(600)
def test_a_large_result_is_reported_within_a_minute_and_two_gigabytes(large, bounds):
    seconds, _, peak_mb = cost_of(large, "report")
    bounds.hold("bench report, 64 slots x 20,000 events", [seconds], REPORT_BOUND_S, "s")
    bounds.hold("its memory at its peak", [peak_mb], MEMORY_BOUND_MB, "MB")


@pytest.mark.timeout(600)
def test_accounting_takes_seconds_and_grows_with_the_events(large, tmp_path, bounds):
    seconds, worked_s, _ = cost_of(large, "account", repeats=3)
    bounds.hold("accounting for them, once read", [seconds], ACCOUNT_BOUND_S, "s")
    _, quarter_s, _ = cost_of(write_large(tmp_path / "quarter", EVENTS // 4), "account", repeats=3)
    bounds.hold(
        "CPU time of it over 4 x that of a quarter of the events", [worked_s / (4 * quarter_s)], LINEAR, "times"
    )
