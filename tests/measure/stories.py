"""Event files of launches that faults struck and that never ran: told on a fake clock, every delay known exactly.

A `Story` writes what workers, writers and runners would have recorded; the functions below tell whole ones. `t` is job
time, s: node 0's clock.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.measure.events import LaunchRecord, read_launch
from tests.measure.streams import Event, File, Scenario, write_files

ARM = "sync_local"


@dataclass(frozen=True)
class Setting:
    """What a story's launches have in common. Seconds."""

    layer: str = "in_job"
    nodes: int = 1
    ranks_per_node: int = 2
    reserve: int = 0  # the last so many ranks wait
    interval: int = 4
    saves: int = 3
    step_s: float = 0.1
    save_s: float = 0.3
    load_s: float = 0.5
    check_s: float = 0.0  # of each state check
    index: int = 1
    kind: str = "recovery"
    block: int = 0
    begin: float = 1000.0
    node_offset_s: Sequence[float] = (0.0,)
    timeouts: dict[str, float] = field(default_factory=dict)

    @property
    def last_step(self) -> int:
        return self.interval * self.saves

    @property
    def active(self) -> int:
        return self.nodes * self.ranks_per_node - self.reserve

    @property
    def scenario(self) -> Scenario:
        """For the files: identities and clocks."""
        return Scenario(
            nodes=self.nodes, ranks_per_node=self.ranks_per_node, index=self.index, node_offset_s=self.node_offset_s
        )


def loss_of(step: int) -> float:
    return 5.0 - step / 7


