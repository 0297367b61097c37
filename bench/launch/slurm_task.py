"""What srun starts on every node: finds out which node this is and where node 0 is, and runs the node's runner.

Node 0 takes a free port and leaves it, with its address, in the result folder, where the others read it: a taken port
costs a look at the next one, and no name has to be resolved. Nothing is kept between two starts of the same job, so a
requeued job goes on with the launches that are not finished.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import environment, occasions
from bench.errors import BadInput
from bench.launch import slurm_commands, slurm_script
from bench.launch.base import RELAUNCH, work_folder
from bench.results import ResultFolder, write_json

MEETING_PATIENCE_S = 300.0  # Python on a cold shared file system, and a listing that NFS may have cached for a minute
LOOK_S = 0.2
CONNECT_PATIENCE_S = 15.0
IN_ORDER = (0, RELAUNCH, 130)  # exit codes of a runner that came to an end, wants another start, was asked to end
PORTS = range(20000, 32000)  # below the ports that the kernel gives to outgoing connections
KERNEL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


class NoMeeting(Exception):
    """The nodes did not find each other."""


@dataclass(frozen=True)
class Task:
    """One task of one start of the job."""

    node: int
    num_nodes: int
    job: str
    step: str
    restarts: int

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Task:
        """From what Slurm sets for a task. Raises KeyError outside of a step."""
        return cls(
            node=int(variables["SLURM_PROCID"]),
            num_nodes=int(variables["SLURM_NTASKS"]),
            job=variables["SLURM_JOB_ID"],
            step=variables["SLURM_STEP_ID"],
            restarts=int(variables.get("SLURM_RESTART_COUNT") or 0),
        )

    @property
    def meeting(self) -> str:
        """Name of the file by which the nodes meet: another one for every start, so that no old one is read."""
        return f"meeting-{self.job}-{self.restarts}-{self.step}.json"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.launch.slurm_task", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--result", type=Path, required=True, help="the run's result folder (seen by every node)")
    parser.add_argument("--checkpoint-dir", type=Path, required=True, help="where checkpoints are written")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--release", action="store_true", help="cancel the job when the host of node 0 has died")
    parser.add_argument("--work-base", type=Path, default=None, help="node-local folder; default: below TMPDIR")
    return parser.parse_args()


def main() -> int:
    given, task = arguments(), Task.of(os.environ)
    folder = ResultFolder(given.result)
    meeting = slurm_script.folder(folder.path) / task.meeting
    try:
        if task.node == 0:
            begin(folder, task, given.checkpoint_dir, os.environ)
            host, port = open_meeting(meeting, task.num_nodes, os.environ.get("BENCH_PEERS", "").split())
            (meeting.parent / slurm_script.STEP).write_text(f"{task.job}.{task.step}\n")
        else:
            host, port = join_meeting(meeting)
    except (NoMeeting, BadInput) as error:
        print(f"bench: node {task.node}: {error}", file=sys.stderr)
        return 1
    code = run(runner(given, task, folder.read_run()["token"], host, port))
    if given.release and task.node != 0 and code not in IN_ORDER and gone(host, port):
        release(task)
    return code


def runner(given: argparse.Namespace, task: Task, token: str, host: str, port: int) -> list[str]:
    """The command of this node's runner."""
    base = given.work_base or Path(tempfile.gettempdir()) / work_folder()
    work_dir = base / f"{token[:12]}-node{task.node}"  # nodes may share a machine
    words = ["--result", str(given.result), "--node", str(task.node), "--host", host, "--port", str(port)]
    words += ["--work-dir", str(work_dir), "--checkpoint-dir", str(given.checkpoint_dir), "--device", given.device]
    return [sys.executable, "-u", "-m", "bench.node", *words, "--die-with-parent"]


def run(command: Sequence[str]) -> int:
    """Its exit code, of a killed one 128 and the signal. A signal to the step reaches it too, and is its business."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which children would inherit
    code = subprocess.run(command, check=False).returncode
    return code if code >= 0 else 128 - code


# --- the end of node 0
def gone(host: str, port: int) -> bool:
    """Whether that host itself does not answer. One that is up refuses at once what nobody listens on any more."""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_PATIENCE_S):
            return False
    except ConnectionRefusedError:
        return False
    except OSError:
        return True


def release(task: Task) -> None:
    """Give the job's nodes back. Its script died with node 0, and --no-kill would keep the others to the time limit."""
    print(f"bench: node 0 does not answer, so job {task.job} is over", file=sys.stderr)
    try:
        slurm_commands.cancel(task.job)
    except (slurm_commands.Refused, slurm_commands.Unanswered) as error:
        print(f"bench: it could not be cancelled ({error}); scancel {task.job}", file=sys.stderr)


