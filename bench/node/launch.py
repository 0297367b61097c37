"""One launch on one node: measure around it, start its agent, watch it, end it completely, read back what it wrote."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench import recovery
from bench.config import Run
from bench.design import Launch
from bench.node import clocks
from bench.node.board import Board
from bench.node.memory import MemoryWatch
from bench.node.ship import Shipper, ship_logs
from bench.record import Recorder
from bench.recovery.base import Place, Process
from bench.results import ResultFolder
from bench.supervise import TOKEN, Supervisor, descendants, with_token

SHIP_S = 1.0
MEETING_PATIENCE_S = 120.0
PROBE_PATIENCE_S = 300.0
VERIFY_PATIENCE_S = 300.0


class Stopped(Exception):
    """This runner was asked to end (SIGTERM)."""


@dataclass(frozen=True)
class Node:
    """What a runner knows for the whole run."""

    number: int
    host: str  # of node 0
    board: Board
    config: Run
    folder: ResultFolder
    token: str
    work_dir: Path
    checkpoint_dir: Path
    device: str
    supervisor: Supervisor


class LaunchRunner:
    """`run()` reports to the board under ended/<order>/<node>: {"status", "codes", "leftovers"}."""

    def __init__(self, node: Node, order: int, record: dict[str, Any]) -> None:
        self.node = node
        self.order = order
        self.record = record
        self.index: int = record["index"]
        self.dir = node.work_dir / f"launch-{self.index}"
        self.events_dir, self.logs_dir = self.dir / "events", self.dir / "logs"
        self.checkpoint_dir = node.checkpoint_dir / f"launch-{self.index}"
        shutil.rmtree(self.dir, ignore_errors=True)  # events of an attempt that nobody could clean up
        for folder in (self.events_dir, self.logs_dir, self.checkpoint_dir):
            folder.mkdir(parents=True, exist_ok=True)
        target = node.folder.launch_dir(self.index)
        self.shipper = Shipper(self.events_dir, target / "events")
        self.logs_target = target / "logs"
        self.recorder = Recorder(
            self.events_dir,
            role="runner",
            launch=self.index,
            node=node.number,
            local_rank=-1,
            rank=-1,
            world_size=node.config.world_size,
            incarnation=0,
            token=node.token,
        )
        self.codes: dict[str, int] = {}

    def run(self) -> None:
        status = "interrupted"
        try:
            status = self._run()
        finally:
            left = self._clean()
            self.node.board.post(
                f"ended/{self.order}/{self.node.number}", {"status": status, "codes": self.codes, "leftovers": left}
            )

    def _run(self) -> str:
        self._around("before")
        shm_before = _shm_names()
        self.recorder.instant("load", load1=os.getloadavg()[0], cpus=len(os.sched_getaffinity(0)))
        self._meet("start")
        status = self._supervise(self._processes())
        self.recorder.instant("leftovers", **self._leftovers(shm_before))
        self._meet("verify")
        if status == "ok":
            self._verify()
        self._around("after")
        self._meet("clean")  # the folder of checkpoints is shared: nobody removes it while another node reads
        return status

    def _meet(self, name: str) -> None:
        self.node.board.meet(f"{name}/{self.order}", self.node.config.num_nodes, MEETING_PATIENCE_S)

    # --- the agent and its ranks
    def _processes(self) -> list[Process]:
        config, node = self.node.config, self.node
        settings = {
            "config": dataclasses.asdict(config),
            "launch": {field.name: self.record[field.name] for field in dataclasses.fields(Launch)},
            "node": node.number,
            "token": node.token,
            "store_host": node.host,
            "store_port": node.board.port,
            "device": node.device,
            "events_dir": str(self.events_dir),
            "checkpoint_dir": str(self.checkpoint_dir),
            "collective_timeout_s": self.record["collective_timeout_s"],
        }
        (self.dir / "settings.json").write_text(json.dumps(settings))
        place = Place(
            launch_id=f"{node.token}-{self.index}",
            node=node.number,
            num_nodes=config.num_nodes,
            ranks_per_node=config.ranks_per_node,
            host=node.host,
            agent_port=self._agent_port(),
            python=sys.executable,
        )
        return recovery.create(config.recovery.layer).processes(place)

    def _agent_port(self) -> int:
        """A port that is free on node 0 now, told to all nodes."""
        key = f"agent_port/{self.order}"
        if self.node.number == 0:
            with socket.socket() as probe:
                probe.bind(("", 0))
                self.node.board.post(key, probe.getsockname()[1])
        return int(self.node.board.wait(key, MEETING_PATIENCE_S))

    def environment(self) -> dict[str, str]:
        """For every agent alike: threads, interface, token; the user's own variables win, and are recorded."""
        threads = str(self.node.config.train.threads)
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        defaults = {
            "OMP_NUM_THREADS": threads,
            "GLOO_SOCKET_IFNAME": self.node.config.cluster.interface or interface_to(self.node.host),
        }
        fixed = {
            TOKEN: self.node.token,
            "BENCH_LAUNCH": str(self.dir / "settings.json"),
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.dir),
        }
        return defaults | dict(os.environ) | fixed

    def _supervise(self, processes: Sequence[Process]) -> str:
        supervisor, env = self.node.supervisor, self.environment()
        self.recorder.instant("launch_begin", variables={k: env[k] for k in ("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME")})
        names = {}
        for process in processes:
            pid = supervisor.start(process.command, env | process.env, self.logs_dir / f"{process.name}.log")
            names[pid] = process
        status = self._watch(names)
        unkillable = supervisor.end_all()
        self.recorder.instant("launch_end")
        if unkillable:
            self.recorder.instant("note", text=f"unkillable processes: {unkillable}")
            raise RuntimeError(f"processes {unkillable} cannot be killed (uninterruptible sleep); the run ends here")
        return status

    def _watch(self, running: dict[int, Process]) -> str:
        """Until all that was started has ended, or the coordinator stops the launch. "failed" as soon as one failed."""
        status, next_ship = "ok", 0.0
        stop = f"stop/{self.order}"
        memory = MemoryWatch(self.node.device == "cuda")
        while running:
            for ended in self.node.supervisor.reap():
                process = running.pop(ended.pid, None)
                if process is None:
                    continue  # an adopted orphan
                self.codes[process.name] = ended.code
                self.recorder.instant("exited", local_rank=process.local_rank, pid=ended.pid, code=ended.code)
                status = status if ended.code == 0 else "failed"
            if status == "failed":
                return status
            if self.node.board.has(stop):
                return "deadline" if self.node.board.read(stop) == "deadline" else "stopped"
            memory.look()
            if time.monotonic() >= next_ship:
                self.recorder.instant("memory", **memory.take())
                self.shipper.ship()
                next_ship = time.monotonic() + SHIP_S
            time.sleep(0.02)
        return status

    # --- around the launch
    def _around(self, when: str) -> None:
        """Clock offset and storage probe, on all nodes at the same time."""
        port = int(self.node.board.wait("clock", MEETING_PATIENCE_S))
        offset = clocks.measure(self.node.host, port)
        self.recorder.instant("clock", when=when, **dataclasses.asdict(offset))
        size = self.node.config.predicted_checkpoint_bytes
        if self.node.config.storage.probe and size:
            self._meet(f"probe-{when}")
            self._probe(when, size // self.node.config.world_size)

    def _probe(self, when: str, bytes_per_process: int) -> None:
        config, count = self.node.config, self.node.config.ranks_per_node
        start_at = time.monotonic() + 0.3  # interpreters are up by then
        pids = {}
        for number in range(count):
            command = [
                sys.executable,
                "-m",
                "bench.checkpoint.probe",
                str(self.checkpoint_dir),
                f"n{self.node.number}-{number}",
            ]
            command += [str(bytes_per_process), str(config.storage.fsync), str(start_at)]
            log = self.dir / f"probe-{when}-{number}.out"
            pids[self.node.supervisor.start(command, self.environment(), log)] = log
        codes = self.node.supervisor.wait(list(pids), PROBE_PATIENCE_S)
        self.node.supervisor.end_all()
        if len(codes) < count or any(codes.values()):
            self.recorder.instant(
                "note", text=f"storage probe {when} the launch failed: exit codes {sorted(codes.values())}"
            )
            return
        spans = [json.loads(log.read_text()) for log in pids.values()]
        seconds = max(s["t1"] for s in spans) - min(s["t0"] for s in spans)
        self.recorder.instant(
            "probe",
            when=when,
            bytes_per_s=bytes_per_process * count / seconds,
            processes=count,
            bytes_per_process=bytes_per_process,
            fsync=config.storage.fsync,
        )

    def _verify(self) -> None:
        """Read back, in a process of its own, the shards that this node's ranks wrote, and record their digests."""
        saves = sorted(self._saves_to_verify())
        outs = {save: self.dir / f"verify-{save[0]}.json" for save in saves}
        pids = [self._start_verifying(arm, step, outs[arm, step]) for arm, step in saves]
        self.node.supervisor.wait(pids, VERIFY_PATIENCE_S)
        self.node.supervisor.end_all()
        first = self.node.number * self.node.config.ranks_per_node
        for (arm, step), out in outs.items():
            found: dict[str, Any] = {"complete": False, "digests": {}}
            if out.is_file():
                found = json.loads(out.read_text())
            for rank in range(first, first + self.node.config.ranks_per_node):
                digest = found["digests"].get(str(rank))
                self.recorder.instant(
                    "verified", arm=arm, step=step, rank=rank, digest=digest, complete=found["complete"]
                )

    def _start_verifying(self, arm: str, step: int, out: Path) -> int:
        command = [sys.executable, "-m", "bench.checkpoint.verify", str(self.checkpoint_dir / arm), str(step), str(out)]
        return self.node.supervisor.start(command, self.environment(), self.logs_dir / f"verify-{arm}.log")

    def _saves_to_verify(self) -> set[tuple[str, int]]:
        saves = set()
        for path in self.events_dir.glob("worker-*.jsonl"):
            for line in path.read_text().splitlines():
                if '"verify_save"' in line:
                    event = json.loads(line)
                    saves.add((event["arm"], event["step"]))
        return saves

    # --- what is left behind
    def _leftovers(self, shm_before: set[str]) -> dict[str, Any]:
        pids = {path.stem.split("-")[3] for path in self.events_dir.glob("*.jsonl")}
        shm = sorted(name for name in _shm_names() - shm_before if any(pid in name.split("_") for pid in pids))
        return {"pids": with_token(self.node.token), "ports": _listening(descendants(os.getpid())), "shm": shm}

    def _clean(self) -> list[int]:
        left = self.node.supervisor.end_all()
        self.recorder.close()
        self.shipper.ship()
        ship_logs(self.logs_dir, self.logs_target, self.node.number)
        shutil.rmtree(self.checkpoint_dir, ignore_errors=True)
        return left


def _shm_names() -> set[str]:
    try:
        return set(os.listdir("/dev/shm"))
    except OSError:
        return set()


def _listening(pids: Sequence[int]) -> list[int]:
    ports = []
    for pid in pids:
        try:
            ports += [
                c.laddr.port for c in psutil.Process(pid).net_connections("inet") if c.status == psutil.CONN_LISTEN
            ]
        except psutil.Error:
            continue
    return ports


def interface_to(host: str) -> str:
    """Name of the network interface by which this node reaches `host` (gloo takes a concrete name only)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing: it only picks the route
        address = probe.getsockname()[0]
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            return name
    return "lo"
