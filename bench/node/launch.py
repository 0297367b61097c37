"""One launch on one node: start its agent, watch it, end it completely, and see that nothing is left."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

import psutil

from bench import recovery
from bench.design import Launch
from bench.node import around
from bench.node.base import MEETING_PATIENCE_S, Node, Scene
from bench.node.memory import MemoryWatch
from bench.node.ship import Shipper, ship_logs
from bench.recovery.base import Place, Process
from bench.supervise import descendants, with_token

SHIP_S = 1.0


class LaunchRunner:
    """`run()` reports to the board under ended/<order>/<node>: {"status", "codes", "leftovers"}."""

    def __init__(self, node: Node, order: int, record: dict[str, Any]) -> None:
        shutil.rmtree(node.work_dir / f"launch-{record['index']}", ignore_errors=True)  # an attempt before this one
        self.scene = Scene.set(node, order, record)
        self.node, self.order, self.index = node, order, int(record["index"])
        self.recorder = self.scene.recorder
        target = node.folder.launch_dir(self.index)
        self.shipper = Shipper(self.scene.events_dir, target / "events")
        self.logs_target = target / "logs"
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
        around.clock_and_probe(self.scene, "before")
        shm_before = _shm_names()
        self.recorder.instant("load", load1=os.getloadavg()[0], cpus=len(os.sched_getaffinity(0)))
        self.scene.meet("start")
        status = self._supervise(self._processes())
        self.scene.meet("ended")  # nodes may share a machine: what another node is still ending is not left over
        self.recorder.instant("leftovers", **self._leftovers(shm_before))
        self.scene.meet("verify")
        if status == "ok":
            around.verify(self.scene)
        around.clock_and_probe(self.scene, "after")
        self.scene.meet("clean")  # the folder of checkpoints is shared: nobody removes it while another node reads
        return status

    # --- the agent and its ranks
    def _processes(self) -> list[Process]:
        config, node, record = self.node.config, self.node, self.scene.record
        settings = {
            "config": dataclasses.asdict(config),
            "launch": {field.name: record[field.name] for field in dataclasses.fields(Launch)},
            "node": node.number,
            "token": node.token,
            "store_host": node.host,
            "store_port": node.board.port,
            "device": node.device,
            "events_dir": str(self.scene.events_dir),
            "checkpoint_dir": str(self.scene.checkpoint_dir),
            "collective_timeout_s": record["collective_timeout_s"],
        }
        (self.scene.dir / "settings.json").write_text(json.dumps(settings))
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

    def _supervise(self, processes: Sequence[Process]) -> str:
        supervisor, env = self.node.supervisor, self.scene.environment()
        self.recorder.instant("launch_begin", variables={k: env[k] for k in ("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME")})
        names = {}
        for process in processes:
            log = self.scene.logs_dir / f"{process.name}.log"
            names[supervisor.start(process.command, env | process.env, log)] = process
        status = self._watch(names)
        unkillable = supervisor.end_all()
        self.recorder.instant("launch_end")
        if unkillable:
            self.recorder.instant("note", text=f"unkillable processes: {unkillable}")
            raise RuntimeError(f"processes {unkillable} cannot be killed (uninterruptible sleep); the run ends here")
        return status

    def _watch(self, running: dict[int, Process]) -> str:
        """Until all that was started has ended, or the coordinator stops the launch. "failed" as soon as one failed."""
        stop, next_ship = f"stop/{self.order}", 0.0
        memory = MemoryWatch(self.node.device == "cuda")
        while running:
            if self._reaped_a_failure(running):
                return "failed"
            if self.node.board.has(stop):
                return "deadline" if self.node.board.read(stop) == "deadline" else "stopped"
            memory.look()
            if time.monotonic() >= next_ship:
                self.recorder.instant("memory", **memory.take())
                self.shipper.ship()
                next_ship = time.monotonic() + SHIP_S
            time.sleep(0.02)
        return "ok"

    def _reaped_a_failure(self, running: dict[int, Process]) -> bool:
        failed = False
        for ended in self.node.supervisor.reap():
            process = running.pop(ended.pid, None)
            if process is None:
                continue  # an adopted orphan
            self.codes[process.name] = ended.code
            self.recorder.instant("exited", local_rank=process.local_rank, pid=ended.pid, code=ended.code)
            failed = failed or ended.code != 0
        return failed

    # --- what is left behind
    def _leftovers(self, shm_before: set[str]) -> dict[str, Any]:
        pids = {path.stem.split("-")[3] for path in self.scene.events_dir.glob("*.jsonl")}
        shm = sorted(name for name in _shm_names() - shm_before if any(pid in name.split("_") for pid in pids))
        return {"pids": with_token(self.node.token), "ports": _listening(descendants(os.getpid())), "shm": shm}

    def _clean(self) -> list[int]:
        left = self.node.supervisor.end_all()
        self.recorder.close()
        self.shipper.ship()
        ship_logs(self.scene.logs_dir, self.logs_target, self.node.number)
        for folder in (self.scene.checkpoint_dir, self.scene.temporary_dir):
            shutil.rmtree(folder, ignore_errors=True)
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
            connections = psutil.Process(pid).net_connections("inet")
            ports += [c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN]
        except psutil.Error:
            continue
    return ports
