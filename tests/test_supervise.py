"""Starting and ending processes: complete, and nothing is signalled that was not started."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from bench.record import process_start_ticks
from bench.supervise import TOKEN, Supervisor, descendants, end_recorded, shm_names, with_token

SLEEPER = "import time; print('ready', flush=True); time.sleep(120)"
# Leaves a sleeper in a session of its own, as torch's agents do with their workers, says its pid, and ends.
ORPHAN_MAKER = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEPER!r}], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
"""
# Dies with the process that started it, and says so by closing the pipe.
DIES_WITH_PARENT = f"from bench.supervise import die_with_parent; die_with_parent(); {SLEEPER}"
MORTAL = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {DIES_WITH_PARENT!r}], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture
def supervisor():
    made = Supervisor()
    yield made
    assert made.end_all() == []


@pytest.fixture
def stranger():
    """A process that carries a token and belongs to nobody's launch."""
    child = subprocess.Popen(python(SLEEPER), stdout=subprocess.PIPE, env=os.environ | {TOKEN: "the-token"})
    assert child.stdout.readline() == b"ready\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_exit_codes_are_statuses_and_signals(supervisor, tmp_path):
    codes = {}
    for name, code in (
        ("zero", "pass"),
        ("three", "raise SystemExit(3)"),
        ("killed", "import os; os.kill(os.getpid(), 9)"),
    ):
        codes[supervisor.start(python(code), os.environ, tmp_path / f"{name}.log")] = name
    found = supervisor.wait(list(codes), deadline_s=30)
    assert {codes[pid]: code for pid, code in found.items()} == {"zero": 0, "three": 3, "killed": -signal.SIGKILL}


def test_both_outputs_of_a_process_go_to_its_log_and_the_log_is_appended_to(supervisor, tmp_path):
    log = tmp_path / "deep" / "rank.log"
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    for _ in range(2):
        supervisor.wait([supervisor.start(python(code), os.environ, log)], deadline_s=30)
    assert log.read_text() == "out\nerr\n" * 2


def test_a_process_gets_the_environment_and_the_folder_it_was_given_and_no_input(supervisor, tmp_path):
    code = "import os, sys; print(os.environ['ONE'], os.getcwd(), repr(sys.stdin.read()))"
    pid = supervisor.start(python(code), os.environ | {"ONE": "1"}, tmp_path / "log", cwd=tmp_path)
    assert supervisor.wait([pid], deadline_s=30) == {pid: 0}
    assert (tmp_path / "log").read_text().split() == ["1", str(tmp_path), "''"]


def test_waiting_ends_at_its_deadline_and_leaves_out_what_still_runs(supervisor, tmp_path):
    quick = supervisor.start(python("pass"), os.environ, tmp_path / "log")
    slow = supervisor.start(python(SLEEPER), os.environ, tmp_path / "log")
    assert supervisor.wait([quick], deadline_s=30) == {quick: 0}
    assert supervisor.wait([slow], deadline_s=0.05) == {}


def test_an_orphan_in_a_session_of_its_own_is_adopted_and_ended(supervisor, tmp_path):
    maker = supervisor.start(python(ORPHAN_MAKER), os.environ, tmp_path / "log")
    assert supervisor.wait([maker], deadline_s=30) == {maker: 0}
    orphan = int((tmp_path / "log").read_text())
    assert psutil.Process(orphan).ppid() == os.getpid()
    assert os.getsid(orphan) == orphan
    assert supervisor.end_all() == []
    assert not psutil.pid_exists(orphan)


def test_a_stopped_process_is_ended_too(supervisor, tmp_path):
    pid = supervisor.start(python(SLEEPER), os.environ, tmp_path / "log")
    os.kill(pid, signal.SIGSTOP)
    assert supervisor.end_all() == []
    assert not psutil.pid_exists(pid)


def test_adopted_orphans_are_reaped_and_reported(supervisor, tmp_path):
    maker = supervisor.start(python(ORPHAN_MAKER), os.environ, tmp_path / "log")
    supervisor.wait([maker], deadline_s=30)
    orphan = int((tmp_path / "log").read_text())
    os.kill(orphan, signal.SIGTERM)
    assert supervisor.wait([orphan], deadline_s=30) == {orphan: -signal.SIGTERM}


