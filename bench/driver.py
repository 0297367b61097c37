"""The driver: a configuration becomes a list of launches, a launcher runs it, its events become a result.

Imports no torch; needs no GPU; holds no data but the events of a result while it sums them up.
"""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from bench import checkpoint, design, environment, launch, occasions, recovery
from bench.checkpoint import storage, throttled
from bench.config import Run, run_from_json
from bench.design import Launch
from bench.errors import BadInput
from bench.launch.base import Launcher, Paths
from bench.measure.accounted import Accounted
from bench.measure.events import read_launches
from bench.measure.summary import summarise
from bench.places import checkpoint_base, work_base
from bench.predict import Prediction, expected_pilot, predict, predict_design
from bench.progress import Watcher
from bench.report.terminal import Terminal
from bench.results import ResultFolder, busy_s
from bench.schema import RELAUNCHING, UNFINISHED, Summary
from bench.supervise import with_token
from bench.train import data_check, shapes

LOOK_S = 0.5
INTERRUPTED = 130


def run(config: Run, terminal: Terminal | None = None, given: Sequence[str] = ()) -> int:
    """Carry a run through and print what it found. Returns the exit code. Raises BadInput before anything starts.

    `given`: the keys of the command line, which resume= and append= tell from defaults.
    """
    terminal = terminal or Terminal()
    refuse_contradictions(config)
    if config.resume is not None:
        return Session.resume(config, given, terminal).carry_out()
    gpus = environment.gpus()
    config = resolved(config, len(gpus))
    launcher = launch.create(config.cluster.name)
    if config.append is not None:
        return Session.append(config, given, terminal, launcher).carry_out()
    launches = design.plan(config)
    if config.dry_run:
        dry_run(config, launches, launcher, terminal, len(gpus))
        return 0
    check(config, launcher, len(gpus))
    return Session.new(config, launches, launcher, terminal).carry_out()


# --- before anything starts
def refuse_contradictions(config: Run) -> None:
    if config.resume is not None and config.append is not None:
        raise BadInput("resume: finishes a run, append adds to a finished one; give one of the two")
    if config.dry_run and (config.resume is not None or config.append is not None):
        raise BadInput("dry_run: prints the plan of a new run; leave out resume and append, or dry_run")


def resolved(config: Run, gpus: int) -> Run:
    """The configuration with "auto" device made definite, and its parts checked together."""
    elsewhere = not launch.create(config.cluster.name).sees_storage
    config = shapes.settled(config, elsewhere)
    if config.design.name == "quick" and not config.storage.fsync:
        arms = checkpoint.with_synced_pair(config.checkpoint.arms)
        config = dataclasses.replace(config, checkpoint=dataclasses.replace(config.checkpoint, arms=arms))
    device = config.device
    if device == "auto":
        device = "cuda" if gpus >= config.ranks_of_last_node and config.cluster.name == "local" else "cpu"
    refused = recovery.refusal(config)
    if refused is not None:
        raise BadInput(refused)
    if config.recovery.timeouts:  # by what is expected before the pilot has run; the coordinator asks again afterwards
        pilot = expected_pilot(config, device)
        if pilot is not None:
            pilot.timeouts(config)
    if not (elsewhere and config.data.name == "tokens"):  # the nodes look at every batch of their file themselves
        data_check.check(config.data, config.model.vocab_size, config.train.seq_len)
    for arm in config.checkpoint.arms:
        refused = checkpoint.refusal(arm, config)
        if refused is not None:
            raise BadInput(refused)
    return dataclasses.replace(config, device=device)