class Story:
    """A launch being told. Slots are (node, local rank); `ranks` holds the file of each rank's process."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.t = setting.begin
        self.step = 0
        self.runners = [File("runner", setting.scenario, n, -1, self.t - 1, 10 + n) for n in range(setting.nodes)]
        self.earlier_runners: list[File] = []
        self.workers: list[File] = []
        self.writers: list[File] = []
        self.ranks: list[File] = []
        self.faults: list[Event] = []
        self.planned: list[dict[str, Any]] = []
        self.unavailable: dict[str, str] = {}
        self.end = "completed"
        self.given_up: str | None = None
        self.ranks_by_node: list[int] = []  # empty: an older record, which does not say it
        self.attempts: dict[int, int] = {}  # pid -> attempts
        self.exact = True  # losses and digests as if nothing had happened
        self._pid = 1000
        for runner in self.runners:
            clock = {"offset_s": runner.offset_s, "uncertainty_s": 1e-5 if runner.node else 0.0}
            runner.instant("clock", self.t - 0.9, **clock, when="before")
            runner.instant("load", self.t - 0.1, load1=0.1, cpus=8)
            runner.instant("launch_begin", self.t)
            runner.instant("clock", self.t + 1000, **clock, when="after")

    # --- processes
    def process(self, slot: tuple[int, int], role: str = "worker") -> File:
        self._pid += 1
        file = File(role, self.setting.scenario, *slot, self.t, self._pid)
        (self.workers if role == "worker" else self.writers).append(file)
        return file

    @property
    def slots(self) -> list[tuple[int, int]]:
        return [(n, r) for n in range(self.setting.nodes) for r in range(self.setting.ranks_per_node)]

    def agents(self) -> None:
        for runner in self.runners:
            runner.instant("started", self.t, pid=500 + runner.node, pid_start=1, local_rank=None, attempt=0)

    def gone(self, file: File, t: float | None = None, role: str = "worker") -> None:
        about = {"pid": file.pid, "pid_start": 7, "role": role, "local_rank": file.local_rank, "code": None}
        self.runners[file.node].instant("gone", self.t if t is None else t, **about)

    def exited(self, file: File, t: float | None = None, code: int = -9) -> None:
        about = {"local_rank": file.local_rank, "pid": file.pid, "code": code}
        self.runners[file.node].instant("exited", self.t if t is None else t, **about)

    def log_line(self, t: float | None = None, node: int = 0) -> None:
        self.runners[node].instant("detected", self.t if t is None else t, source="launcher_log", text="failed")

    def job_again(self, boots: tuple[str, str] = ("one", "one"), clocks_s: Sequence[float] | None = None) -> None:
        """The engine starts the job again: other runners, on machines with other clocks if `clocks_s` is given."""
        for runner in self.runners:
            runner.events[0]["boot"] = boots[0]
        if clocks_s is not None:
            self.setting = replace(self.setting, node_offset_s=clocks_s)
        numbers = range(self.setting.nodes)
        first = 50 + len(self.earlier_runners)
        again = [File("runner", self.setting.scenario, n, -1, self.t - 0.3, first + n) for n in numbers]
        number = 1 + max(int(runner.events[0]["incarnation"]) for runner in self.runners)
        for runner in again:
            runner.events[0] |= {"incarnation": number, "boot": boots[1]}
            clock = {"offset_s": runner.offset_s - again[0].offset_s, "uncertainty_s": 1e-5 if runner.node else 0.0}
            runner.instant("clock", self.t - 0.2, **clock, when="before")
            runner.instant("launch_begin", self.t)
            runner.instant("restart", self.t, attempt=1, backoff_s=0.0, scope="job")
        self.earlier_runners, self.runners = [*self.earlier_runners, *self.runners], again

    # --- what ranks do
    def attempt(self, ranks: Sequence[File], resumed: int | None, join_s: float = 0.2) -> None:
        """The training function is entered on all ranks, which join `join_s` later and load (None: nothing to load)."""
        self.ranks = list(ranks)
        for rank, file in enumerate(self.ranks):
            number = self.attempts.get(file.pid, -1) + 1
            self.attempts[file.pid] = number
            about = {"number": number, "group": f"g{self.t:.3f}", "rank": rank, "world_size": len(ranks)}
            file.instant("attempt", self.t, **about, layer=self.setting.layer)
        self.t += join_s
        for rank, file in enumerate(self.ranks):
            file.instant("joined", self.t, rank=rank, world_size=len(ranks))
        self.step = resumed or 0
        if resumed is not None:
            for file in self.ranks:
                file.span("load", self.t, self.t + self.setting.load_s, arm=ARM, step=resumed, resume=True)
            self.t += self.setting.load_s
            self.state("restored")

    def state(self, at: str) -> None:
        """The instrument's own look at the state."""
        t, check_s = self.t, self.setting.check_s
        for rank, file in enumerate(self.ranks):
            if check_s:
                file.span("check", t, t + check_s, at=at, step=self.step)
            about = {"world_size": len(self.ranks), "rank": rank, "position": 100 * self.step}
            total = (1 << 63) + 1000 * self.step  # two ranks together exceed 64 bits
            digest = f"d{self.step}-{rank}{'' if self.exact else '-other'}"
            job_sum = f"{(total + (1 << 64) - rank if rank == 0 else total) % (1 << 64):x}"
            file.instant("state", t + check_s, at=at, step=self.step, sum=job_sum, digest=digest, **about)
        self.t = t + check_s

    def steps(self, until: int) -> None:
        """Steps up to number `until`, a save after every interval."""
        setting = self.setting
        while self.step < until:
            self.step += 1
            loss = loss_of(self.step) if self.exact else loss_of(self.step) + 1e-6
            for file in self.ranks:
                file.span("step", self.t, self.t + setting.step_s, **self._about_step(), loss=loss)
            self.t += setting.step_s
            if self.step % setting.interval == 0:
                self.save()

    def _about_step(self) -> dict[str, Any]:
        return {"step": self.step, "arm": ARM, "cycle": 0, "segment": 0, "use": "plain"}

    def save(self) -> None:
        number = self.step // self.setting.interval - 1
        about = {"arm": ARM, "save": number}
        for file in self.ranks:
            file.span("arrive", self.t, self.t, **about)
            more = {"cycle": 0, "segment": 0, "step": self.step, "measured": number >= 2, "phases": []}
            end = self.t + self.setting.save_s
            file._add({"kind": "begin", "name": "save", "t": self.t - file.offset_s})
            sizes = {"bytes": 1_000_000, "t_begin": self.t - file.offset_s}
            file.instant("durable", end - 0.001, **about, step=self.step, **sizes)
            times = {"t0": self.t - file.offset_s, "t1": end - file.offset_s}
            file._add({"kind": "span", "name": "save", **times, **about, **more})
            file.span("peers", end, end, **about)
        self.t += self.setting.save_s
        self.state("saved")

    def finish(self) -> None:
        """The last step has been done: drain, the end's state, the end of the launch."""
        self.state("end")
        for file in self.ranks:
            file.instant("measured_end", self.t)
        self.over(0.5)

    def over(self, shutdown_s: float = 0.0) -> None:
        self.t += shutdown_s
        for runner in self.runners:
            runner.instant("launch_end", self.t)
            runner.instant("leftovers", self.t, pids=[], ports=[], shm=[])

    # --- faults
    def plan(self, kind: str, slot: tuple[int, int], at: str = "step", **options: Any) -> dict[str, Any]:
        fault = {"id": f"f{len(self.planned)}", "kind": kind, "at": at, "step": self.step, "options": options}
        self.planned.append(fault | {"node": slot[0], "local_rank": slot[1]})
        return self.planned[-1]

    def strike(self, kind: str, victim: File, at: str = "step", **options: Any) -> None:
        """The fault's record; what it does to processes is told apart."""
        fault = self.plan(kind, (victim.node, victim.local_rank), at, **options)
        mono = self.t - victim.offset_s
        rank = self.ranks.index(victim) if victim in self.ranks else None
        about = {"rank": rank, "pid": victim.pid, "pid_start": 7, "mono": mono, "wall": self.t, "actor": "rank"}
        self.faults.append({name: fault[name] for name in ("id", "kind", "at", "step", "node", "local_rank")} | about)

    def hold(self, files: Sequence[File], until: float, ended: bool) -> None:
        """These ranks are in the next step, which never ends: until an exception (`ended`) or their death."""
        for file in files:
            if not ended:
                file.begin("step", self.t)
                continue
            about = self._about_step() | {"step": self.step + 1, "aborted": True}
            file.span("step", self.t, until, **about)
            file.instant("caught", until, error="RestartAbort")

    # --- written
    def launch(self) -> dict[str, Any]:
        setting = self.setting
        numbers = {"control_steps": 0, "after_steps": 0, "settle_steps": 1}
        segment = {"arm": ARM, "cycle": 0, "measured": True, "saves": setting.saves, "interval": setting.interval}
        head = {"index": setting.index, "kind": setting.kind, "occasion": 0, "block": setting.block, "seed": 1}
        tail = {"verify": False, "interval": setting.interval, "status": "ok", "end": self.end}
        tail |= {"given_up": self.given_up} if self.given_up else {}
        tail |= {"ranks_by_node": self.ranks_by_node} if self.ranks_by_node else {}
        more = {"layer": setting.layer, "faults": self.planned, "unavailable": self.unavailable}
        return head | {"arms": [ARM], "segments": [segment | numbers], "timeouts": setting.timeouts} | tail | more

    def write(self, folder: Path) -> LaunchRecord:
        folder = folder / str(self.setting.index)
        write_files(folder, self.launch(), [*self.workers, *self.writers, *self.earlier_runners, *self.runners])
        (folder / "faults").mkdir(exist_ok=True)
        for fault in self.faults:
            (folder / "faults" / f"{fault['id']}.json").write_text(json.dumps(fault))
        return read_launch(folder)


