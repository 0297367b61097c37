"""The record of a fault: one of many claimants gets it, and it tells when the fault acted."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from bench.faults import claim as module
from bench.faults.claim import amend, claim, claimed, record_of, records
from tests.faults.made import ROOT, planned

COUNT = 40
# Both wait for the start at once, then run for the same records in the same order; each says which ones it got.
RACER = f"""
import sys
from pathlib import Path
from bench.faults.base import Planned
from bench.faults.claim import claim, record_of
print("ready", flush=True)
sys.stdin.readline()
faults = [Planned(f"{{i}}-sigkill", "sigkill", "step", 1, 0, 0) for i in range({COUNT})]
print([p.id for p in faults if claim(Path(sys.argv[1]), record_of(p, 1, 0, (1, 1), "rank", {{}}))])
"""


def made(id_: str = "0-sigkill", **details: object) -> dict:
    return record_of(planned("sigkill", id_), step=7, rank=3, process=(12, 34), actor="rank", details=details)


def test_a_record_says_what_struck_whom_where_and_when(tmp_path):
    before = module.clock()
    assert claim(tmp_path, made(flag="x"))
    found = json.loads((tmp_path / "0-sigkill.json").read_text())
    assert before <= found.pop("mono") <= module.clock()
    assert found.pop("wall") > 1e9
    place = {"step": 7, "node": 0, "local_rank": 0, "rank": 3, "pid": 12, "pid_start": 34}
    about = {"id": "0-sigkill", "kind": "sigkill", "at": "step", "actor": "rank", "details": {"flag": "x"}}
    assert found == place | about


def test_a_fault_is_claimed_once_and_the_first_record_stays(tmp_path):
    assert claim(tmp_path, made())
    first = (tmp_path / "0-sigkill.json").read_text()
    assert not claim(tmp_path, made())
    assert (tmp_path / "0-sigkill.json").read_text() == first
    assert claimed(tmp_path) == {"0-sigkill"}


def test_of_two_racing_processes_exactly_one_gets_each_fault(tmp_path):
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", RACER, str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    racers = [subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    got = [json.loads(racer.communicate(timeout=60)[0].replace("'", '"')) for racer in racers]
    assert sorted(got[0] + got[1]) == sorted(f"{i}-sigkill" for i in range(COUNT))


def test_record_and_folder_are_synced_before_the_claimant_may_act_and_the_stamp_comes_after(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(module.os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
    times = iter((1.0, 2.0, 3.0))
    monkeypatch.setattr(module, "clock", lambda: next(times))
    assert claim(tmp_path, made())
    assert synced == [str(tmp_path / "0-sigkill.json"), str(tmp_path)]
    assert json.loads((tmp_path / "0-sigkill.json").read_text())["mono"] == 3.0


def test_a_later_stamp_with_more_digits_leaves_a_whole_record(tmp_path, monkeypatch):
    times = iter((1.0, 1.0, 123456.78901234))
    monkeypatch.setattr(module, "clock", lambda: next(times))
    assert claim(tmp_path, made())
    assert json.loads((tmp_path / "0-sigkill.json").read_text())["mono"] == 123456.78901234


def test_a_store_that_refuses_leaves_the_fault_unclaimed(tmp_path, monkeypatch):
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        claim(tmp_path, made())
    assert claimed(tmp_path) == set()


def test_what_is_found_out_later_is_added_to_the_details(tmp_path):
    claim(tmp_path, made("0-oom_host", cgroup="c"))
    amend(tmp_path, "0-oom_host", oom_kill=1)
    assert records(tmp_path)[0]["details"] == {"cgroup": "c", "oom_kill": 1}
    assert os.listdir(tmp_path) == ["0-oom_host.json"]


def test_a_record_left_empty_is_claimed_but_tells_nothing(tmp_path):
    (tmp_path / "0-sigkill.json").touch()
    assert not claim(tmp_path, made())
    assert records(tmp_path) == []


def test_where_no_fault_was_planned_none_is_claimed(tmp_path):
    assert claimed(tmp_path / "missing") == set()
