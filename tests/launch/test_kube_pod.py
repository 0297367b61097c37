"""What runs inside of a pod: the meeting of all pods, run.json on the claim, the change into the runner."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bench.errors import BadInput
from bench.launch import kube_pod
from bench.occasions import PROVISIONAL
from bench.results import ResultFolder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(kube_pod, "LOOK_S", 0.05)


def gather(nodes: dict[int, float], num_nodes: int, port: int, patience_s: float) -> tuple[list[str], dict[int, str]]:
    """Pods `nodes` come after so many seconds; what happened in order, and how each one's meeting ended."""
    order: list[str] = []
    ends: dict[int, str] = {}

    def come(node: int, after_s: float) -> None:
        time.sleep(after_s)
        try:
            kube_pod.meet(node, num_nodes, "127.0.0.1", port, patience_s, lambda: order.append("ready"))
        except TimeoutError as error:
            ends[node] = str(error)
        else:
            ends[node] = "go"
            order.append(str(node))

    threads = [threading.Thread(target=come, args=item) for item in nodes.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return order, ends


@pytest.mark.parametrize("late", [0, 1, 2])
def test_nobody_starts_before_all_are_there_and_node_0_has_made_ready(free_port, late):
    order, ends = gather({node: 0.4 if node == late else 0.0 for node in range(3)}, 3, free_port, 30)
    assert ends == {0: "go", 1: "go", 2: "go"}
    assert order[0] == "ready"
    assert sorted(order[1:]) == ["0", "1", "2"]


def test_one_node_waits_for_nobody(free_port):
    assert gather({0: 0.0}, 1, free_port, 30) == (["ready", "0"], {0: "go"})


def test_a_pod_that_does_not_come_ends_the_others_with_its_number(free_port):
    order, ends = gather({0: 0.0, 2: 0.0}, 4, free_port, 0.5)
    assert order == []
    assert ends[0] == "nodes [1, 3] of 4 have not come within 0.5 s"
    assert f"node 0 (127.0.0.1:{free_port}) has not let node 2 go" in ends[2]


def test_a_stranger_on_the_port_does_not_count(free_port):
    def strange() -> None:
        for words in (b"GET / HTTP/1.1\r\n\r\n", b""):
            for _ in range(200):
                try:
                    with socket.create_connection(("127.0.0.1", free_port), timeout=1) as connection:
                        connection.sendall(words)
                    break
                except OSError:
                    time.sleep(0.02)

    stranger = threading.Thread(target=strange)
    stranger.start()
    _, ends = gather({0: 0.0, 1: 0.5}, 2, free_port, 30)
    stranger.join()
    assert ends == {0: "go", 1: "go"}


# --- run.json
SUBMITS = {"machine": "lab", "device": "cuda", "cpu": "of the machine that submits", PROVISIONAL: True}


@pytest.fixture
def given(tmp_path) -> argparse.Namespace:
    submitted = {
        "schema_version": 1,
        "token": "t",
        "environment": SUBMITS,
        "occasions": [{"started": 1000.0, "launches": [{"index": 1}, {"index": 2}]}],
    }
    (tmp_path / "submitted.json").write_text(json.dumps(submitted))
    return argparse.Namespace(
        run_json=tmp_path / "submitted.json",
        result=str(tmp_path / "result"),
        checkpoint_dir=str(tmp_path / "checkpoints"),
    )


def placed(given: argparse.Namespace) -> dict:
    kube_pod.place_run(given)
    return ResultFolder(Path(given.result)).read_run()


def test_the_environment_in_the_result_is_that_of_a_node(given):
    run = placed(given)
    assert (run["environment"]["machine"], run["environment"]["device"]) == ("lab", "cuda")
    assert run["environment"]["cpus"] == len(os.sched_getaffinity(0))
    assert run["environment"]["cpu"] != "of the machine that submits"
    assert PROVISIONAL not in run["environment"]
    assert (run["schema_version"], run["token"]) == (1, "t")
    assert (Path(given.result) / "launches").is_dir()


def test_another_occasion_on_other_software_is_refused_before_anything_runs(given):
    submitted = json.loads(given.run_json.read_text())
    submitted["environment"] = {"machine": "lab", "device": "cpu", "versions": {"torch": "0.1"}}
    submitted["occasions"].append({"started": 2000.0, "launches": [{"index": 3}]})
    given.run_json.write_text(json.dumps(submitted))
    with pytest.raises(BadInput, match=r"environment: .* another torch \(0\.1, now .*; restore it, or measure a new"):
        placed(given)
    assert not (Path(given.result) / "run.json").exists()


def test_the_budget_counts_from_when_all_pods_are_there(given):
    before = time.time()
    last = placed(given)["occasions"][-1]
    assert before <= last["started"] <= time.time()
    assert (last["submitted"], last["launches"]) == (1000.0, [{"index": 1}, {"index": 2}])


def test_a_job_that_the_cluster_started_again_has_used_its_budget_and_a_new_session_gets_its_own(given, monkeypatch):
    monkeypatch.setattr(kube_pod.time, "time", lambda: 5000.0)
    first = placed(given)["occasions"][-1]
    waits = {"started": 130.0, "status": "relaunching", "relaunches": [{"asked": 150.0, "start": 1}]}
    ResultFolder(Path(given.result)).write_launch(1, waits)
    second = placed(given)["occasions"][-1]
    assert (first["started"], second["started"]) == (5000.0, 4980.0)
    assert (first["starts"], second["starts"], first["job"] == second["job"]) == (1, 2, True)
    resumed = json.loads(given.run_json.read_text())
    resumed["occasions"][-1]["started"] = 2000.0
    given.run_json.write_text(json.dumps(resumed))
    again = placed(given)["occasions"][-1]
    assert again["submitted"] == 2000.0
    assert (again["started"], again["starts"]) == (5000.0, 1)
    assert again["job"] != first["job"]


# --- the process
def run_words(given: argparse.Namespace, num_nodes: int, host: str, port: int) -> list[str]:
    words = ["run", "--run-json", str(given.run_json), "--num-nodes", str(num_nodes), "--patience", "300"]
    words += ["--result", given.result, "--host", host, "--port", str(port), "--work-dir", "/w"]
    return [*words, "--checkpoint-dir", given.checkpoint_dir, "--device", "cpu"]


def test_a_pod_becomes_the_runner_of_its_index(given, monkeypatch):
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, words: became.append(words))
    monkeypatch.setattr(kube_pod.signal, "signal", lambda *_: None)
    kube_pod.run(kube_pod.arguments(run_words(given, 1, "h-0.h", 29411)))
    (command,) = became
    assert command[:5] == [sys.executable, "-m", "bench.node", "--node", "0"]
    expected = ["--result", given.result, "--host", "h-0.h", "--port", "29411", "--work-dir", "/w"]
    assert command[5:] == [*expected, "--checkpoint-dir", given.checkpoint_dir, "--device", "cpu"]


def test_a_pod_that_is_told_to_end_while_it_waits_for_the_others_ends_at_once(given, free_port):
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.launch.kube_pod", *run_words(given, 2, "127.0.0.1", free_port - 1)],
        cwd=ROOT,
        env=dict(os.environ) | {"JOB_COMPLETION_INDEX": "0"},
    )
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", free_port)) == 0:
                break
        time.sleep(0.05)
    process.terminate()
    assert process.wait(30) == kube_pod.ENDED
