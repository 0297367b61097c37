"""Networks made for one run: two links a node, one of which can be cut, and nothing left of them afterwards."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench.config import Cluster, Run
from bench.errors import BadInput
from bench.faults.network_partition import Link
from bench.launch import namespaces
from bench.launch.base import OnThisMachine, Paths
from bench.launch.emulated import Emulated
from bench.launch.namespaces import CONTROL, FOLDER, TRAINING, Network, address
from tests.node.test_launch import Bed
from tests.whole_runs import carried_through

ROOT = Path(__file__).resolve().parent.parent.parent
PORT = "7001"  # the namespaces are the test's own, and so are all their ports
PATIENCE_S = 60.0

# Sends back every line; says first that it listens.
ECHO = """
import socket, sys, threading
def answer(connection):
    for line in connection.makefile("rb"):
        connection.sendall(line)
server = socket.create_server(("", int(sys.argv[1])))
print("listening", flush=True)
while True:
    threading.Thread(target=answer, args=server.accept()[:1], daemon=True).start()
"""
# A connection to ECHO: sends each line that it is given, and prints what comes back, whenever it does.
TALK = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60)
answers = connection.makefile("rb")
for line in sys.stdin.buffer:
    connection.sendall(line)
    print(answers.readline().decode().strip(), flush=True)
"""
# Makes a network and is killed before it could remove it.
KILLED = """
import os, signal
from bench.launch.namespaces import Network
network = Network.of("test", 1)
network.make()
print(network.hub, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def of_process(pid: int) -> list[str]:
    return sorted(path.name for path in FOLDER.glob(f"bench-*-{pid}-*"))


def configuration(num_nodes: int = 2, **of_cluster: object) -> Run:
    cluster = Cluster(**({"name": "emulated", "namespaces": True} | of_cluster))
    return Run(num_nodes=num_nodes, ranks_per_node=1, device="cpu", cluster=cluster)


@pytest.fixture(autouse=True)
def no_interface_of_the_users(monkeypatch) -> None:
    monkeypatch.delenv(namespaces.INTERFACE_VARIABLE, raising=False)


@pytest.fixture
def rights() -> None:
    try:
        namespaces.check(configuration())
    except BadInput as error:
        pytest.skip(str(error))


@pytest.fixture
def network(rights) -> Iterator[Network]:
    made = Network.of("test", 2)
    made.make()
    yield made
    assert made.remove() == []
    assert of_process(os.getpid()) == []


@pytest.fixture
def start() -> Iterator:
    """Starts a piece of Python in a node's namespace, with pipes to talk to it."""
    started: list[subprocess.Popen[str]] = []

    def begin(network: Network, node: int, code: str, *words: str) -> subprocess.Popen[str]:
        command = network.inside(node, [sys.executable, "-c", code, *words])
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        started.append(subprocess.Popen(command, **pipes))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def paths(tmp_path) -> Paths:
    return Paths(tmp_path / "result", tmp_path / "a-run", tmp_path / "checkpoints")


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def until(condition) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# --- the network
def test_a_cut_takes_the_training_network_of_one_node_and_spares_what_the_runners_talk_over(network, start):
    server = start(network, 0, ECHO, PORT)
    assert hear(server) == "listening"
    control = start(network, 1, TALK, address(CONTROL, 0), PORT)
    training = start(network, 1, TALK, address(TRAINING, 0), PORT)
    for connection in (control, training):
        say(connection, "before")
        assert hear(connection) == "before"
    link = Link(network.link(1), network.hub)
    link.ip("link", "set", "dev", link.interface, "down")
    say(training, "held back")
    for number in range(20):  # each takes a way there and back: time enough for the other one, were it to come
        say(control, f"passes {number}")
        assert hear(control) == f"passes {number}"
    assert Link(network.link(0), network.hub).is_up()
    assert training.poll() is None, "nobody is told of a cut"
    assert select.select([training.stdout], [], [], 0.0)[0] == [], "and nothing passes"
    link.ip("link", "set", "dev", link.interface, "up")
    assert hear(training) == "held back"


