"""One launch on one node: start its agent, watch it, end it completely, and see that nothing is left."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from bench import recovery
from bench.design import Launch
from bench.faults.base import Site, planned_from_json
from bench.faults.runner import Injector, unavailable
from bench.node import around
from bench.node.base import MEETING_PATIENCE_S, Node, NodeLost, Scene
from bench.node.crew import Crew
from bench.node.gone import GoneWatch
from bench.node.meeting_points import MeetingPoints
from bench.node.memory import MemoryWatch
from bench.node.ship import Shipper, ship_logs
from bench.recovery.base import Place, Process
from bench.recovery.timeouts import Timeouts
from bench.results import write_json
from bench.schema import STRUCK
from bench.supervise import descendants, with_token
from bench.telemetry import watch as telemetry

SHIP_S = 1.0
LOOK_S = 0.02
AGENT_GRACE_S = 3.0  # for an agent to end by itself once the job is complete


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
        self.layer = recovery.create(record["layer"])
        self.points = MeetingPoints(node, order)
        self.starts = len(record.get("relaunches", []))  # of the whole job by the engine, after the first
        self.crew = Crew(self.scene, self.layer, self._start, self.starts)
        self.gone = GoneWatch(self.scene.events_dir, self.recorder)
        self.injector = Injector(self._site())
        self._complete_since: float | None = None
        self.goes_on = False  # in the job's next start, which the engine has been asked for
        self.unavailable: dict[str, str] = {}  # fault id -> why some node cannot do it
        self.faults: list[dict[str, Any]] = []  # those that every node can do

    def run(self) -> None:
        status = "interrupted"
        try:
            status = self._run()
        except NodeLost as error:
            status = "stopped"
            self.recorder.instant("note", text=str(error))
        finally:
            report: dict[str, Any] = {"codes": self.crew.codes}
            report |= {"unavailable": self.unavailable} if self.unavailable else {}
            left = self._clean()
            self.node.board.post(
                f"ended/{self.order}/{self.node.number}", {"status": status, "leftovers": left} | report
            )

    def _run(self) -> str:
        if self.starts == 0:  # nobody writes before all have met; what an attempt that was cut off left is not resumed
            _empty(self.scene.checkpoint_dir)
        # Where the job was started again the trainer is waited for: the store was probed before the first start.
        around.clock_and_probe(self.scene, "before", probe=self.starts == 0)
        shm_before = _shm_names()
        self.recorder.instant("load", load1=os.getloadavg()[0], cpus=len(os.sched_getaffinity(0)))
        status = "unavailable" if self._nothing_to_strike() else self._supervise()
        self.node.board.post(f"done/{self.order}/{self.node.number}", status)  # before it waits for the others
        # Nodes may share a machine: what another one is still ending, at its deadline at the latest, is not left over.
        self.scene.meet("ended", float(self.scene.record["deadline_s"]) + MEETING_PATIENCE_S)
        self.goes_on = self._stop_reason() == "relaunch"  # it decides in _clean whether checkpoints stay
        self._undo_faults()
        self.recorder.instant("leftovers", **self._leftovers(shm_before))
        self._read_back(status)
        around.clock_and_probe(self.scene, "after", probe=not self.goes_on)
        # The folder of checkpoints is shared: nobody removes it while another node reads or probes.
        self.scene.meet("clean", around.after_probe_patience_s(self.scene))
        return status

    def _read_back(self, status: str) -> None:
        """Nobody goes on, or is taken for lost, for as long as some node may still be reading."""
        board, key = self.node.board, f"reading/{self.order}"
        patience_s = around.reading_patience_s(self.scene) if status == "ok" else 0.0
        board.post(f"{key}/{self.node.number}", patience_s)
        self.scene.meet("verify")
        if status == "ok":
            around.verify(self.scene, patience_s)
        longest_s = max(float(board.read(f"{key}/{node}")) for node in range(self.node.config.num_nodes))
        self.scene.meet("verified", longest_s + MEETING_PATIENCE_S)

    def _stop_reason(self) -> str | None:
        stop = f"stop/{self.order}"
        return str(self.node.board.read(stop)) if self.node.board.has(stop) else None

    def _site(self) -> Site:
        return Site(
            faults_dir=self.node.folder.launch_dir(self.index) / "faults",
            requests_dir=self.scene.requests_dir,
            checkpoint_dir=self.scene.checkpoint_dir / self.scene.record["arms"][0],
            node=self.node.number,
            token=self.node.token,
            device="cuda" if self.node.device == "cuda" else "cpu",
            interface=self.node.interface,
            netns=self.node.netns,
            lose=lambda planned: self.crew.lose_node(planned.id),
        )

    def _nothing_to_strike(self) -> bool:
        """What a node cannot do is left out everywhere; whether that leaves nothing of the launch."""
        board, key = self.node.board, f"unavailable/{self.order}"
        planned = [planned_from_json(fault) for fault in self.scene.record["faults"]]
        board.post(f"{key}/{self.node.number}", unavailable(planned, self._site()))
        self.scene.meet("start", around.after_probe_patience_s(self.scene))
        for node in range(self.node.config.num_nodes):
            self.unavailable |= board.read(f"{key}/{node}")
        self.faults = [fault for fault in self.scene.record["faults"] if fault["id"] not in self.unavailable]
        return bool(planned) and not self.faults and self.starts == 0

    # --- the agent and its ranks
    def _start(self, generation: int, attempt: int) -> list[Process]:
        """What this node starts now; its settings are on disk before it reads them."""
        config, node, record = self.node.config, self.node, self.scene.record
        ports = self.points.for_attempt(generation, "wrapper" in self.layer.stores)
        settings = {
            "config": dataclasses.asdict(config),
            "launch": {field.name: record[field.name] for field in dataclasses.fields(Launch)}
            | {"faults": self.faults},
            "node": node.number,
            "token": node.token,
            "store_host": node.job_host,
            "store_port": node.board.port,
            "wrapper_port": ports.wrapper,
            "device": node.device,
            "events_dir": str(self.scene.events_dir),
            "checkpoint_dir": str(self.scene.checkpoint_dir),
            "faults_dir": str(node.folder.launch_dir(self.index) / "faults"),
            "requests_dir": str(self.scene.requests_dir),
            "collective_timeout_s": record["collective_timeout_s"],
            "timeouts": record["timeouts"],
        }
        write_json(self.scene.dir / "settings.json", settings)
        timeouts = Timeouts(**record["timeouts"]) if record["timeouts"] else None
        place = Place(
            launch_id=f"{node.token}-{self.index}-{generation}",
            node=node.number,
            num_nodes=config.num_nodes,
            ranks_per_node=config.ranks_per_node,
            host=node.job_host,
            agent_port=ports.agent,
            python=sys.executable,
            attempt=attempt,
            timeouts=timeouts,
            max_restarts=config.recovery.max_restarts,
            reserve=config.recovery.reserve if self.layer.takes_reserve else 0,
            base_port=node.board.port,
            wrapper_port=ports.wrapper,
            rank_port=ports.rank,
            device=node.device,
            token=node.token,
            logs_dir=self.scene.logs_dir,
            monitoring=config.recovery.ft_monitoring,
        )
        return self.layer.processes(place)

    def _supervise(self) -> str:
        env = self.scene.environment()
        self.recorder.instant("launch_begin", variables={k: env[k] for k in ("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME")})
        self.crew.start()
        status = self._watch()
        unkillable = self.node.supervisor.end_all()
        self.gone.close()
        self.points.close()
        self.recorder.instant("launch_end")
        if unkillable:
            self.recorder.instant("note", text=f"unkillable processes: {unkillable}")
            raise RuntimeError(f"processes {unkillable} cannot be killed (uninterruptible sleep); the run ends here")
        return status

    def _watch(self) -> str:
        """Until this node's part has ended, or the coordinator stops the launch."""
        memory, gpus = MemoryWatch(self.node.device == "cuda"), telemetry.watch(self.recorder, self.node.device)
        try:
            return self._until_the_end(memory, gpus)
        finally:
            gpus.close()

    def _until_the_end(self, memory: MemoryWatch, gpus: telemetry.Telemetry) -> str:
        next_ship = 0.0
        while True:
            gpus.look()
            self.gone.look()
            for record in self.injector.poll():
                if reason := record["details"].get("failed"):
                    self.recorder.instant("note", text=f"fault {record['id']} was refused by the machine: {reason}")
            if (status := self.crew.look()) is not None:
                return status
            if self._agent_lingers():
                return "ok"
            if (reason := self._stop_reason()) is not None:
                over = "gone" if self.crew.without_ranks else "ok"
                return {"deadline": "deadline", "over": over, "relaunch": "relaunch"}.get(reason, "stopped")
            memory.look()
            if time.monotonic() >= next_ship:
                self.recorder.instant("memory", **memory.take())
                self.shipper.ship()
                next_ship = time.monotonic() + SHIP_S
            time.sleep(LOOK_S)

    def _agent_lingers(self) -> bool:
        """All ranks here have ended and the job is complete, but an agent waits for others, or would start anew what a
        rank's late exit looks like to it."""
        struck = self.scene.record["kind"] == STRUCK  # other launches go on after the end of their measured part
        if not (struck and self.layer.has_agent and self.gone.job_complete and self.gone.nobody_works):
            self._complete_since = None
        elif self._complete_since is None:
            self._complete_since = time.monotonic()
        return self._complete_since is not None and time.monotonic() > self._complete_since + AGENT_GRACE_S

    # --- what is left behind
    def _leftovers(self, shm_before: set[str]) -> dict[str, Any]:
        pids = {path.stem.rsplit("-", 2)[1] for path in self.scene.events_dir.glob("*.jsonl")}
        shm = sorted(name for name in _shm_names() - shm_before if any(pid in name.split("_") for pid in pids))
        return {"pids": with_token(self.node.token), "ports": _listening(descendants(os.getpid())), "shm": shm}

    def _undo_faults(self) -> None:
        """May be called again, for what could not be undone before."""
        try:
            undone = self.injector.finish()
        except OSError as error:
            self.recorder.instant("note", text=f"what faults left could not be looked up: {error}")
            return
        for fault, evidence in undone.items():
            self.recorder.instant("undone", fault=fault, evidence=evidence)
            if "oom_kill" in evidence:
                self.recorder.instant("oom_kill", fault=fault, count=evidence["oom_kill"])

    def _clean(self) -> list[int]:
        """However the launch ended: no process, and nothing that a fault has changed, stays."""
        left = self.node.supervisor.end_all()
        self._undo_faults()
        self.recorder.close()
        self.shipper.ship()
        ship_logs(self.scene.logs_dir, self.logs_target, self.node.number)
        done_with = [self.scene.temporary_dir, *([] if self.goes_on else [self.scene.checkpoint_dir])]
        for folder in done_with:
            shutil.rmtree(folder, ignore_errors=True)
        return left


def _empty(folder: Path) -> None:
    """Remove what is in it, while others may do the same."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


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
