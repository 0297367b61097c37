"""The end of processes that are nobody's children here, seen by pidfd."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.node.gone import GoneWatch, Known
from bench.record import Recorder, process_start_ticks


@pytest.fixture
def watch(tmp_path):
    (tmp_path / "events").mkdir()
    recorder = Recorder(tmp_path, role="runner", node=0, local_rank=-1)
    made = GoneWatch(tmp_path / "events", recorder)
    yield made
    made.close()
    recorder.close()


def gone(watch: GoneWatch) -> list[dict[str, object]]:
    events = [json.loads(line) for line in watch.recorder.path.read_text().splitlines()]
    return [event for event in events if event.get("name") == "gone"]


def announce(watch: GoneWatch, pid: int, started: int, role: str = "worker") -> None:
    (watch.events_dir / f"{role}-n0-r1-{pid}-{started}.jsonl").touch()


def test_a_living_process_is_followed_and_recorded_when_it_has_ended(watch):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = process_start_ticks(process.pid)
    announce(watch, process.pid, started, "writer")
    watch.look()
    assert gone(watch) == []
    process.communicate(b"\n")
    watch.look()
    watch.look()
    (event,) = gone(watch)
    assert (event["role"], event["local_rank"], event["pid"], event["pid_start"]) == ("writer", 1, process.pid, started)


def test_a_process_whose_pid_now_belongs_to_another_one_is_gone(watch):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    announce(watch, process.pid, process_start_ticks(process.pid) - 1)
    watch.look()
    assert [event["pid"] for event in gone(watch)] == [process.pid]
    process.communicate(b"\n")


def test_a_process_that_ended_before_anybody_looked_is_gone(watch):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    announce(watch, process.pid, 1)
    watch.look()
    assert len(gone(watch)) == 1


@pytest.mark.parametrize("reason", [errno.ENOSYS, errno.EPERM, errno.EMFILE])
def test_a_living_process_that_cannot_be_followed_is_looked_at_until_it_has_ended(watch, monkeypatch, reason):
    def refuse(pid):
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    announce(watch, process.pid, process_start_ticks(process.pid))
    for _ in range(2):
        watch.look()
    assert (gone(watch), watch.nobody_works) == ([], False)
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and waits to be reaped
    watch.look()
    watch.look()
    assert [event["pid"] for event in gone(watch)] == [process.pid]
    assert watch.nobody_works
    process.wait()


def test_a_process_that_cannot_be_looked_at_now_is_not_taken_for_gone(watch, monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    announce(watch, process.pid, process_start_ticks(process.pid))

    def no_descriptor(pid):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("bench.node.gone.process_start_ticks", no_descriptor)
    watch.look()
    assert gone(watch) == []
    monkeypatch.undo()
    process.communicate(b"\n")
    watch.look()
    assert len(gone(watch)) == 1


def test_event_files_of_runners_are_nobodys_end(watch):
    (watch.events_dir / "runner-n0-r-1-1-1.jsonl").touch()
    watch.look()
    assert gone(watch) == []


def test_the_identity_of_a_process_is_in_the_name_of_its_file():
    assert Known.of(Path("worker-n3-r7-4711-99.jsonl")) == Known("worker", 7, 4711, 99)


@pytest.mark.parametrize(("last", "complete"), [("measured_end", True), ("caught", False)])
def test_the_job_is_complete_when_its_last_worker_had_come_to_the_end(watch, last, complete):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = process_start_ticks(process.pid)
    path = watch.events_dir / f"worker-n0-r1-{process.pid}-{started}.jsonl"
    path.write_text(json.dumps({"kind": "instant", "name": last}, separators=(",", ":")) + "\n")
    watch.look()
    assert (watch.job_complete, watch.nobody_works) == (False, False)
    process.communicate(b"\n")
    watch.look()
    assert (watch.job_complete, watch.nobody_works) == (complete, True)