def test_a_node_that_is_cut_off_still_reaches_itself_at_its_address(network, start):
    link = Link(network.link(1), network.hub)
    link.ip("link", "set", "dev", link.interface, "down")
    assert hear(start(network, 1, ECHO, PORT)) == "listening"
    talk = start(network, 1, TALK, address(TRAINING, 1), PORT)
    say(talk, "myself")
    assert hear(talk) == "myself"


def test_a_node_reaches_the_ranks_over_the_training_interface_and_nothing_of_the_machines_network(network, start):
    code = "from bench.node.base import interface_to; import sys; print(*map(interface_to, sys.argv[1:]))"
    hosts = [address(kind, 0) for kind in (CONTROL, TRAINING)]
    for node in (0, 1):
        assert hear(start(network, node, code, *hosts)) == f"{CONTROL} {TRAINING}"
    names = "import psutil; print(*sorted(psutil.net_if_addrs()))"
    assert hear(start(network, 1, names)) == f"{CONTROL} lo {TRAINING}"


def test_the_machines_own_interfaces_are_the_same_with_it(rights):
    before = socket.if_nameindex()
    network = Network.of("test", 2)
    network.make()
    try:
        assert socket.if_nameindex() == before
        assert of_process(os.getpid()) == sorted([network.hub, network.node(0), network.node(1)])
    finally:
        assert network.remove() == []
    assert network.remove() == [], "a second call finds nothing to do"


def test_what_was_made_before_the_machine_refused_is_removed(rights, monkeypatch):
    asked: list[tuple[str, ...]] = []
    real = namespaces._ip

    def refuses_addresses(*words: str) -> str:
        asked.append(words)
        if "address" in words:
            raise OSError("ip address add: no more addresses")
        return real(*words)

    monkeypatch.setattr(namespaces, "_ip", refuses_addresses)
    with pytest.raises(BadInput, match=r"^cluster\.namespaces: .*no more addresses\); run as root"):
        Network.of("test", 2).make()
    assert any("veth" in words for words in asked)
    assert of_process(os.getpid()) == []


def test_networks_of_a_killed_driver_are_removed_and_those_of_a_living_one_stay(network):
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=ROOT, capture_output=True, text=True, check=False)
    left = done.stdout.strip()
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (FOLDER / left).exists()
    assert namespaces.remove_leftovers() == []
    assert not (FOLDER / left).exists()
    assert len(of_process(os.getpid())) == 3


def test_a_process_with_the_number_of_a_dead_driver_does_not_keep_its_network(rights):
    other = Network(f"bench-test-{os.getpid()}-1", 1)  # this process's number, and another start
    other.make()
    assert namespaces.remove_leftovers() == []
    assert of_process(os.getpid()) == []


def test_a_dead_drivers_network_stays_as_long_as_its_runners_are_still_ending(rights, start):
    other = Network(f"bench-test-{os.getpid()}-1", 2)
    other.make()
    runner = start(other, 1, ECHO, PORT)
    assert hear(runner) == "listening"
    assert namespaces.remove_leftovers() == []
    assert len(of_process(os.getpid())) == 3, "a hub without processes, too, for runners talk through it"
    runner.kill()
    runner.wait()
    assert namespaces.remove_leftovers() == []
    assert of_process(os.getpid()) == []


def test_namespaces_that_others_named_are_never_touched(rights):
    name = f"bench-test-of-mine-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        assert namespaces.remove_leftovers() == []
        assert (FOLDER / name).exists()
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


# --- the launcher
def test_a_runner_is_started_in_its_nodes_namespace_with_both_addresses_and_the_link_to_cut(paths):
    for node, command in enumerate(Emulated().commands(configuration(), paths, "1234")):
        enter, namespace = command[:2]
        assert enter == "nsenter"
        assert namespace == f"--net={FOLDER}/bench-a-run-{os.getpid()}-{namespace.split('-')[-2]}-node{node}"
        assert command[2:5] == [sys.executable, "-m", "bench.node"]
        options = dict(itertools.pairwise(command))
        assert options["--host"] == address(CONTROL, 0)
        assert options["--ranks-host"] == address(TRAINING, 0)
        assert options["--interface"] == f"training{node}"
        assert options["--netns"] == namespace.removeprefix(f"--net={FOLDER}/").replace(f"node{node}", "hub")


