"""Event files of a launch that never ran: a worker loop on a fake clock, with durations that are known exactly.

`simulate` plays the worker's protocol (bench.train.loop) for every slot and returns the lines of each file and, per
save, the truth; `write_launch` puts them into a launch folder. Times in seconds. Job time is node 0's clock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.schema import EVENT_VERSION

Event = dict[str, Any]


@dataclass(frozen=True)
class ArmSpec:
    """A strategy of known durations. `durable_s` None: it writes nothing."""

    block_s: float = 0.0
    durable_s: float | None = None
    slowdown: float = 1.0  # steps that begin while the write is in flight take so many times longer
    shard_bytes: int = 1_000_000
    gathered: bool = False  # rank 0 alone writes


ARMS: Mapping[str, ArmSpec] = {
    "none": ArmSpec(),
    "sync_local": ArmSpec(block_s=0.25, durable_s=0.2),
    "nvrx_async": ArmSpec(block_s=0.02, durable_s=0.35, slowdown=1.25),
}


@dataclass(frozen=True)
class Scenario:
    """One launch. Quick: every cycle saves once with every arm. Full (`interval` given): one arm, `saves` saves."""

    arms: Mapping[str, ArmSpec] = field(default_factory=lambda: ARMS)
    nodes: int = 1
    ranks_per_node: int = 2
    step_s: float = 0.1
    gap_s: float = 0.0  # between two steps; no span covers it
    skew_s: float = 0.0  # rank r ends its steps and saves r x skew_s before the last one
    cycles: int = 4
    warmup_saves: int = 2
    control_steps: int = 4
    after_steps: int = 4
    settle_steps: int = 1
    long_cycle: int | None = None  # its saves come after three times the compute
    long_factor: float = 1.0  # and block so many times as long
    interval: int | None = None
    saves: int = 0
    index: int = 1
    kind: str = "quick"
    occasion: int = 0
    block: int = 0
    begin: float = 1000.0  # job time of the launch's begin
    startup_s: float = 3.0
    shutdown_s: float = 1.0
    node_offset_s: Sequence[float] = (0.0,)  # to be added to a node's clock; nodes beyond the list: 0
    node_drift_s: float = 0.0  # by so much the offset of nodes above 0 grows from "before" to "after"
    probe_bytes_per_s: float | None = None
    probe_fsync: bool = True
    synced_probe_bytes_per_s: float | None = None  # beside one without fsync
    verify: bool = False
    wrong_digest: bool = False
    load1: float = 0.1
    load_s: tuple[float, float] | None = None  # cold and warm load of every writing arm; None: nothing is loaded
    cached_share: float = 0.0  # of a cold load
    delete_s: float | None = None  # every save but an arm's first deletes an old checkpoint
    flush_s: float | None = None
    memory_bytes: Mapping[str, int] = field(default_factory=dict)  # peaks: host_bytes, shm_bytes, device_bytes
    d2h_bytes_per_s: float | None = None

    @property
    def world_size(self) -> int:
        return self.nodes * self.ranks_per_node

    def launch(self) -> dict[str, Any]:
        """launch.json."""
        head = {"index": self.index, "kind": self.kind, "occasion": self.occasion, "block": self.block, "seed": 1}
        tail = {"verify": self.verify, "interval": self.interval or 10, "status": "ok"}
        return head | {"arms": list(self.arms), "segments": self.segments()} | tail

    def segments(self) -> list[dict[str, Any]]:
        if self.interval is not None:
            (arm,) = self.arms
            return [self._segment(arm, 0, self.kind != "pilot", self.saves, self.interval, 0, 0)]
        return [
            self._segment(arm, cycle, cycle >= self.warmup_saves, 1, None, self.control(cycle, arm), self.after_steps)
            for cycle in range(self.cycles)
            for arm in self._order(cycle)
        ]

    def control(self, cycle: int, arm: str) -> int:
        longer = 2 * (self.after_steps + self.settle_steps + self.control_steps)
        steps = self.control_steps if cycle >= self.warmup_saves else 1
        return steps + longer if cycle == self.long_cycle and arm != "none" else steps

    def _order(self, cycle: int) -> list[str]:
        names = list(self.arms)
        turn = cycle % len(names)
        return names[turn:] + names[:turn]

    def _segment(
        self, arm: str, cycle: int, measured: bool, saves: int, interval: int | None, control: int, after: int
    ) -> dict[str, Any]:
        numbers = {"control_steps": control, "after_steps": after, "settle_steps": self.settle_steps}
        return {"arm": arm, "cycle": cycle, "measured": measured, "saves": saves, "interval": interval} | numbers


@dataclass(frozen=True)
class Truth:
    """What the accounting has to find of one save."""

    arm: str
    save: int
    cycle: int
    blocking_s: float
    durable_s: float | None
    cost_s: float  # blocking time and what the steps during the write took longer
    slow_steps: int
    period_s: float | None = None


class File:
    """The events of one process, on its node's clock."""

    def __init__(
        self, role: str, scenario: Scenario, node: int, local_rank: int, begin: float, pid: int | None = None
    ) -> None:
        offsets = scenario.node_offset_s
        self.offset_s = offsets[node] if node < len(offsets) else 0.0
        rank = -1 if local_rank < 0 else node * scenario.ranks_per_node + local_rank
        self.rank, self.node, self.local_rank = rank, node, local_rank
        self.pid = 100 + 10 * node + local_rank if pid is None else pid
        self.name = f"{role}-n{node}-r{local_rank}-{self.pid}-7.jsonl"
        identity = {"role": role, "launch": scenario.index, "node": node, "local_rank": local_rank, "rank": rank}
        self.events: list[Event] = []
        self._add(
            {"kind": "meta", "version": EVENT_VERSION, "pid": self.pid, "pid_start": 7}
            | identity
            | {"world_size": scenario.world_size, "incarnation": 0, "mono": begin - self.offset_s, "wall": begin}
        )

    def _add(self, event: Event) -> None:
        self.events.append(event | {"seq": len(self.events)})

    def span(self, name: str, t0: float, t1: float, **attributes: Any) -> None:
        t0, t1 = t0 - self.offset_s, t1 - self.offset_s
        self._add({"kind": "begin", "name": name, "t": t0})
        self._add({"kind": "span", "name": name, "t0": t0, "t1": t1, **attributes})

    def begin(self, name: str, t: float) -> None:
        self._add({"kind": "begin", "name": name, "t": t - self.offset_s})

    def instant(self, name: str, t: float, **attributes: Any) -> None:
        self._add({"kind": "instant", "name": name, "t": t - self.offset_s, **attributes})

    def text(self) -> str:
        return "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in self.events)