# --- whole stories ----------------------------------------------------------------------------------------------------
def started(setting: Setting, startup_s: float = 3.0) -> Story:
    """Processes are there and the first attempt is ready; those in reserve wait."""
    story = Story(setting)
    if setting.layer in ("in_job", "torchrun", "nested"):
        story.agents()
    story.t += startup_s - 0.2
    files = [story.process(slot) for slot in story.slots]
    for file in files[setting.active :]:
        file.instant("reserve", story.t)
    story.attempt(files[: setting.active], None)
    return story


def twin(setting: Setting) -> Story:
    """The same steps without faults, by as many ranks as are active."""
    ranks = setting.active // setting.nodes
    alike = replace(setting, layer="none", kind="twin", index=setting.index + 50, ranks_per_node=ranks, reserve=0)
    story = started(alike)
    story.steps(setting.last_step)
    story.finish()
    return story


@dataclass(frozen=True)
class Delays:
    """From point to point, s."""

    detect: float = 0.4
    stop: float = 0.3
    restart: float = 1.1


def in_new_processes(
    setting: Setting, at_step: int, resumed: int, delays: Delays = Delays(), kind: str = "sigkill"
) -> Story:
    """The last rank is killed; a layer above the processes starts all of them again."""
    story = started(setting)
    story.steps(at_step)
    new_processes(story, resumed, delays, kind)
    story.steps(setting.last_step)
    story.finish()
    return story


