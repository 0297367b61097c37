"""What srun starts on a node: how nodes find each other, and what node 0 puts on record."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.errors import BadInput
from bench.launch import slurm_task
from bench.launch.slurm_task import NoMeeting, Task
from bench.occasions import PROVISIONAL
from bench.results import ResultFolder

VARIABLES = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}


@pytest.fixture
def folder(tmp_path) -> ResultFolder:
    made = ResultFolder(tmp_path / "result")
    (made.path / "launches").mkdir(parents=True)
    launches = [{"index": index} for index in range(3)]
    made.write_run(
        {
            "config": {},
            "token": "0123456789abcdef",
            "environment": {"machine": "cluster", "device": "cpu", "cpus": -1, PROVISIONAL: True},
            "occasions": [{"started": 1.0, "launches": [{"index": 9}]}, {"started": 2.0, "launches": launches}],
        }
    )
    return made


def task(**changed: str) -> Task:
    return Task.of(VARIABLES | changed)


# --- who am I
def test_a_task_knows_its_node_and_its_start_from_slurms_variables():
    found = task(SLURM_RESTART_COUNT="2")
    assert (found.node, found.num_nodes, found.job, found.step, found.restarts) == (1, 2, "7", "0", 2)


def test_every_start_of_a_job_and_every_step_of_an_allocation_has_its_own_meeting():
    starts = [task(), task(SLURM_RESTART_COUNT="1"), task(SLURM_STEP_ID="1"), task(SLURM_JOB_ID="8")]
    assert len({each.meeting for each in starts}) == 4
    assert task(SLURM_PROCID="0").meeting == task(SLURM_PROCID="1").meeting


# --- where is node 0
def test_the_others_find_what_node_zero_has_left(tmp_path):
    meeting = tmp_path / "slurm" / "meeting.json"
    host, port = slurm_task.open_meeting(meeting, 2, ["127.0.0.1"])
    assert slurm_task.join_meeting(meeting) == (host, port) == ("127.0.0.1", port)
    with socket.create_server(("127.0.0.1", port)):
        pass  # it can be listened on


def test_the_others_wait_for_node_zero_and_then_say_what_may_be_wrong(tmp_path):
    meeting, looks = tmp_path / "slurm" / "meeting.json", []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            slurm_task.open_meeting(meeting, 1, [])

    slurm_task.join_meeting(meeting, clock=lambda: float(len(looks)), pause=pause)
    assert len(looks) == 3
    with pytest.raises(NoMeeting, match=r"nothing of node 0 .* all nodes share\? give results_dir=PATH"):
        slurm_task.join_meeting(tmp_path / "other.json", clock=lambda: 200.0 * len(looks), pause=looks.append)


def test_a_port_that_is_taken_is_passed_over():
    with socket.create_server(("", 0)) as taken, socket.create_server(("", 0)) as also_taken:
        ports = [taken.getsockname()[1], also_taken.getsockname()[1]]
        free = slurm_task.free_port()
        assert free not in ports
        assert slurm_task.free_port([*ports, free]) == free
        with pytest.raises(NoMeeting, match=r"no port of \d+ to \d+ is free"):
            slurm_task.free_port(ports)


def test_a_chosen_port_is_not_one_that_an_outgoing_connection_could_take_meanwhile():
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert slurm_task.free_port() < lowest


@pytest.mark.parametrize(
    ("sources", "address"),
    [
        ({"n1": "127.0.0.1", "n2": "10.0.0.1"}, "10.0.0.1"),  # its own name leads to itself only
        ({"n1": "10.0.0.1", "n2": "10.0.0.1"}, "10.0.0.1"),
        ({"127.0.0.1": "127.0.0.1"}, "127.0.0.1"),  # all nodes on one machine
        ({"n1": None, "n2": "10.0.0.1"}, "10.0.0.1"),
    ],
)
def test_node_zeros_address_is_the_one_from_which_it_reaches_the_others(sources, address, monkeypatch):
    monkeypatch.setattr(slurm_task, "source_towards", sources.get)
    assert slurm_task.own_address(list(sources)) == address


def test_nodes_that_cannot_be_resolved_are_an_error_and_never_taken_for_this_machine():
    with pytest.raises(NoMeeting, match=r"no address of a node can be resolved \(no\.such\.host\.invalid\)"):
        slurm_task.own_address(["no.such.host.invalid"])
    with pytest.raises(NoMeeting, match="scontrol named none"):
        slurm_task.own_address([])


def test_the_route_to_this_machine_starts_at_it():
    assert slurm_task.source_towards("127.0.0.1") == "127.0.0.1"


# --- the record
def begun(folder: ResultFolder, **variables: str) -> dict[str, Any]:
    given = VARIABLES | variables
    slurm_task.begin(folder, Task.of(given), folder.path, given)
    return folder.read_run()


def test_the_machine_on_record_is_a_node_and_no_longer_the_one_that_submitted(folder):
    run = begun(folder, SLURM_STEP_NODELIST="n[1-2]", SLURM_JOB_PARTITION="gpu")
    assert run["environment"]["cpus"] == len(os.sched_getaffinity(0))
    assert (run["environment"]["machine"], run["environment"]["device"]) == ("cluster", "cpu")
    assert run["engine"] == {"name": "slurm", "job": "7", "restarts": 0, "nodes": "n[1-2]", "partition": "gpu"}


def with_environment(folder: ResultFolder, **environment: Any) -> None:
    folder.write_run(folder.read_run() | {"environment": {"machine": "cluster", "device": "cpu"} | environment})


def test_another_occasion_has_an_environment_of_its_own_beside_its_launches(folder):
    with_environment(folder, cpus=-1)
    run = begun(folder)
    assert run["environment"]["cpus"] == -1
    assert run["occasions"][-1]["environment"]["cpus"] == len(os.sched_getaffinity(0))
    assert run["occasions"][-1]["environment"]["machine"] == "cluster"


def test_a_job_with_other_software_than_the_result_s_is_refused_and_one_that_slurm_starts_again_goes_on(folder):
    with_environment(folder, versions={"torch": "0.1"})
    with pytest.raises(BadInput, match=r"environment: .* another torch \(0\.1, now "):
        begun(folder)
    assert begun(folder, SLURM_RESTART_COUNT="1")["occasions"][-1]["starts"] == 2


def test_the_budget_runs_from_the_jobs_start_and_not_from_its_submission(folder, monkeypatch):
    monkeypatch.setattr(slurm_task.time, "time", lambda: 5000.0)
    occasions = begun(folder)["occasions"]
    assert [each["started"] for each in occasions] == [1.0, 5000.0]


def test_a_requeued_job_has_used_what_its_finished_launches_took(folder, monkeypatch):
    monkeypatch.setattr(slurm_task.time, "time", lambda: 5000.0)
    folder.write_launch(0, {"started": 100.0, "ended": 130.0, "status": "ok"})
    folder.write_launch(1, {"started": 130.0, "status": "running"})
    folder.write_launch(9, {"started": 1.0, "ended": 99.0, "status": "ok"})  # of another occasion
    assert begun(folder, SLURM_RESTART_COUNT="1")["occasions"][-1]["started"] == 4970.0


def test_the_job_s_starts_are_counted_for_launches_that_go_on_in_the_next(folder):
    assert begun(folder)["occasions"][-1]["starts"] == 1
    assert begun(folder, SLURM_RESTART_COUNT="2")["occasions"][-1]["starts"] == 3


def test_a_job_in_the_queue_uses_up_no_budget(folder, monkeypatch):
    monkeypatch.setattr(slurm_task.time, "time", lambda: 5000.0)
    waits = {"started": 130.0, "status": "relaunching", "relaunches": [{"asked": 150.0, "start": 1}]}
    folder.write_launch(0, waits)
    assert begun(folder, SLURM_RESTART_COUNT="1")["occasions"][-1]["started"] == 4980.0


def test_the_end_of_the_job_is_on_record_with_the_time_to_close(folder):
    assert begun(folder, SLURM_JOB_END_TIME="9000")["occasions"][-1]["ends_by"] == 8880
    assert "ends_by" not in begun(folder, SLURM_JOB_END_TIME="")["occasions"][0]


# --- the runner
def given(**changed: Any) -> argparse.Namespace:
    paths = {
        "result": Path("/shared/result"),
        "checkpoint_dir": Path("/shared/checkpoints"),
        "work_base": Path("/nvme"),
    }
    return argparse.Namespace(**{**paths, "device": "cpu", "release": False} | changed)


def test_a_runner_is_told_all_that_it_needs_and_dies_with_its_task():
    command = slurm_task.runner(given(), task(), "0123456789abcdef", "10.0.0.1", 20001)
    assert command[:4] == [sys.executable, "-u", "-m", "bench.node"]
    assert command[-1] == "--die-with-parent"
    told = dict(zip(command[4:-1:2], command[5:-1:2], strict=True))
    assert told == {
        "--result": "/shared/result",
        "--node": "1",
        "--host": "10.0.0.1",
        "--port": "20001",
        "--work-dir": "/nvme/0123456789ab-node1",
        "--checkpoint-dir": "/shared/checkpoints",
        "--device": "cpu",
    }


def test_the_node_local_folder_is_below_the_nodes_own_temporary_folder_unless_given(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/scratch/job7")
    command = slurm_task.runner(given(work_base=None), task(), "0123456789abcdef", "10.0.0.1", 20001)
    assert f"/scratch/job7/bench-work-{os.getuid()}/0123456789ab-node1" in command


RUN = "import sys\nfrom bench.launch.slurm_task import run\nsys.exit(run([sys.executable, '-c', sys.argv[1]]))"


def start(code: str) -> subprocess.Popen[str]:
    """A task whose runner is that piece of Python."""
    root = str(Path(slurm_task.__file__).resolve().parents[2])
    command = [sys.executable, "-c", RUN, code]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": root}, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137), ("", 0)]
)
def test_a_task_ends_as_its_runner_does(code, status):
    process = start(code)
    process.communicate(timeout=60)
    assert process.returncode == status


def test_a_signal_to_the_step_is_the_runners_business_and_its_end_is_waited_for():
    process = start(
        "import signal\nimport time\nprint(signal.getsignal(signal.SIGTERM).name, flush=True)\ntime.sleep(60)"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "SIG_DFL\n", "the runner does not inherit that its task ignores it"
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    (runner,) = psutil.Process(process.pid).children()
    runner.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


# --- the end of node 0
def test_a_host_that_is_up_answers_or_refuses_and_one_that_is_gone_does_neither(free_port, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not slurm_task.gone("127.0.0.1", server.getsockname()[1])
    assert not slurm_task.gone("127.0.0.1", free_port)

    def silence(*_: Any, **__: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", silence)
    assert slurm_task.gone("10.0.0.1", 20001)


@pytest.mark.parametrize(
    ("code", "node", "wanted", "lost", "cancelled"),
    [
        (1, "1", True, True, ["7"]),
        (1, "1", True, False, []),  # node 0 is up: its script ends the job
        (1, "1", False, True, []),  # the allocation is somebody's, or Slurm starts the job again
        (0, "1", True, True, []),
        (130, "1", True, True, []),
        (1, "0", True, True, []),
    ],
)
def test_a_job_whose_first_node_has_died_is_given_back_by_the_others(
    folder, monkeypatch, code, node, wanted, lost, cancelled
):
    done: list[str] = []
    monkeypatch.setattr(slurm_task, "arguments", lambda: given(result=folder.path, release=wanted))
    monkeypatch.setattr(slurm_task, "run", lambda command: code)
    monkeypatch.setattr(slurm_task, "gone", lambda host, port: lost)
    monkeypatch.setattr(slurm_task.slurm_commands, "cancel", done.append)
    for name, value in (VARIABLES | {"SLURM_PROCID": node, "BENCH_PEERS": "127.0.0.1"}).items():
        monkeypatch.setenv(name, value)
    slurm_task.open_meeting(folder.path / "slurm" / task().meeting, 2, ["127.0.0.1"])
    assert slurm_task.main() == code
    assert done == cancelled


def test_the_step_is_on_record_for_the_script_that_may_have_to_end_it(folder, monkeypatch):
    monkeypatch.setattr(slurm_task, "arguments", lambda: given(result=folder.path))
    monkeypatch.setattr(slurm_task, "run", lambda command: 0)
    for name, value in (VARIABLES | {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}).items():
        monkeypatch.setenv(name, value)
    assert slurm_task.main() == 0
    assert (folder.path / "slurm" / "step").read_text() == "7.0\n"


def test_a_task_that_finds_no_meeting_says_so_and_fails(folder, monkeypatch, capsys):
    def alone(meeting: Path) -> tuple[str, int]:
        raise NoMeeting("nothing of node 0")

    monkeypatch.setattr(slurm_task, "arguments", lambda: given(result=folder.path))
    monkeypatch.setattr(slurm_task, "join_meeting", alone)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    assert slurm_task.main() == 1
    assert capsys.readouterr().err == "bench: node 1: nothing of node 0\n"