class Job:
    """Plays the loop: `t` is job time, the same on all ranks but for the skew."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.truths: list[Truth] = []
        self.t = scenario.begin + scenario.startup_s
        slots = [(n, r) for n in range(scenario.nodes) for r in range(scenario.ranks_per_node)]
        self.workers = [File("worker", scenario, n, r, scenario.begin + 0.5) for n, r in slots]
        self.writers = [File("writer", scenario, n, r, scenario.begin + 0.6) for n, r in slots]
        self.runners = [File("runner", scenario, n, -1, scenario.begin - 1) for n in range(scenario.nodes)]
        self.step_number = 0
        self.save_count = dict.fromkeys(scenario.arms, 0)
        self.durable_at = -1.0  # job time until which a write is in flight

    def play(self) -> None:
        scenario = self.scenario
        self._before()
        for _ in range(3):
            self.step("warm", next(iter(scenario.arms)), -1, -1)
        for index, segment in enumerate(scenario.segments()):
            self._segment(index, segment)
        self._end()

    def _segment(self, index: int, segment: dict[str, Any]) -> None:
        arm, cycle = segment["arm"], segment["cycle"]
        if segment["interval"] is not None:
            for number in range(segment["saves"]):
                for _ in range(segment["interval"]):
                    self.step("plain", arm, cycle, index)
                self.save(arm, cycle, index, segment["measured"] and number >= self.scenario.warmup_saves)
            return
        for _ in range(segment["control_steps"]):
            self.step("control" if segment["measured"] else "warm", arm, cycle, index)
        truth = self.save(arm, cycle, index, segment["measured"])
        steps, slow, busy = 0, 0, True
        while busy or steps < segment["after_steps"]:
            busy = self.t < self.durable_at
            slow += self.step("after", arm, cycle, index)
            steps += 1
        extra_s = slow * (self.scenario.arms[arm].slowdown - 1) * self.scenario.step_s
        self.truths.append(Truth(**(truth | {"cost_s": truth["blocking_s"] + extra_s, "slow_steps": slow})))
        for _ in range(segment["settle_steps"]):
            self.step("settle", arm, cycle, index)

    def step(self, use: str, arm: str, cycle: int, segment: int) -> bool:
        """One step; True if it was slowed by a write."""
        scenario = self.scenario
        self.step_number += 1
        begin = self.t + scenario.gap_s
        slow = begin < self.durable_at
        end = begin + scenario.step_s * (scenario.arms[arm].slowdown if slow else 1.0)
        for worker in self.workers:
            worker.span(
                "step",
                begin,
                end - self._ahead(worker),
                step=self.step_number,
                arm=arm,
                cycle=cycle,
                use=use,
                segment=segment,
            )
        self.t = end
        return slow

    def _ahead(self, worker: File) -> float:
        """By how much a rank is ahead of the last one (rank 0)."""
        return worker.rank * self.scenario.skew_s

    def save(self, arm: str, cycle: int, segment: int, measured: bool) -> dict[str, Any]:
        spec, number = self.scenario.arms[arm], self.save_count[arm]
        self.save_count[arm] += 1
        wait_s = max(self.durable_at - self.t, 0.0)  # one write at a time: the save waits for the one before
        block_s = spec.block_s * (self.scenario.long_factor if cycle == self.scenario.long_cycle else 1.0)
        last_in, last_out = self.t, self.t + wait_s + block_s
        durable = None if spec.durable_s is None else last_in + wait_s + spec.durable_s
        about = {"arm": arm, "save": number}
        full = about | {"cycle": cycle, "step": self.step_number, "segment": segment, "measured": measured}
        for worker, writer in zip(self.workers, self.writers, strict=True):
            out = last_out - min(self._ahead(worker), block_s)
            worker.span("arrive", last_in - self._ahead(worker), last_in, **about)
            # The save of a synchronous arm contains its durable; a background arm's writer process records it.
            begin = {"kind": "begin", "name": "save", "t": last_in - worker.offset_s}
            worker._add(begin)
            if durable is not None and (worker.rank == 0 or not spec.gathered):
                file = writer if durable > last_out else worker
                if number and self.scenario.delete_s is not None:
                    begin_s = last_in + wait_s
                    told = {"arm": arm, "bytes": 1, "t_begin": begin_s - file.offset_s}
                    file.instant("deleted", begin_s + self.scenario.delete_s, **told)
                self._durable(file, about, durable, last_in, spec, worker.rank)
            phases = [["wait_previous", last_in, last_in + wait_s], ["write", last_in + wait_s, out]]
            times = {"t0": last_in - worker.offset_s, "t1": out - worker.offset_s}
            worker._add({"kind": "span", "name": "save", **times, **full, "phases": phases})
            if worker.rank % self.scenario.ranks_per_node == 0:
                worker.instant("dirty", out, **about, dirty_bytes=4096)
            worker.span("peers", out, last_out, **about)
        self.t = last_out
        if durable is not None:
            self.durable_at = max(durable, last_out)
        blocking_s = last_out - last_in
        durable_s = None if durable is None else durable - last_in
        truth = {"arm": arm, "save": number, "cycle": cycle, "blocking_s": blocking_s, "durable_s": durable_s}
        return truth | {"cost_s": blocking_s, "slow_steps": 0}

    def _durable(self, file: File, about: Event, t: float, begin: float, spec: ArmSpec, rank: int) -> None:
        earlier = t - rank * min(self.scenario.skew_s, (t - begin) / self.scenario.world_size)  # the last one is rank 0
        sizes = {"bytes": spec.shard_bytes, "t_begin": begin - file.offset_s}
        file.instant("durable", earlier, **about, step=self.step_number, **sizes)

    # --- around it
    def _before(self) -> None:
        scenario = self.scenario
        for node, runner in enumerate(self.runners):
            clock = {"offset_s": runner.offset_s, "uncertainty_s": 1e-5 if node else 0.0}
            runner.instant("clock", scenario.begin - 0.9, **clock, when="before")
            self._probe(runner, scenario.begin - 0.8, "before")
            runner.instant("load", scenario.begin - 0.1, load1=scenario.load1, cpus=8)
            runner.instant("launch_begin", scenario.begin)

    def _probe(self, runner: File, t: float, when: str) -> None:
        scenario = self.scenario
        probes = ((scenario.probe_fsync, scenario.probe_bytes_per_s), (True, scenario.synced_probe_bytes_per_s))
        for fsync, rate in probes:
            if rate is not None:
                size = {"processes": scenario.ranks_per_node, "bytes_per_process": 1_000_000, "fsync": fsync}
                runner.instant("probe", t, when=when, bytes_per_s=rate / scenario.nodes, **size)

    def _end(self) -> None:
        scenario = self.scenario
        for worker in self.workers:
            if scenario.d2h_bytes_per_s is not None:
                worker.instant("d2h", self.t, bytes_per_s=scenario.d2h_bytes_per_s)
        if self.t < self.durable_at:
            for worker in self.workers:
                worker.span("drain", self.t, self.durable_at, arm=list(scenario.arms)[-1])
            self.t = self.durable_at
        for worker in self.workers:
            worker.instant("measured_end", self.t)
        loaded = self._load()
        end = loaded + scenario.shutdown_s
        for node, runner in enumerate(self.runners):
            if scenario.memory_bytes:
                runner.instant("memory", self.t - 0.01, **scenario.memory_bytes)
                runner.instant("memory", end, **{name: 9 * size for name, size in scenario.memory_bytes.items()})
            runner.instant("launch_end", end)
            runner.instant("leftovers", end + 0.1, pids=[], ports=[], shm=[])
            drift_s = scenario.node_drift_s if node else 0.0
            clock = {"offset_s": runner.offset_s + drift_s, "uncertainty_s": 1e-5 if node else 0.0}
            self._probe(runner, end + 0.2, "after")
            runner.instant("clock", end + 0.5, **clock, when="after")
        if scenario.verify:
            self._verify(end)

    def _writing(self) -> list[str]:
        return [arm for arm, spec in self.scenario.arms.items() if spec.durable_s is not None]

    def _load(self) -> float:
        """After the measured end a cold and a warm load of each writing arm on all ranks; returns their end."""
        t = self.t
        for arm in self._writing() if self.scenario.load_s is not None else ():
            for cold, seconds in zip((True, False), self.scenario.load_s or (), strict=True):
                for worker in self.workers:
                    node, local_rank = divmod(worker.rank, self.scenario.ranks_per_node)
                    first = local_rank == 0
                    if cold and first and self.scenario.flush_s is not None:
                        flush_s = self.scenario.flush_s * (1 + node)
                        worker.instant("flush", t - self._ahead(worker), arm=arm, seconds=flush_s, bytes=1)
                    share = self.scenario.cached_share if cold and first else None
                    begin = t - self._ahead(worker)
                    worker.span(
                        "load", begin, t + seconds - self._ahead(worker), arm=arm, cold=cold, cached_share=share
                    )
                t += seconds
        return t

    def _verify(self, end: float) -> None:
        for arm in self._writing():
            for worker in self.workers:
                digest = f"{arm}-{worker.rank}"
                worker.instant("verify_save", self.t, arm=arm, step=self.step_number, digest=digest)
                read = "other" if self.scenario.wrong_digest and worker.rank == 0 else digest
                runner = self.runners[worker.rank // self.scenario.ranks_per_node]
                about = {"arm": arm, "step": self.step_number, "rank": worker.rank}
                runner.instant("verified", end + 0.3, **about, digest=read, complete=True)

    @property
    def files(self) -> list[File]:
        return [*self.workers, *self.writers, *self.runners]


def simulate(scenario: Scenario) -> Job:
    job = Job(scenario)
    job.play()
    return job


def write_launch(folder: Path, scenario: Scenario) -> Job:
    """Simulate a launch into `folder` (launch.json and events/)."""
    job = simulate(scenario)
    write_files(folder, scenario.launch(), job.files)
    return job


def write_files(folder: Path, launch: dict[str, Any], files: Sequence[File]) -> None:
    (folder / "events").mkdir(parents=True, exist_ok=True)
    (folder / "launch.json").write_text(json.dumps(launch))
    for file in files:
        (folder / "events" / file.name).write_text(file.text())


def run_json(scenario: Scenario, **config: Any) -> dict[str, Any]:
    """The content of run.json that belongs to launches of `scenario`; `config` replaces keys of the configuration."""
    design = "full" if scenario.interval is not None else "quick"
    resolved: dict[str, Any] = {
        "scenario": "synthetic",
        "num_nodes": scenario.nodes,
        "ranks_per_node": scenario.ranks_per_node,
        "checkpoint": {"arms": list(scenario.arms), "interval": "auto"},
        "design": {"name": design, "warmup_saves": scenario.warmup_saves},
        "storage": {"fsync": True, "provisioned_bytes_per_s": None},
        "train": {"compute": "real", "step_s": None},
        "job": {"step_s": None, "interval_steps": None, "period_s": None},
        "cluster": {"name": "local"},
    }
    return {
        "config": resolved | config,
        "environment": {"machine": "m", "device": "cpu", "versions": {"torch": "2"}, "one_filesystem": False},
        "occasions": [],
        "budget": {"minutes": None},
        "interrupted": False,
    }