def twice_struck(delays: Delays) -> Story:
    """A second fault some steps after the recovery from the first, both undone from the same checkpoint, to the end."""
    story = started(Setting())
    for _ in range(2):
        story.steps(7)
        new_processes(story, 4, delays)
    story.steps(12)
    story.finish()
    return story


def new_processes(story: Story, resumed: int | None, delays: Delays = Delays(), kind: str = "sigkill") -> None:
    """From the fault to the first attempt of new processes, ready to step."""
    layer, victim = story.setting.layer, story.ranks[-1]
    old = list(story.ranks)
    story.strike(kind, victim)
    story.hold(old[:-1], story.t, ended=False)
    story.t += delays.detect
    if layer in ("in_job", "torchrun", "nested"):
        story.log_line()
    else:
        story.exited(victim)
    story.gone(victim)
    story.t += delays.stop
    for file in old[:-1]:
        story.gone(file)
    if layer in ("pod_restart", "requeue"):
        scope = "job" if layer == "requeue" else "node"
        for runner in story.runners:
            runner.instant("restart", story.t, attempt=1, backoff_s=0.0, scope=scope)
    story.t += delays.restart / 2
    files = [story.process(slot) for slot in story.slots[: story.setting.active]]
    story.attempt(files, resumed, join_s=delays.restart - delays.restart / 2)


def in_place(
    setting: Setting, at_step: int, resumed: int, delays: Delays = Delays(), victim: int | None = None
) -> Story:
    """An exception on the last rank (the process lives on), or the death of rank `victim`: restarted in place."""
    story = started(setting)
    story.steps(at_step)
    old, dead = list(story.ranks), None if victim is None else story.ranks[victim]
    story.strike("exception" if dead is None else "sigkill", old[-1] if dead is None else dead)
    story.hold([file for file in old if file is not dead], story.t + delays.detect + delays.stop, ended=True)
    if dead is not None:
        story.exited(dead)
        story.gone(dead)
    living = [file for file in old if file is not dead]
    story.t += delays.detect
    for file in living:
        file.instant("abort", story.t)
    story.t += delays.stop
    for file in living:
        file.instant("aborted", story.t)
    spare = [file for file in story.workers if file not in old][: len(old) - len(living)]
    story.attempt([*living, *spare], resumed, join_s=delays.restart)
    story.steps(setting.last_step)
    story.finish()
    return story


def by_engine(
    setting: Setting,
    at_step: int,
    resumed: int,
    delays: Delays,
    queue_s: float,
    boots: tuple[str, str] = ("one", "one"),
    clocks_s: Sequence[float] | None = None,
) -> Story:
    """The last rank is killed; the job ends, waits in the engine's queue and starts again as a whole."""
    story = started(replace(setting, layer="requeue"))
    story.steps(at_step)
    through_the_queue(story, resumed, delays, queue_s, boots, clocks_s)
    story.steps(setting.last_step)
    story.finish()
    return story


def through_the_queue(
    story: Story,
    resumed: int,
    delays: Delays,
    queue_s: float,
    boots: tuple[str, str] = ("one", "one"),
    clocks_s: Sequence[float] | None = None,
) -> None:
    """From the fault to the first attempt in the job's next start, ready to step."""
    old, victim = list(story.ranks), story.ranks[-1]
    story.strike("sigkill", victim)
    story.hold(old[:-1], story.t, ended=False)
    story.t += delays.detect
    story.exited(victim)
    story.gone(victim)
    story.t += delays.stop
    for file in old[:-1]:
        story.gone(file)
    for runner in story.runners:
        runner.instant("launch_end", story.t)
    story.t += queue_s
    story.job_again(boots, clocks_s)
    story.t += delays.restart / 2
    story.attempt([story.process(slot) for slot in story.slots], resumed, join_s=delays.restart - delays.restart / 2)