def check(config: Run, launcher: Launcher, gpus: int) -> None:
    if config.recovery.relaunch == "engine" and not launcher.relaunches:
        raise BadInput(
            f"recovery.relaunch: cluster={launcher.name} has no engine that starts a job again; "
            "use recovery.relaunch=coordinator"
        )
    launcher.check(config, gpus)
    if not launcher.sees_storage:
        return
    if not config.cluster.engine:
        storage.make_directory(work_base(config), "work_dir")
    base = checkpoint_base(config)
    if config.storage.dir is None:
        storage.make_directory(base, "results_dir" if config.cluster.engine else "work_dir")
    else:
        storage.check_directory(base)
    size = config.predicted_checkpoint_bytes
    if config.storage.throttle_bytes_per_s is not None:
        if reason := throttled.refusal():
            raise BadInput(f"{throttled.FIELD}: a limited store {reason}; leave it out, or give storage.dir=PATH")
    elif size is not None:  # a limited store has its own space, and says itself when there is none for it
        storage.check_space(base, size, config.checkpoint.keep, sum(arm != "none" for arm in config.checkpoint.arms))


def dry_run(config: Run, launches: list[Launch], launcher: Launcher, terminal: Terminal, gpus: int) -> None:
    """Print the plan. That the run cannot be placed here is part of the answer, not an error."""
    result = Path(config.results_dir) / "MACHINE" / config.scenario / "TIME"
    paths = Paths(result, work_base(config) / "RUN", checkpoint_base(config) / "RUN")
    if (text := launcher.plan_text(config, paths)) is not None:
        print(text)
        return
    obstacle, commands = None, launcher.commands(config, paths)
    try:
        launcher.check(config, gpus)
    except BadInput as error:
        obstacle, commands = str(error), []
    terminal.plan(config, launches, predict(config, launches, config.device))
    terminal.other_design(config, other_design(config))
    if (script := launcher.script(config, paths)) is not None:
        terminal.say(f"\n{script}")
    terminal.dry_run(launches, predict(config, launches, config.device), commands, obstacle)


def other_design(config: Run) -> tuple[str, Prediction] | None:
    """What quick would take where full is asked for, and the other way round."""
    name = {"quick": "full", "full": "quick"}.get(config.design.name)
    try:
        return (name, predict_design(config, name)) if name else None
    except BadInput:
        return None  # the scenario's keys do not fit it