def test_children_that_were_there_before_are_left_alone(stranger, tmp_path):
    supervisor = Supervisor()
    own = supervisor.start(python(SLEEPER), os.environ, tmp_path / "log")
    assert supervisor.end_all() == []
    assert not psutil.pid_exists(own)
    assert stranger.poll() is None


def test_a_process_that_dies_with_its_parent_does_so(tmp_path):
    parent = subprocess.Popen(python(MORTAL), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    assert child.wait(timeout=10) is not None or not child.is_running()
    parent.stdout.close()
    parent.stdin.close()


def test_descendants_are_found_at_any_depth(supervisor, tmp_path):
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEPER!r}])"
    parent = supervisor.start(python(nested), os.environ, tmp_path / "log")
    deadline = time.monotonic() + 30
    while "ready" not in (tmp_path / "log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    below = descendants(parent)
    assert len(below) == 1
    assert descendants(os.getpid())[: len(below) + 1].count(parent) == 1


def test_processes_are_found_by_the_whole_token(stranger):
    assert with_token("the-token") == [stranger.pid]
    assert with_token("the-tok") == []


@pytest.mark.parametrize(("wrong_by", "token"), [(1, "the-token"), (0, "another-token"), (0, "the-tok")])
def test_a_recorded_process_is_not_signalled_when_start_time_or_token_differ(stranger, wrong_by, token):
    assert not end_recorded(stranger.pid, process_start_ticks(stranger.pid) + wrong_by, token)
    assert stranger.poll() is None


def test_a_recorded_process_is_ended_when_all_three_agree(stranger):
    assert end_recorded(stranger.pid, process_start_ticks(stranger.pid), "the-token")
    assert stranger.wait(timeout=10) == -signal.SIGKILL


def test_a_recorded_process_that_is_gone_is_nobodys():
    child = subprocess.Popen(python("pass"))
    child.wait()
    assert not end_recorded(child.pid, 1, "the-token")


HOLD_SEMAPHORE = """
import multiprocessing, time
lock = multiprocessing.get_context("spawn").Lock()
name = lock._semlock.name
print(name, flush=True)
time.sleep(120)
"""


def test_a_killed_process_leaves_no_semaphore_of_its_own_in_shared_memory(tmp_path: Path) -> None:
    supervisor, log = Supervisor(), tmp_path / "log"
    supervisor.start([sys.executable, "-c", HOLD_SEMAPHORE], os.environ, log)
    deadline = time.monotonic() + 20
    while not log.read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    semaphore = Path("/dev/shm") / f"sem.{log.read_text().strip().removeprefix('/')}"
    assert semaphore.exists()
    assert supervisor.end_all() == []
    assert not semaphore.exists()


LEAKY = """
import multiprocessing, time
semaphore = multiprocessing.get_context("spawn").Semaphore()
print(semaphore._semlock.name, flush=True)
time.sleep(120)
"""


def test_semaphores_of_killed_processes_are_removed_from_shared_memory(supervisor, tmp_path):
    supervisor.start(python(LEAKY), os.environ, tmp_path / "log")
    deadline = time.monotonic() + 30
    while not (tmp_path / "log").exists() or not (tmp_path / "log").read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    name = Path("/dev/shm", "sem." + (tmp_path / "log").read_text().split()[0].lstrip("/"))
    assert name.exists()
    assert supervisor.end_all() == []
    assert not name.exists()


def test_shared_memory_that_others_still_use_is_left_alone(supervisor, tmp_path):
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="bench-test-") as shared:
        shared.write(b"x" * 4096)
        shared.flush()
        code = f"import mmap, time; f = open({shared.name!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, access=1); {SLEEPER}"
        child = supervisor.start(python(code), os.environ, tmp_path / "log")
        deadline = time.monotonic() + 30
        while shm_names([child]) != {shared.name}:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with mmap.mmap(shared.fileno(), 0):
            assert supervisor.end_all() == []
        assert Path(shared.name).exists()
