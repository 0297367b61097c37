"""A store of known speed: what is measured on it is its speed, and nothing of it is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from bench.checkpoint import throttled
from bench.checkpoint.probe import write_once
from tests.whole_runs import carried_through

LIMIT_BYTES_PER_S = 60 << 20
ROOT = Path(__file__).resolve().parents[2]
unavailable = throttled.refusal()
needs_rights = pytest.mark.skipif(unavailable is not None, reason=f"a limited store {unavailable}")


@needs_rights
def test_plain_synced_writes_meet_the_limit_within_a_tenth(tmp_path: Path) -> None:
    size = 64 << 20
    with throttled.throttled(tmp_path / "store", 2 * size, LIMIT_BYTES_PER_S) as store:
        writes = [write_once(store / "file", size, True) for _ in range(4)]
    seconds = median(t1 - t0 for t0, t1 in writes[1:])  # as the probe does: the first write finds the store cold
    assert size / seconds == pytest.approx(LIMIT_BYTES_PER_S, rel=0.1)


def fail_on(store: Path) -> None:
    with throttled.throttled(store, 8 << 20, LIMIT_BYTES_PER_S):
        assert str(store) in Path("/proc/self/mounts").read_text()
        raise RuntimeError("in the middle")


@needs_rights
def test_nothing_is_left_also_after_an_error(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with pytest.raises(RuntimeError, match="in the middle"):
        fail_on(store)
    assert str(store) not in Path("/proc/self/mounts").read_text()
    assert not list(throttled.BACKING.glob("bench-store-*.img"))


@needs_rights
def test_a_store_whose_driver_was_killed_is_taken_down_by_the_next_one(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib; from bench.checkpoint.throttled import throttled\n"
        f"with throttled(pathlib.Path(sys.argv[1]), 8 << 20, {LIMIT_BYTES_PER_S}): os._exit(1)"
    )
    killed = tmp_path / "killed"
    subprocess.run([sys.executable, "-c", code, str(killed)], cwd=ROOT, check=False, timeout=60)
    assert str(killed) in Path("/proc/self/mounts").read_text()
    throttled.clear_leftovers()
    assert str(killed) not in Path("/proc/self/mounts").read_text()
    assert not list(throttled.BACKING.glob("bench-store-*.img"))


@needs_rights
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_on_it_finds_its_speed_and_what_asynchronous_saves_hide(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "run", "scenario=aws_scaled", "launches=1", "cycles=4"]
    command += [f"results_dir={tmp_path}", f"work_dir={tmp_path / 'work'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    assert carried_through(done.returncode, tmp_path / "latest"), done.stdout + done.stderr
    summary = json.loads((tmp_path / "latest" / "summary.json").read_text())
    arms = {arm["name"]: arm for arm in summary["arms"]}
    assert summary["probe_bytes_per_s"]["median"] == pytest.approx(LIMIT_BYTES_PER_S, rel=0.1)
    assert arms["sync_local"]["write_bytes_per_s"]["median"] == pytest.approx(LIMIT_BYTES_PER_S, rel=0.1)
    assert arms["sync_local"]["limited_by"] == "store"
    assert arms["sync_local"]["share"]["median"] > 0.4
    assert arms["nvrx_async"]["stall_share"]["median"] < 0.1