# --- one session of a run
class Session:
    """From the first runner's start to the printed verdict; the same for new, resumed and appended runs."""

    def __init__(
        self, config: Run, folder: ResultFolder, launches: list[Launch], launcher: Launcher, terminal: Terminal
    ) -> None:
        self.config = config
        self.folder = folder
        self.launches = launches
        self.launcher = launcher
        self.terminal = terminal
        self.expected: Prediction = predict(config, launches, config.device)
        # Runners may go on that nobody watches: wait=false, a driver that ended before them, an engine without answers.
        self._left = False
        self._refused = False  # what runners that were left have not done cannot be started
        self._interrupted = False

    @classmethod
    def new(cls, config: Run, launches: list[Launch], launcher: Launcher, terminal: Terminal) -> Session:
        machine = environment.machine_name(config.machine)
        folder = ResultFolder.create(Path(config.results_dir).resolve(), machine, config.scenario)
        content = {
            "config": dataclasses.asdict(config),
            "token": secrets.token_hex(16),
            "environment": occasions.described(config, folder, machine)
            | {"device": config.device}
            | ({occasions.PROVISIONAL: True} if config.cluster.engine else {}),
            "budget": dataclasses.asdict(config.budget),
            "interrupted": False,
            "occasions": [occasions.occasion(launches)],
        }
        folder.write_run(content)
        folder.point_latest()
        return cls(config, folder, launches, launcher, terminal)

    @classmethod
    def resume(cls, asked: Run, given: Sequence[str], terminal: Terminal) -> Session:
        """Finish the last occasion of an interrupted run: its own configuration, its finished launches kept."""
        occasions.refuse_beside_resume(given)
        folder = ResultFolder.open(Path(asked.resume or ""), "resume")
        content = folder.read_run()
        measured = run_from_json(content["config"])
        config = occasions.anew(measured, asked, given)
        launcher = launch.create(config.cluster.name)
        last = content["occasions"][-1]
        left = launcher.outlives_driver and "ended" not in last
        if not left and with_token(content["token"]):
            raise BadInput(f"resume: {folder.path} is still running; wait for its end, or end it with Ctrl-C first")
        if left:  # it may be that nothing new is to be started
            occasions.refuse_anew_while_left(folder.path, given)
        else:
            check(config, launcher, len(environment.gpus()))
            last |= {"started": time.time(), "resumed": True}
            last.pop("ended", None)
            machine = occasions.machine_of(measured, asked, given)
            occasions.begin(config, folder, content, machine)
        launches = [design.launch_from_json(record) for record in last["launches"]]
        session = cls(config, folder, launches, launcher, terminal)
        session._left = left
        return session

    @classmethod
    def append(cls, asked: Run, given: Sequence[str], terminal: Terminal, launcher: Launcher) -> Session:
        """Another occasion of the same work, in the same result."""
        folder = ResultFolder.open(Path(asked.append or ""), "append")
        content = folder.read_run()
        measured = run_from_json(content["config"])
        occasions.refuse_other_work(folder.path, measured, asked, given)
        config = occasions.anew(measured, asked, given)
        check(config, launcher, len(environment.gpus()))
        known = [record["index"] for each in content["occasions"] for record in each["launches"]]
        launches = design.plan(config, len(content["occasions"]), max(known) + 1)
        content["occasions"].append(occasions.occasion(launches))
        occasions.begin(config, folder, content, occasions.machine_of(measured, asked, given))
        return cls(config, folder, launches, launcher, terminal)

    def carry_out(self) -> int:
        self.terminal.plan(self.config, self.launches, self.expected)
        self.terminal.say(f"  results go to {self.folder.path}")
        work = work_base(self.config) / self.folder.read_run()["token"][:12]
        base = checkpoint_base(self.config, self.folder.path.parents[2])
        paths = Paths(self.folder.path, work, base / work.name)
        if self.launcher.outlives_driver and not self.config.cluster.wait and not self._left:
            return self._leave(paths)
        try:
            with self._store(paths.checkpoint_dir):
                self._supervise(paths)
        finally:
            if not self._left:  # a job that goes on needs what it has saved
                for path in (paths.work_dir, paths.checkpoint_dir):
                    shutil.rmtree(path, ignore_errors=True)
        return self._come_back() if self._left else self._conclude()

    def _leave(self, paths: Paths) -> int:
        """wait=false: start the runners and leave them to themselves, and the result to resume=."""
        self.launcher.start(self.config, paths)
        self._tell()
        return 0

    def _come_back(self) -> int:
        """The launcher left its runners as they are: nothing is concluded, a later session takes them up."""
        self.terminal.say(
            f"  the job is left as it is; to wait for it and collect: python -m bench run resume={self.folder.path}",
            "yellow",
        )
        return INTERRUPTED if self._interrupted else 0

    def _supervise(self, paths: Paths) -> None:
        watcher = Watcher(self.folder, [each.index for each in self.launches])
        reported: set[int] = set()
        with self._signals():
            if not self._left or self._must_go_on_anew(paths):
                self.launcher.start(self.config, paths)
            try:
                while self.launcher.running() and not self._interrupted:
                    self._show(watcher, reported)
                    time.sleep(LOOK_S)
            finally:
                self.launcher.stop()
                self._left = self.launcher.left_running()
        self._show(watcher, reported)

    def _must_go_on_anew(self, paths: Paths) -> bool:
        """Whether runners that were left have ended before their work was done, and others may do the rest."""
        goes_on = self.launcher.attach(self.config, paths)
        self._left = False
        if goes_on or self._over():
            return False
        try:
            check(self.config, self.launcher, len(environment.gpus()))
        except BadInput as error:
            self._refused = True
            self.terminal.say(f"  what is left undone cannot be started: {error}", "yellow")
        return not self._refused

    def _over(self) -> bool:
        """Whether runners that were left to themselves have come to the end of their list."""
        records = [self.folder.read_launch(each.index) for each in self.launches]
        return all(record is not None and record["status"] not in UNFINISHED for record in records)

    def _tell(self) -> None:
        for line in self.launcher.news():
            self.terminal.say(f"  {line}")

    @contextmanager
    def _store(self, directory: Path) -> Iterator[None]:
        """The store of storage.throttle_bytes_per_s, if one is asked for, mounted at the run's checkpoint folder."""
        speed = self.config.storage.throttle_bytes_per_s
        if speed is None:
            yield
            return
        size, keep = self.config.predicted_checkpoint_bytes, self.config.checkpoint.keep
        assert size is not None, "bench.config refuses a limit where the size is not known"
        writing = sum(arm != "none" for arm in self.config.checkpoint.arms)
        with throttled.throttled(directory, size * (keep + 2) * writing, speed):
            content = self.folder.read_run()
            described = content["occasions"][-1].get("environment", content["environment"])
            described |= environment.mounts(directory, self.folder.path)
            self.folder.write_run(content)
            yield

    def _show(self, watcher: Watcher, reported: set[int]) -> None:
        self._tell()
        progress, ended = watcher.look()
        for record in ended:
            if record["index"] not in reported:
                reported.add(record["index"])
                self.terminal.launch_ended(record, len(self.launches))
                self.terminal.timeouts(record)
                if record["kind"] != "pilot" and record["status"] == "ok" and not self._interrupted:
                    self.terminal.provisional(self._summary()[0])
        if progress is not None:
            self.terminal.progress(progress)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the run in order: runners stop, what was measured is kept."""

        def ask(signum: int, frame: FrameType | None) -> None:
            self._interrupted = True

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # --- afterwards
    def _summary(self) -> tuple[Summary, Any, Any]:
        return summarise(self.folder.read_run(), read_launches(self.folder.path / "launches"))

    def _conclude(self) -> int:
        self._mark_unfinished()
        content = self.folder.read_run() | {"interrupted": self._interrupted}
        content["occasions"][-1]["ended"] = time.time()
        content["budget"] |= self._budget_used()
        self.folder.write_run(content)
        account = Accounted.of(content, read_launches(self.folder.path / "launches"))
        summary = account.summary
        self.folder.write_derived(summary, account.samples, account.ledger)
        self.terminal.result(summary, self.folder.path)
        self._write_page(account)
        if self._interrupted:
            return INTERRUPTED
        return 1 if summary.status == "invalid" or self._failed() or self._refused else 0

    def _write_page(self, account: Accounted) -> None:
        """The report as a page. What was measured is on disk already, whatever comes of this."""
        from bench.report.html import write_report  # matplotlib: half a second, at the end only

        try:
            self.terminal.say(f"report: {write_report(account, self.folder.path)}")
        except BadInput as error:
            self.terminal.say(f"no report was written: {error}", "yellow")

    def _failed(self) -> bool:
        """Whether a launch of this session failed, or none began, though what the others measured may be valid."""
        records = [self.folder.read_launch(each.index) for each in self.launches]
        failed = (record is not None and record["status"] not in ("ok", "skipped") for record in records)
        return not any(records) or any(failed)

    def _mark_unfinished(self) -> None:
        for each in self.launches:
            record = self.folder.read_launch(each.index)
            if record is not None and record["status"] in UNFINISHED:
                end = {"status": "interrupted" if self._interrupted else "lost", "ended": time.time()}
                if record["status"] == RELAUNCHING:
                    end["reason"] = "the engine had not started the job again; see the job's own output"
                self.folder.write_launch(each.index, record | end)

    def _budget_used(self) -> dict[str, Any]:
        records = [self.folder.read_launch(each.index) for each in self.launches]
        seconds = sum(busy_s(record) for record in records if record is not None)
        left = [
            each.index
            for each, record in zip(self.launches, records, strict=True)
            if record is None or record["status"] != "ok"
        ]
        return {
            "used_s": seconds,
            "used_gpu_hours": seconds * self.config.world_size / 3600,
            "launches_left_undone": left,
        }
