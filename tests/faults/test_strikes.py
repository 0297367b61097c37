"""Real strikes on real processes: each ends, hangs or goes on just as its name says, and is on record."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from bench.faults import create
from bench.faults.base import Missed, unhealthy_flag
from bench.faults.victims import writers
from bench.record import process_start_ticks
from tests.faults.made import OWN_TOKEN, RANK, ended, planned, rank, record, scene, until

# A thread of the rank raises an exception in its training thread, as in-process recovery does, 0.2 s after it hangs.
INTERRUPTED = f"""{RANK}
import ctypes
class Restart(Exception): pass
def restart(thread):
    until = time.monotonic() + 60
    while not any(Path(given["faults_dir"]).iterdir()) and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.2)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Restart))
threading.Thread(target=restart, args=(threading.get_ident(),), daemon=True).start()
begin = time.monotonic()
try:
    reach()
    time.sleep(0.01)
except Restart:
    print("restarted", time.monotonic() - begin)
"""

# A thread of the rank measures the longest time for which no thread of the interpreter could run.
WATCHED = f"""{RANK}
longest, over = 0.0, threading.Event()
def watch():
    global longest
    last = time.monotonic()
    while not over.is_set():
        time.sleep(0.001)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
thread = threading.Thread(target=watch)
thread.start()
reach()
over.set()
thread.join()
print(longest)
"""

# A rank with a writer that has opened its event file; it tells the writer's pid.
WITH_WRITER = f"""{RANK}
import subprocess
writer = '''
import sys, time
from pathlib import Path
from bench.record import Recorder
Recorder(Path(sys.argv[1]), role="writer", node=0, local_rank=int(sys.argv[2]))
print("ready", flush=True)
time.sleep(100)
'''
def start(slot):
    words = [sys.executable, "-c", writer, given["requests_dir"], slot]
    started = subprocess.Popen(words, stdout=subprocess.PIPE)
    started.stdout.readline()
    return started
other, own = start("1"), start("0")
reach()
print(own.wait(timeout=60), other.poll(), own.pid, flush=True)
other.kill()
other.wait()
"""


@pytest.mark.parametrize(
    ("kind", "code"), [("sigkill", -signal.SIGKILL), ("sigterm", -signal.SIGTERM), ("segfault", -signal.SIGSEGV)]
)
def test_a_process_that_is_killed_is_gone_with_its_signal(tmp_path, kind, code):
    process = rank(tmp_path, [planned(kind)])
    assert ended(process)[:2] == (code, "")
    found = record(tmp_path, f"0-{kind}")
    assert (found["pid"], found["step"], found["node"], found["local_rank"]) == (process.pid, 7, 0, 0)


def test_a_segmentation_fault_leaves_no_core_file(tmp_path):
    code = f"import os, resource\nos.chdir({str(tmp_path)!r})\n{RANK}\n"
    code += "hard = resource.getrlimit(resource.RLIMIT_CORE)[1]\n"
    code += "resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))\nreach()\n"
    process = rank(tmp_path, [planned("segfault")], code)
    _, status = os.waitpid(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.communicate()
    assert process.returncode == -signal.SIGSEGV
    assert not os.WCOREDUMP(status)


def test_an_exception_names_itself_and_the_rank(tmp_path):
    code, out, err = ended(rank(tmp_path, [planned("exception")]))
    assert (code, out) == (1, "")
    assert err.rstrip().endswith("InjectedFault: injected exception 0-exception on rank 3")


def test_the_start_time_on_record_is_that_of_the_process(tmp_path):
    process = rank(tmp_path, [planned("os_hang")])
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    assert record(tmp_path, "0-os_hang")["pid_start"] == process_start_ticks(process.pid)
    process.kill()
    ended(process)


def test_a_stopped_process_outlives_sigterm_and_ends_with_sigkill(tmp_path):
    process = rank(tmp_path, [planned("os_hang")])
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    process.send_signal(signal.SIGTERM)
    assert psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    process.kill()
    assert ended(process)[:2] == (-signal.SIGKILL, "")


def test_a_hang_of_short_waits_ends_with_an_exception_from_another_thread(tmp_path):
    word, seconds = ended(rank(tmp_path, [planned("collective_hang")], INTERRUPTED))[1].split()
    assert word == "restarted"
    assert 0.2 <= float(seconds) < 30


def test_one_long_wait_does_not_and_the_exception_comes_when_it_is_over(tmp_path):
    fault = planned("collective_hang", options={"interruptible": False, "seconds": 2.0})
    word, seconds = ended(rank(tmp_path, [fault], INTERRUPTED))[1].split()
    assert word == "restarted"
    assert float(seconds) >= 2.0


def test_a_hang_of_given_length_is_over_after_it(tmp_path):
    fault = planned("collective_hang", options={"seconds": 0.3})
    assert ended(rank(tmp_path, [fault]))[:2] == (0, "went on\n")


def test_while_the_interpreters_lock_is_held_no_other_thread_runs(tmp_path):
    longest = float(ended(rank(tmp_path, [planned("gil_lock", options={"seconds": 1.0})], WATCHED))[1])
    assert longest >= 0.99


def test_a_hung_thread_alone_lets_the_others_run(tmp_path):
    fault = planned("collective_hang", options={"interruptible": False, "seconds": 3.0})
    assert float(ended(rank(tmp_path, [fault], WATCHED))[1]) < 2.0


def test_a_slow_rank_goes_on(tmp_path):
    begin = time.monotonic()
    fault = planned("slow_rank", options={"seconds": 0.2, "steps": 1})
    assert ended(rank(tmp_path, [fault]))[:2] == (0, "went on\n")
    assert time.monotonic() - begin >= 0.2


def test_a_failed_health_check_leaves_a_flag_for_the_layer_until_it_is_undone(tmp_path):
    code, _, err = ended(rank(tmp_path, [planned("health_check_failure")]))
    assert (code, "InjectedFault" in err) == (1, True)
    flag = unhealthy_flag(tmp_path / "requests", 0, 0)
    assert flag.read_text().isdigit()
    assert scene(tmp_path).unhealthy == flag
    for _ in range(2):
        assert create("health_check_failure").undo(record(tmp_path, "0-health_check_failure")) == {}
        assert not flag.exists()


def test_of_the_writers_the_one_of_the_own_rank_is_killed_and_nobody_else(tmp_path):
    own, other, pid = ended(rank(tmp_path, [planned("writer_killed")], WITH_WRITER))[1].split()
    assert (own, other) == (str(-signal.SIGKILL), "None")
    assert record(tmp_path, "0-writer_killed")["details"]["writer_pid"] == int(pid)


def test_a_writer_with_another_token_or_start_time_is_nobodys(tmp_path):
    process = rank(tmp_path, [planned("os_hang")])
    until((tmp_path / "faults" / "0-os_hang.json").exists)
    started = process_start_ticks(process.pid)
    fault = create("writer_killed")
    for pid_start, token in ((started + 1, OWN_TOKEN), (started, "another")):
        place = scene(tmp_path, token=token)
        with pytest.raises(Missed):
            fault.strike(planned("writer_killed"), place, {"writer_pid": process.pid, "writer_pid_start": pid_start})
    assert process.poll() is None
    process.kill()
    ended(process)


def test_event_files_of_the_dead_and_of_strangers_are_no_writers(tmp_path):
    own = process_start_ticks()
    for pid, start in ((os.getpid(), own), (os.getppid(), process_start_ticks(os.getppid())), (999_999_999, 1)):
        Path(tmp_path, f"writer-n0-r0-{pid}-{start}.jsonl").touch()
    assert writers(tmp_path, 0, 0) == []
