"""A network of its own for every emulated node: network namespaces with links that a fault may cut, made for one run.

Each node's runner, agent and ranks live in a namespace with two interfaces, joined to two bridges in a namespace of the
run's own (the hub). Nothing is added to the machine's network, so that no address here can clash with one there.

  control   the runners' own: node 0's board and clock. They play the machines and their orchestrator, which stand
            outside of every emulated fault, so this link is never cut.
  training  all that belongs to the job: agents, gloo's connections, and the stores over which ranks form their process
            group. These run in node 0's runner, but ranks and agents reach them at node 0's address here: a node that
            is cut off misses them as it would on a cluster, also where it is node 0 that is cut off from the others.

network_partition cuts a node's training link at the hub's end, as at a switch: the node's interface loses its carrier
and keeps its addresses and routes, and its ranks still reach each other. Storage is a file system of this machine and
knows of no network.

Needs the right to make namespaces and links (CAP_SYS_ADMIN, CAP_NET_ADMIN), iproute2 and nsenter. `ip netns exec` would
hide the machine's cgroups from the runner, which its faults need.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from bench.config import Run
from bench.errors import BadInput
from bench.record import process_start_ticks

FIELD = "cluster.namespaces"
FOLDER = Path("/var/run/netns")  # where iproute2 keeps named namespaces
INTERFACE_VARIABLE = "GLOO_SOCKET_IFNAME"
CONTROL, TRAINING = "control", "training"
ADDRESSES = {CONTROL: IPv4Network("10.64.0.0/16"), TRAINING: IPv4Network("10.65.0.0/16")}
_NAME = re.compile(r"(?P<network>bench-.+-(?P<pid>\d+)-(?P<start>\d+))-(hub|node\d+)")


def check(config: Run) -> None:
    """Raise BadInput where the run or this machine does not allow it; found out by making a network and removing it."""
    given = {"cluster.interface": config.cluster.interface, INTERFACE_VARIABLE: os.environ.get(INTERFACE_VARIABLE)}
    for name, interface in given.items():
        if interface is not None:
            raise BadInput(
                f"{name}: {interface!r} is an interface of this machine, which a node in a namespace of its own does "
                f"not have; leave it out, or {FIELD}=false"
            )
    if config.device == "cuda":
        raise BadInput(f"{FIELD}: NCCL on one machine passes by every network; give device=cpu, or leave it out")
    trial = Network.of("try", 1)
    try:
        trial.make()
    finally:
        trial.remove()


@dataclass(frozen=True)
class Network:
    """The namespaces of one run. Their names tell who made them: no other run's are ever touched."""

    name: str
    num_nodes: int

    @classmethod
    def of(cls, run: str, num_nodes: int) -> Network:
        """Made by this process. `run`: what tells it from another one that this process makes."""
        return cls(f"bench-{run}-{os.getpid()}-{process_start_ticks()}", num_nodes)

    @property
    def hub(self) -> str:
        return f"{self.name}-hub"

    def node(self, number: int) -> str:
        return f"{self.name}-node{number}"

    def link(self, number: int) -> str:
        """The hub's end of a node's training link: what a fault may cut."""
        return f"{TRAINING}{number}"

    def inside(self, number: int, command: list[str]) -> list[str]:
        """`command` as a process in a node's namespace; same pid, same mounts."""
        return ["nsenter", f"--net={FOLDER / self.node(number)}", *command]

    # --- up
    def make(self) -> None:
        """Takes 0.3 s for 9 nodes. Raises BadInput where the machine refuses, and leaves nothing then."""
        with ExitStack() as stack:
            stack.callback(self.remove)
            try:
                self._make()
            except OSError as error:
                raise BadInput(
                    f"{FIELD}: this machine gives nodes no network of their own ({error}); run as root "
                    "(CAP_SYS_ADMIN, CAP_NET_ADMIN) with iproute2 and nsenter installed, or leave it out"
                ) from None
            stack.pop_all()

    def _make(self) -> None:
        if shutil.which("nsenter") is None:
            raise OSError("the command nsenter of util-linux is missing")
        _ip("netns", "add", self.hub)
        for bridge in ADDRESSES:
            _ip("-netns", self.hub, "link", "add", bridge, "type", "bridge")
            _ip("-netns", self.hub, "link", "set", "dev", bridge, "up")
        for number in range(self.num_nodes):
            self._add(number)

    def _add(self, number: int) -> None:
        node = self.node(number)
        _ip("netns", "add", node)
        _ip("-netns", node, "link", "set", "dev", "lo", "up")
        for bridge, network in ADDRESSES.items():
            port = f"{bridge}{number}"
            _ip("-netns", self.hub, "link", "add", port, "type", "veth", "peer", "name", bridge, "netns", node)
            _ip("-netns", self.hub, "link", "set", "dev", port, "master", bridge, "up")
            _ip("-netns", node, "address", "add", f"{address(bridge, number)}/{network.prefixlen}", "dev", bridge)
            _ip("-netns", node, "link", "set", "dev", bridge, "up")

    # --- down
    def remove(self) -> list[str]:
        """Call it when no process of the run lives any more, or twice. Returns what could not be removed, and why.

        Bridges and links go with the namespaces that they are in.
        """
        return _delete([self.hub, *map(self.node, range(self.num_nodes))])


def address(network: str, node: int) -> str:
    return str(ADDRESSES[network][node + 1])


def remove_leftovers() -> list[str]:
    """Remove networks whose driver was killed before it could do so itself. Returns what could not be removed.

    Where its runners are still ending, over that network, all of it stays for a later start.
    """
    found: dict[str, list[str]] = {}
    for path in FOLDER.glob("bench-*"):
        match = _NAME.fullmatch(path.name)
        if match is not None and _ended(int(match["pid"]), int(match["start"])):
            found.setdefault(match["network"], []).append(path.name)
    return _delete([name for names in found.values() if not any(map(in_use, names)) for name in names])


def in_use(name: str) -> bool:
    """Whether a process lives in a named network namespace, as far as can be seen."""
    try:
        return bool(_ip("netns", "pids", name).strip())
    except OSError:
        return (FOLDER / name).exists()  # else another driver's start has just removed it


def _ended(pid: int, start_ticks: int) -> bool:
    try:
        return process_start_ticks(pid) != start_ticks
    except OSError:
        return True


def _delete(names: list[str]) -> list[str]:
    problems = []
    for name in names:
        try:
            _ip("netns", "delete", name)
        except OSError as error:
            if (FOLDER / name).exists():
                problems.append(f"the network namespace {name} is left: {error}")
    return problems


def _ip(*words: str) -> str:
    """Output of the command ip, which a terminal's Ctrl-C does not reach: that is the driver's to handle.

    Raises OSError with the command's own words.
    """
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False, start_new_session=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {' '.join(done.stderr.split())}")
    return done.stdout
