"""`python -m bench.node`: one node's runner. Started by a launcher, once per node and run."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType

from bench.checkpoint import storage
from bench.config import run_from_json
from bench.errors import BadInput
from bench.launch.base import RELAUNCH
from bench.node.base import Node, Stopped
from bench.node.board import Board
from bench.node.clocks import ClockServer
from bench.node.coordinate import Coordinator
from bench.node.launch import LaunchRunner
from bench.node.pulse import Pulse
from bench.node.read_pilot import read_pilot
from bench.results import ResultFolder
from bench.supervise import Supervisor, die_with_parent

GOODBYE_S = 15.0  # how long node 0 keeps the board open for the others to read the end


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.node", description="Run one node's part of a run.")
    parser.add_argument("--result", type=Path, required=True, help="the run's result folder (seen by every node)")
    parser.add_argument("--node", type=int, required=True, help="this node's number, from 0")
    parser.add_argument("--host", required=True, help="address of node 0")
    parser.add_argument("--port", type=int, required=True, help="port of node 0's board")
    parser.add_argument(
        "--work-dir", type=Path, required=True, help="node-local folder for events, logs, temporary files"
    )
    parser.add_argument("--checkpoint-dir", type=Path, required=True, help="where checkpoints are written")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument(
        "--die-with-parent", action="store_true", help="end when the process that started this one ends"
    )
    parser.add_argument("--ranks-host", help="address of node 0 for agents and ranks, if other than --host")
    parser.add_argument("--interface", help="link of this node, made for this run, that network_partition may cut")
    parser.add_argument("--netns", help="named network namespace of --interface, if not the runner's own")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    if given.die_with_parent:
        die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a terminal's Ctrl-C reaches the driver, which asks for an orderly end
    folder = ResultFolder(given.result)
    run = folder.read_run()
    config, token = run_from_json(run["config"]), run["token"]
    supervisor = Supervisor()
    board = Board(given.host, given.port, serve=given.node == 0)
    clock = ClockServer() if given.node == 0 else None
    if clock is not None:
        board.post("clock", clock.port)
    node = Node(
        given.node,
        given.host,
        board,
        config,
        folder,
        token,
        given.work_dir,
        given.checkpoint_dir,
        given.device,
        supervisor,
        given.ranks_host,
        given.interface,
        given.netns,
    )
    Pulse(board, given.node).start()
    coordinator = Coordinator(board, config, folder, read_pilot) if given.node == 0 else None
    try:
        storage.make_directory(node.work_dir, "work_dir")
        if coordinator is not None:
            coordinator.start()
        code = work(node)
    except Stopped:
        return 130
    except BadInput as error:
        print(f"bench: node {given.node}: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        if coordinator is not None:
            coordinator.cancelled.set()
            if coordinator.is_alive():
                coordinator.join(GOODBYE_S)
            _part(board, config.num_nodes)
        else:
            board.post(f"bye/{given.node}", True)
        supervisor.end_all()
        shutil.rmtree(given.work_dir, ignore_errors=True)
    return code


def work(node: Node) -> int:
    """Carry out what the coordinator orders. Returns the exit code: 0, or RELAUNCH for the engine to see."""
    order = 0
    while (message := node.board.wait(f"order/{order}"))["action"] == "launch":
        LaunchRunner(node, order, message["record"]).run()
        order += 1
    return RELAUNCH if message["action"] == "relaunch" else 0


def _part(board: Board, num_nodes: int) -> None:
    """Node 0 leaves last: the others still read from its board."""
    for other in range(1, num_nodes):
        try:
            board.wait(f"bye/{other}", GOODBYE_S)
        except TimeoutError:
            return


def _stop(signum: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough; what follows must not be interrupted again
    raise Stopped


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the clock's and store's threads have nothing left to do
