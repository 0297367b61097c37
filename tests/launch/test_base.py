"""Runners as children of the driver: started, watched, asked to end, and gone afterwards."""

from __future__ import annotations

import itertools
import socket
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from bench.config import Run
from bench.errors import BadInput
from bench.launch import base
from bench.launch.base import Launcher, OnThisMachine, Paths

ORDERLY = """
import os, signal, sys, time
def leave(*_):
    print("leaving", flush=True)
    sys.exit(130)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(120)
"""
STUBBORN = ORDERLY.replace("leave)", "signal.SIG_IGN)")
SLEEP = "import time; time.sleep(120)"
LEAVES_A_CHILD = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)"


class Snippets(OnThisMachine):
    """Runs a piece of Python in place of each runner."""

    name = "snippets"

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def check(self, config: Run, gpus: int) -> None: ...

    def _command(self, config: Run, paths: Paths, node: int, port: int) -> list[str]:
        return [sys.executable, "-c", self.code, str(node)]


@pytest.fixture
def paths(tmp_path) -> Paths:
    return Paths(tmp_path / "result", tmp_path / "work", tmp_path / "checkpoints")


@pytest.fixture
def started(paths) -> Iterator:
    made: list[Launcher] = []

    def start(code: str, num_nodes: int = 1) -> Snippets:
        launcher = Snippets(code)
        made.append(launcher)
        launcher.start(Run(num_nodes=num_nodes), paths)
        return launcher

    yield start
    for launcher in made:
        launcher.stop()
        assert not launcher.running()


def until(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def log(paths: Paths, node: int) -> str:
    return (paths.result / "logs" / f"runner-{node}.log").read_text()


def test_one_runner_is_started_per_node_with_its_output_in_the_result(started, paths):
    launcher = started("import sys; print('node', sys.argv[1])", num_nodes=2)
    until(lambda: not launcher.running())
    assert [log(paths, node) for node in (0, 1)] == ["node 0\n", "node 1\n"]
    assert launcher.codes == {0: 0, 1: 0}


def test_a_runner_that_fails_is_known_by_its_exit_code(started):
    launcher = started("import sys; sys.exit(int(sys.argv[1]))", num_nodes=2)
    until(lambda: not launcher.running())
    assert launcher.codes == {0: 0, 1: 1}


def test_a_stop_asks_every_runner_for_an_orderly_end(started, paths):
    launcher = started(ORDERLY, num_nodes=2)
    until(lambda: all("ready" in log(paths, node) for node in (0, 1)))
    launcher.stop()
    assert [log(paths, node) for node in (0, 1)] == ["ready\nleaving\n"] * 2
    assert launcher.codes == {0: 130, 1: 130}


def test_a_runner_that_does_not_end_is_ended(started, paths, monkeypatch):
    monkeypatch.setattr(base, "STOP_PATIENCE_S", 0.1)
    launcher = started(STUBBORN)
    until(lambda: "ready" in log(paths, 0))
    (runner,) = launcher._runners
    launcher.stop()
    assert not launcher.running()
    assert not psutil.pid_exists(runner)


def test_what_a_dead_runner_leaves_behind_is_ended_with_the_stop(started):
    launcher = started(LEAVES_A_CHILD)
    until(lambda: not launcher.running())
    left = [
        child for child in psutil.Process().children(recursive=True) if "time.sleep(120)" in " ".join(child.cmdline())
    ]
    assert len(left) == 1
    launcher.stop()
    assert not left[0].is_running()


def test_a_command_names_all_that_a_runner_needs_and_the_driver_it_dies_with(paths):
    class Plain(OnThisMachine):
        name = "plain"

        def check(self, config: Run, gpus: int) -> None: ...

    commands = Plain().commands(Run(num_nodes=2, device="cpu"), paths, port="1234")
    for node, command in enumerate(commands):
        options = dict(itertools.pairwise(command))
        assert command[:3] == [sys.executable, "-m", "bench.node"]
        assert (options["--node"], options["--port"], options["--device"]) == (str(node), "1234", "cpu")
        assert options["--result"] == str(paths.result)
        assert options["--work-dir"] == str(paths.work_dir / f"node{node}")
        assert options["--checkpoint-dir"] == str(paths.checkpoint_dir)
        assert "--die-with-parent" in command


def test_an_unresolved_device_is_refused():
    with pytest.raises(BadInput, match="device: auto was not resolved"):
        base.device_of(Run(device="auto"))


def test_a_free_port_can_be_listened_on():
    port = base.free_port()
    with socket.create_server(("127.0.0.1", port)) as server:
        assert server.getsockname()[1] == port