# --- the record of the run
def begin(folder: ResultFolder, task: Task, checkpoint_dir: Path, variables: Mapping[str, str]) -> None:
    """Put into run.json what only a node of the job knows: the machine that is measured, and when that began.

    The driver wrote its own machine, and the time at which it submitted: waiting in a queue uses up no budget. A job
    that Slurm starts again may be on other nodes: that is part of what it measures. Raises BadInput on a machine, or
    with software, that is unlike the one on which the result was begun.
    """
    run = folder.read_run()
    if not task.restarts or run["environment"].get(occasions.PROVISIONAL):
        occasions.settle_environment(run, environment.describe(checkpoint_dir, folder.path))
    run["engine"] = {
        "name": "slurm",
        "job": task.job,
        "restarts": task.restarts,
        "nodes": variables.get("SLURM_STEP_NODELIST"),
        "partition": variables.get("SLURM_JOB_PARTITION"),
    }
    last = run["occasions"][-1]
    last |= {"job": task.job, "starts": task.restarts + 1}
    last["started"] = time.time() - (folder.used_s(last) if task.restarts else 0.0)
    if (end := variables.get("SLURM_JOB_END_TIME", "")).isdigit():
        last["ends_by"] = int(end) - slurm_script.WARNING_S
    folder.write_run(run)


# --- how the nodes find each other
def open_meeting(meeting: Path, num_nodes: int, peers: Sequence[str]) -> tuple[str, int]:
    """Node 0: choose an address and a port and leave them in the result folder. Raises NoMeeting."""
    host, port = own_address(peers) if num_nodes > 1 else "127.0.0.1", free_port()
    meeting.parent.mkdir(exist_ok=True)
    write_json(meeting, {"host": host, "port": port})
    return host, port


def join_meeting(
    meeting: Path,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[str, int]:
    """The other nodes: wait for what node 0 has left. Raises NoMeeting."""
    end = clock() + MEETING_PATIENCE_S
    while clock() < end:
        if meeting.name in _names(
            meeting.parent
        ):  # listing a folder makes NFS ask the server; a look at a name may not
            found = json.loads(meeting.read_text())
            return str(found["host"]), int(found["port"])
        pause(LOOK_S)
    raise NoMeeting(
        f"nothing of node 0 in {meeting.parent} within {MEETING_PATIENCE_S:.0f} s; is it on a file system that all "
        "nodes share? give results_dir=PATH"
    )


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def own_address(peers: Sequence[str]) -> str:
    """This host's address as the other nodes see it: the source of its route to the first that is another host.

    `peers`: addresses or names of all nodes, this one among them. All of them loopback: nodes that share a machine.
    Raises NoMeeting when none can be resolved.
    """
    sources = {source for peer in peers if (source := source_towards(peer)) is not None}
    if not sources:
        raise NoMeeting(f"no address of a node can be resolved ({', '.join(peers) or 'scontrol named none'})")
    outward = sorted(source for source in sources if not source.startswith("127."))
    return outward[0] if outward else "127.0.0.1"


def source_towards(peer: str) -> str | None:
    """The local address from which packets to `peer` go; None when it has no address or no route. Sends nothing."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((peer, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None


def free_port(ports: Sequence[int] = PORTS) -> int:
    """A port that can be listened on, from a place of its own for every process on. Raises NoMeeting."""
    lowest = int(KERNEL_PORTS.read_text().split()[0]) if KERNEL_PORTS.exists() else ports[-1] + 1
    usable = [port for port in ports if port < lowest] or list(ports)
    start = os.getpid() % len(usable)
    for port in usable[start:] + usable[:start]:
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                probe.listen()
                return port
            except OSError:
                continue
    raise NoMeeting(f"no port of {usable[0]} to {usable[-1]} is free")


if __name__ == "__main__":
    sys.exit(main())
