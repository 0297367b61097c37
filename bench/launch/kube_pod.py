"""What runs inside of a pod: `run` brings a node's runner to its start, `pack` hands out the result.

Pods of one job start minutes apart (a queue, new machines, an image of many gigabytes), and runners wait for each other
for less than that. So the pods meet first, over a plain socket of node 0, and start their runners together.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from bench import environment, occasions
from bench.errors import BadInput
from bench.launch.kube_files import pack
from bench.results import ResultFolder

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"  # set by the Job
LOOK_S = 1.0
GO = b"go\n"
ENDED = 143


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.launch.kube_pod", description="Run one pod's part of a run.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="wait for the other pods, then become this node's runner")
    run.add_argument("--run-json", type=Path, required=True, help="the run as it was submitted")
    run.add_argument("--num-nodes", type=int, required=True)
    run.add_argument("--patience", type=float, required=True, help="seconds to wait for the other pods")
    for name in ("--result", "--host", "--port", "--work-dir", "--checkpoint-dir", "--device"):
        run.add_argument(name, required=True, help="as python -m bench.node has it")
    out = commands.add_parser("pack", help="write the result to standard output, as a gzipped tar archive")
    out.add_argument("--result", type=Path, required=True)
    out.add_argument("--have", default="", help="launches to leave out, e.g. 0,1,2")
    out.add_argument("--live", action="store_true", help="of a running launch only what progress is read from")
    return parser.parse_args(words)


def main() -> int:
    given = arguments()
    if given.command == "run":
        return run(given)
    have = {int(index) for index in given.have.split(",") if index}
    pack(given.result, sys.stdout.buffer, have, given.live)
    return 0


def run(given: argparse.Namespace) -> int:
    """Becomes the runner; returns only if the other pods do not come."""
    signal.signal(signal.SIGTERM, _stop)  # the first process of a container ignores what it does not handle
    node = int(os.environ[INDEX_VARIABLE])
    try:
        meet(node, given.num_nodes, given.host, int(given.port) + 1, given.patience, lambda: place_run(given))
    except (TimeoutError, BadInput) as error:
        print(f"bench: {error}", file=sys.stderr, flush=True)
        return 1
    words = [sys.executable, "-m", "bench.node", "--node", str(node)]
    for name in ("result", "host", "port", "work_dir", "checkpoint_dir", "device"):
        words += [f"--{name.replace('_', '-')}", str(getattr(given, name))]
    return _become(words)


def _become(words: list[str]) -> NoReturn:
    sys.stdout.flush()
    os.execv(words[0], words)


def _stop(signum: int, frame: FrameType | None) -> None:
    sys.exit(ENDED)


# --- the run, as this cluster is to see it
def place_run(given: argparse.Namespace) -> None:
    """Node 0, once all pods are there: put run.json onto the claim, with the environment found here.

    The budget counts from now: the time in a queue is nobody's. A job that the cluster started again has used what its
    launches took. Raises BadInput on a machine, or with software, that is unlike the one on which the result was begun.
    """
    folder = ResultFolder(Path(given.result))
    (folder.path / "launches").mkdir(parents=True, exist_ok=True)
    content = json.loads(given.run_json.read_text())
    earlier = folder.read_run() if (folder.path / "run.json").is_file() else None
    last = content["occasions"][-1]
    last["submitted"] = last["started"]
    starts = _starts(earlier, last["submitted"])
    if starts and earlier is not None:  # found by its first start; that another may be elsewhere is what it measures
        occasions.take_over_environments(content, earlier)
    else:
        occasions.settle_environment(content, environment.describe(Path(given.checkpoint_dir), folder.path))
    used_s = folder.used_s(last) if starts else 0.0
    last |= {"started": time.time() - used_s, "starts": starts + 1, "job": str(last["submitted"])}
    folder.write_run({name: value for name, value in content.items() if name != "schema_version"})


def _starts(earlier: dict[str, Any] | None, submitted: float) -> int:
    """How often the cluster has started this job before."""
    last = earlier["occasions"][-1] if earlier else {}
    return int(last.get("starts", 1)) if last.get("submitted") == submitted else 0


# --- the meeting
def meet(node: int, num_nodes: int, host: str, port: int, patience_s: float, ready: Callable[[], None]) -> None:
    """Return on every node once all are here; node 0 calls `ready` before it lets anybody go. Raises TimeoutError."""
    if node == 0:
        _receive(num_nodes, port, patience_s, ready)
    else:
        _report(node, host, port, patience_s)


def _receive(num_nodes: int, port: int, patience_s: float, ready: Callable[[], None]) -> None:
    here: dict[int, socket.socket] = {}
    end = time.monotonic() + patience_s
    with socket.create_server(("", port), backlog=num_nodes) as server:
        server.settimeout(LOOK_S)
        while len(here) < num_nodes - 1:
            if time.monotonic() > end:
                missing = sorted(set(range(1, num_nodes)) - set(here))
                raise TimeoutError(f"nodes {missing} of {num_nodes} have not come within {patience_s:g} s")
            try:
                caller, _ = server.accept()
                here[int(_line(caller))] = caller
            except (TimeoutError, ValueError):
                continue
        ready()
        for caller in here.values():
            with caller, suppress(OSError):  # gone since: its absence shows when the runners meet
                caller.sendall(GO)


def _report(node: int, host: str, port: int, patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        try:
            with socket.create_connection((host, port), timeout=LOOK_S) as connection:
                connection.sendall(f"{node}\n".encode())
                connection.settimeout(max(end - time.monotonic(), LOOK_S))
                if connection.recv(len(GO)) == GO:
                    return
        except OSError:
            pass  # its name is not known yet, or nobody listens
        time.sleep(LOOK_S)
    raise TimeoutError(f"node 0 ({host}:{port}) has not let node {node} go within {patience_s:g} s")


def _line(caller: socket.socket) -> bytes:
    caller.settimeout(LOOK_S)
    line = b""
    while not line.endswith(b"\n"):
        part = caller.recv(16)
        if not part:
            raise ValueError("the caller hung up")
        line += part
    return line


if __name__ == "__main__":
    sys.exit(main())