def test_without_the_option_nothing_of_it_is_in_a_command(paths):
    (command,) = Emulated().commands(configuration(1, namespaces=False), paths, "1234")
    assert command[:3] == [sys.executable, "-m", "bench.node"]
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert "--ranks-host" not in command


def test_the_network_is_there_while_runners_may_live_and_goes_with_the_stop(rights, paths, monkeypatch):
    names = "import socket; print(*sorted(name for _, name in socket.if_nameindex()))"
    monkeypatch.setattr(OnThisMachine, "_command", lambda *_: [sys.executable, "-c", names])
    launcher = Emulated()
    launcher.start(configuration(), paths)
    try:
        assert len(of_process(os.getpid())) == 3
        until(lambda: not launcher.running())
    finally:
        launcher.stop()
    assert of_process(os.getpid()) == []
    for node in (0, 1):
        assert {CONTROL, TRAINING} < set((paths.result / "logs" / f"runner-{node}.log").read_text().split())
    assert launcher.news() == []


def test_a_start_that_fails_leaves_no_network(rights, paths, monkeypatch):
    paths.result.write_text("a file where a folder should be")
    with pytest.raises(OSError, match="result"):
        Emulated().start(configuration(), paths)
    assert of_process(os.getpid()) == []


def test_what_cannot_be_removed_is_told(rights, paths, monkeypatch):
    monkeypatch.setattr(OnThisMachine, "_command", lambda *_: ["true"])
    launcher = Emulated()
    launcher.start(configuration(1), paths)
    until(lambda: not launcher.running())
    real = namespaces._ip

    def refuses(*words: str) -> str:
        raise OSError("Device or resource busy")

    monkeypatch.setattr(namespaces, "_ip", refuses)
    launcher.stop()
    told = launcher.news()
    monkeypatch.setattr(namespaces, "_ip", real)
    assert [line.endswith("is left: Device or resource busy") for line in told] == [True, True]
    assert launcher.news() == []
    assert Network.of("a-run", 1).remove() == []


def test_agents_and_ranks_meet_on_the_side_that_can_be_cut_and_the_runners_on_the_other(tmp_path, monkeypatch):
    tell = "import json, os; print(json.load(open(os.environ['BENCH_LAUNCH']))['store_host'])"
    bed = Bed(tmp_path, monkeypatch, tell)
    try:
        bed.node = dataclasses.replace(bed.node, ranks_host="127.0.0.2", interface="training0", netns="a-hub")
        site = bed.runner()._site()
        assert (site.interface, site.netns) == ("training0", "a-hub")
        assert bed.run()["status"] == "ok"
        assert bed.layer.place is not None
        assert bed.layer.place.host == "127.0.0.2"
        (log,) = (bed.folder.launch_dir(0) / "logs").glob("*rank-0*")
        assert log.read_text() == "127.0.0.2\n"
        assert bed.node.host == "127.0.0.1"
    finally:
        bed.clock.close()
        assert bed.supervisor.end_all() == []


# --- refusals
@pytest.mark.parametrize("field", ["cluster.interface", "GLOO_SOCKET_IFNAME"])
def test_an_interface_of_the_machine_is_refused(field, monkeypatch):
    if field == "GLOO_SOCKET_IFNAME":
        monkeypatch.setenv(field, "eth7")
    with pytest.raises(BadInput, match=rf"^{field}: 'eth7' .*; leave it out"):
        Emulated().check(configuration(interface="eth7" if field == "cluster.interface" else None), 0)


def test_gpus_are_refused_since_nccl_would_not_notice_a_cut():
    config = Run(num_nodes=1, ranks_per_node=1, device="cuda", cluster=Cluster(name="emulated", namespaces=True))
    with pytest.raises(BadInput, match=r"^cluster\.namespaces: NCCL .*; give device=cpu"):
        Emulated().check(config, 1)


def test_without_the_commands_it_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match=r"^cluster\.namespaces: .*nsenter.*; run as root .*, or leave it out$"):
        namespaces.check(configuration())


def test_without_the_right_to_make_one_a_run_ends_with_one_line_and_2(rights, tmp_path):
    """Found out by trying: this is root, without the capabilities."""
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv to give capabilities up")
    words = ["scenario=recovery_smoke", "cluster.namespaces=true", f"results_dir={tmp_path}", f"work_dir={tmp_path}"]
    lesser = ["setpriv", "--bounding-set=-sys_admin,-net_admin", "--inh-caps=-sys_admin,-net_admin"]
    command = [*lesser, sys.executable, "-m", "bench", "run", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert "cluster.namespaces: this machine gives nodes no network of their own (ip netns add " in line
    assert line.endswith(
        "; run as root (CAP_SYS_ADMIN, CAP_NET_ADMIN) with iproute2 and nsenter installed, or leave it out"
    )


# --- whole runs
class Driver:
    """`bench run` with a partition of node 1's link, as a user starts it."""

    def __init__(self, path: Path, *words: str) -> None:
        self.path = path
        fault = "faults.given=[{kind: network_partition, rank: 1, options: {seconds: 8.0}}]"
        command = [sys.executable, "-m", "bench", "run", "scenario=recovery_smoke", "cluster.namespaces=true"]
        command += ["recovery.layers=[in_job]", "recovery.only=[]", fault, "machine=here", *words]
        command += [f"results_dir={path / 'results'}", f"work_dir={path / 'work'}"]
        with open(path / "output", "w") as output:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def said(self) -> str:
        return (self.path / "output").read_text()

    def events(self, kind: str) -> bool:
        """Whether some process of this run has begun to write such a file."""
        return any(True for _ in self.path.glob(f"work/**/{kind}-*.jsonl"))

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def drive(rights, tmp_path) -> Iterator:
    drivers: list[Driver] = []

    def begin(*words: str) -> Driver:
        drivers.append(Driver(tmp_path, *words))
        return drivers[-1]

    yield begin
    for driver in drivers:
        driver.end()
    psutil.wait_procs(psutil.Process().children(recursive=True), timeout=PATIENCE_S)
    namespaces.remove_leftovers()


@pytest.mark.slow
def test_a_job_whose_node_was_cut_off_recovers_in_job_once_the_link_is_back(drive, tmp_path):
    driver = drive()
    assert carried_through(driver.process.wait(), tmp_path / "results" / "latest"), driver.said()
    summary = json.loads((tmp_path / "results" / "latest" / "summary.json").read_text())
    (recovery,) = summary["recoveries"]
    assert (recovery["fault"], recovery["outcome"], recovery["layer_used"]) == (
        "network_partition",
        "recovered",
        "in_job",
    )
    assert recovery["resume_exact"] is True
    (record,) = (tmp_path / "results" / "latest" / "launches").glob("*/faults/*.json")
    struck = json.loads(record.read_text())
    assert struck["details"]["interface"] == "training1"
    assert recovery["time_to_recover_s"] > 8.0, "no group forms while the link is down"
    assert of_process(driver.process.pid) == []


@pytest.mark.slow
def test_an_interrupted_run_takes_its_network_down(drive):
    driver = drive()
    until(lambda: driver.events("runner") or driver.process.poll() is not None)
    assert len(of_process(driver.process.pid)) == 3, driver.said()
    os.killpg(driver.process.pid, signal.SIGINT)
    assert driver.process.wait(PATIENCE_S) == 130, driver.said()
    assert of_process(driver.process.pid) == []


@pytest.mark.slow
def test_the_network_of_a_killed_driver_goes_with_the_next_start(drive):
    driver = drive()
    until(lambda: driver.events("runner") or driver.process.poll() is not None)
    driver.process.kill()
    driver.process.wait()
    left = of_process(driver.process.pid)
    assert len(left) == 3
    until(lambda: not any(map(namespaces.in_use, left)))
    assert namespaces.remove_leftovers() == []
    assert of_process(driver.process.pid) == []
