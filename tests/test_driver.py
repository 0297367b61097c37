"""The driver: whole runs in processes of their own, ended, interrupted, resumed, added to; nothing is left behind.

The runs measure as little as they can: what matters here is that the path holds, not the figures.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from bench import driver, environment
from bench.config import Budget, Checkpoint, Cluster, Data, Job, Model, Recovery, Run, Storage
from bench.errors import BadInput
from bench.launch.base import Launcher, Paths
from bench.occasions import unlike
from bench.report.terminal import Terminal
from bench.schema import CATEGORIES, SCHEMA_VERSION, Arm, Figure, Summary
from bench.supervise import shm_names, with_token
from tests.whole_runs import carried_through

ROOT = Path(__file__).resolve().parent.parent
LIMITED = Storage(throttle_bytes_per_s=60 << 20)
QUICK = ["model.layers=1", "train.seq_len=16", "train.batch_size=1", "cycles=3", "design.control_steps=2"]
SMALL = [*QUICK, "ranks_per_node=1", "checkpoint.arms=[none,sync_local]", "checkpoint.verify_content=false"]


class Place:
    """Where one test's runs happen: a working directory that is no checkout, results and node-local files below it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results = path / "results"
        self.shm: set[str] = set()  # files in shared memory that processes of a run had mapped when we looked

    def start(self, *overrides: str) -> subprocess.Popen[str]:
        new = [] if overrides[0].startswith("resume=") else ["machine=box", f"work_dir={self.path / 'work'}"]
        command = [sys.executable, "-m", "bench", "run", *new, *overrides]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        env = os.environ | {"PYTHONPATH": paths}
        return subprocess.Popen(
            command, cwd=self.path, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def run(self, *overrides: str, code: int = 0) -> str:
        """Run to the end; the exit code must be `code`, 0: or 1 for noise alone. Returns what it printed."""
        return self.finish(self.start(*overrides), code)

    def finish(self, process: subprocess.Popen[str], code: int) -> str:
        try:
            out, _ = process.communicate(timeout=600)
        finally:
            process.kill()
        assert carried_through(process.returncode, self.folder) if code == 0 else process.returncode == code, out
        return out

    @property
    def folder(self) -> Path:
        return (self.results / "latest").resolve()

    @property
    def begun(self) -> bool:
        return (self.folder / "run.json").is_file()

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    def launches(self) -> dict[int, dict[str, Any]]:
        found = (self.folder / "launches").glob("*/launch.json")
        return {record["index"]: record for record in map(json.loads, map(Path.read_text, found))}

    def statuses(self) -> dict[int, str]:
        return {index: record["status"] for index, record in sorted(self.launches().items())}

    def look_at_shared_memory(self) -> bool:
        """Remember what the run's processes have in /dev/shm now; whether there is anything."""
        self.shm |= shm_names(with_token(self.json("run.json")["token"]))
        return bool(self.shm)

    def assert_nothing_is_left(self) -> None:
        tokens = [json.loads(path.read_text())["token"] for path in self.results.glob("*/*/*/run.json")]
        assert tokens
        assert [pid for token in tokens for pid in with_token(token)] == []
        assert [p.pid for p in all_processes() if str(self.path) in " ".join(p.info["cmdline"] or [])] == []
        assert [name for name in self.shm if Path(name).exists()] == []
        assert [path for path in (self.path / "work").rglob("*") if path.name != "checkpoints"] == []


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.assert_nothing_is_left()


def until(condition: Callable[[], Any], process: subprocess.Popen[str], patience_s: float = 300) -> Any:
    """What `condition` returns as soon as it is true, while the driver runs."""
    end = time.monotonic() + patience_s
    while not (found := condition()):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def names(cls: type) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)}


# --- before anything starts
def test_two_runs_are_the_same_work_whatever_their_budget_their_price_and_where_results_go():
    run = Run(machine="a", budget=Budget(minutes=1.0), price_per_gpu_hour=2.0, job=Job(period_s=5.0), results_dir="x")
    assert unlike(Run(), run) == []


def test_other_work_is_named_by_its_fields():
    other = Run(seed=1, model=Model(layers=1), checkpoint=Checkpoint(arms=["none"]))
    assert unlike(Run(), other) == ["seed", "model", "checkpoint"]


@pytest.mark.parametrize(
    ("gpus", "cluster", "device"), [(2, "local", "cuda"), (1, "local", "cpu"), (8, "emulated", "cpu")]
)
def test_an_automatic_device_is_the_gpu_where_there_are_enough(gpus, cluster, device):
    config = Run(ranks_per_node=2)
    config = dataclasses.replace(config, cluster=dataclasses.replace(config.cluster, name=cluster))
    assert driver.resolved(config, gpus).device == device


def test_an_automatic_device_counts_the_gpus_of_spare_ranks():
    config = Run(ranks_per_node=2, recovery=Recovery(layer="in_process", reserve=1))
    assert [driver.resolved(config, gpus).device for gpus in (2, 3)] == ["cpu", "cuda"]


def test_a_given_device_is_kept_and_no_path_of_the_machine_enters_the_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = driver.resolved(Run(device="cpu", results_dir="here"), gpus=8)
    assert (found.device, found.results_dir) == ("cpu", "here")


def test_the_space_asked_for_is_that_of_the_arms_that_write(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(environment, "gpus", list)
    monkeypatch.setattr(driver.storage, "check_space", lambda *given: asked.append(given))
    config = Run(device="cpu", work_dir=str(tmp_path), checkpoint=Checkpoint(arms=["none", "sync_local", "nvrx_async"]))
    driver.check(config, driver.launch.create("local"), 0)
    assert asked == [(tmp_path / "checkpoints", config.predicted_checkpoint_bytes, 2, 2)]


def test_the_node_local_folder_is_a_users_own(monkeypatch):
    first = driver.work_base(Run())
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    assert driver.work_base(Run()).name == "bench-work-4321"
    assert driver.work_base(Run()) != first


def test_a_node_local_folder_that_cannot_be_made_is_refused_in_one_line_wherever_checkpoints_go(tmp_path):
    (tmp_path / "file").touch()
    config = Run(device="cpu", work_dir=str(tmp_path / "file" / "work"), storage=Storage(dir=str(tmp_path)))
    with pytest.raises(
        BadInput, match=r"^work_dir: .*/file/work cannot be made \(Not a directory\); give work_dir=PATH$"
    ):
        driver.check(config, driver.launch.create("local"), 0)


def test_a_limited_store_does_not_ask_for_space_on_the_disk_below_it(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(environment, "gpus", list)
    monkeypatch.setattr(driver.throttled, "refusal", lambda: None)
    monkeypatch.setattr(driver.storage, "check_space", lambda *given: asked.append(given))
    driver.check(Run(device="cpu", work_dir=str(tmp_path), storage=LIMITED), driver.launch.create("local"), 0)
    assert asked == []


def test_a_limited_store_is_described_once_it_is_mounted(tmp_path, monkeypatch):
    mounted, seen = [], []

    @contextmanager
    def throttled(directory: Path, capacity_bytes: int, bytes_per_s: int) -> Iterator[Path]:
        mounted.append((directory, capacity_bytes, bytes_per_s))
        yield directory

    def mounts(checkpoint_dir: Path, results_dir: Path) -> dict[str, Any]:
        seen.append((checkpoint_dir, results_dir, list(mounted)))
        return {"checkpoint_mount": {"type": "ext4"}, "one_filesystem": False}

    monkeypatch.setattr(driver.throttled, "throttled", throttled)
    monkeypatch.setattr(environment, "mounts", mounts)
    config, folder = Run(device="cpu", storage=LIMITED), driver.ResultFolder(tmp_path / "result")
    folder.path.mkdir()
    folder.write_run({"environment": {"cpus": 2, "one_filesystem": True}, "occasions": [{}]})
    session = driver.Session(config, folder, [], driver.launch.create("local"), Terminal())
    with session._store(tmp_path / "store"):
        told = folder.read_run()["environment"]
    assert told == {"cpus": 2, "checkpoint_mount": {"type": "ext4"}, "one_filesystem": False}
    size = config.predicted_checkpoint_bytes * (config.checkpoint.keep + 2) * 2  # two of the arms write
    assert seen == [(tmp_path / "store", folder.path, [(tmp_path / "store", size, 60 << 20)])]


def test_a_token_file_is_looked_for_where_the_nodes_are(tmp_path):
    config = Run(device="cpu", data=Data(name="tokens", path="/claim/tokens.bin"))
    kubernetes = dataclasses.replace(config, cluster=Cluster(name="kubernetes"))
    assert driver.resolved(kubernetes, 0).data == config.data
    with pytest.raises(BadInput, match=r"data\.path: /claim/tokens.bin is not a file"):
        driver.resolved(config, 0)


@pytest.mark.parametrize("cluster", ["local", "emulated"])
def test_what_starts_no_job_again_cannot_be_asked_to(cluster, tmp_path):
    config = Run(device="cpu", work_dir=str(tmp_path), recovery=Recovery(relaunch="engine"))
    with pytest.raises(BadInput, match=rf"recovery\.relaunch: cluster={cluster} has no engine .*relaunch=coordinator"):
        driver.check(config, driver.launch.create(cluster), 0)


def test_an_append_of_other_work_is_refused_before_anything_is_written(tmp_path):
    config = driver.resolved(Run(device="cpu", work_dir=str(tmp_path)), 0)
    folder = driver.ResultFolder(tmp_path / "result")
    folder.path.mkdir()
    folder.write_run({"config": dataclasses.asdict(config), "occasions": []})
    before = contents(folder.path)
    asked = dataclasses.replace(config, seed=7, append=str(folder.path))
    with pytest.raises(BadInput, match=r"append: .* was measured with another seed; give the same"):
        driver.run(asked)
    assert contents(folder.path) == before


def begun(path: Path, config: Run, **recorded: Any) -> driver.ResultFolder:
    """A result of which nothing has been measured yet."""
    folder = driver.ResultFolder(path)
    folder.path.mkdir(parents=True)
    record = {"config": dataclasses.asdict(config), "token": "t", "budget": {}, "interrupted": True}
    occasion = driver.occasions.occasion(driver.design.plan(config)) | {"ended": 1.0}
    described = {"machine": driver.environment.machine_name(None), "device": "cpu"} | recorded
    folder.write_run(record | {"environment": described, "occasions": [occasion]})
    return folder


@pytest.mark.parametrize("key", ["resume", "append"])
def test_a_result_of_other_software_is_neither_finished_nor_enlarged(key, tmp_path):
    config = driver.resolved(Run(device="cpu", work_dir=str(tmp_path / "work")), 0)
    folder = begun(tmp_path / "box" / "ckpt_local" / "then", config, versions={"python": "2.7"})
    before = contents(folder.path)
    with pytest.raises(BadInput, match=r"environment: .* another python \(2\.7, now 3.*measure a new result"):
        driver.run(dataclasses.replace(config, **{key: str(folder.path)}), given=[key])
    assert contents(folder.path) == before


def test_a_key_beside_resume_that_would_be_ignored_is_refused(tmp_path):
    folder = begun(tmp_path / "result", driver.resolved(Run(device="cpu"), 0))
    with pytest.raises(BadInput, match=r"^seed: resume= goes on with the configuration of the result; leave out seed"):
        driver.run(Run(seed=7, resume=str(folder.path)), given=["resume", "seed"])


# --- runners that outlive their driver
class Left(Launcher):
    """A launcher whose runners go on without the driver. What they did meanwhile is put into the result by the test."""

    name = "left"
    outlives_driver = True
    alive = False  # whether there are runners to take up
    gives_up = False  # its engine does not answer any more
    refusal: str | None = None  # of a new job
    unsure: str | None = None  # why it cannot tell whether there are runners to take up

    def __init__(self) -> None:
        self.done: list[str] = []

    def check(self, config: Run, gpus: int) -> None:
        if self.refusal is not None:
            raise BadInput(self.refusal)

    def commands(self, config: Run, paths: Paths) -> list[list[str]]:
        return [["submit"]]

    def start(self, config: Run, paths: Paths) -> None:
        self.done.append("start")

    def attach(self, config: Run, paths: Paths) -> bool:
        self.done.append("attach")
        if self.unsure is not None:
            raise BadInput(self.unsure)
        return self.alive

    def running(self) -> bool:
        return False

    def stop(self) -> None: ...

    def left_running(self) -> bool:
        return self.gives_up

    def news(self) -> list[str]:
        return [f"news of {self.done[-1]}"] if self.done else []


@pytest.fixture
def left(tmp_path, monkeypatch) -> Left:
    launcher = Left()
    monkeypatch.setattr(driver.launch, "create", lambda name: launcher)
    monkeypatch.setattr(environment, "gpus", list)
    monkeypatch.chdir(tmp_path)
    return launcher


def submitted(wait: bool = False, **changed: Any) -> driver.ResultFolder:
    """A run that was left to itself; its result."""
    assert driver.run(Run(device="cpu", launches=1, cluster=Cluster(name="slurm", wait=wait), **changed)) == 0
    return driver.ResultFolder((Path("results") / "latest").resolve())


def saved(folder: driver.ResultFolder) -> Path:
    """A checkpoint of a run's."""
    file = Path("results", ".checkpoints", folder.read_run()["token"][:12], "launch-0", "shard")
    file.parent.mkdir(parents=True)
    file.touch()
    return file


def ended(folder: driver.ResultFolder, *statuses: str) -> None:
    for record, status in zip(folder.read_run()["occasions"][-1]["launches"], statuses, strict=False):
        folder.write_launch(record["index"], record | {"status": status, "started": 1.0, "ended": 2.0})


def collect(folder: driver.ResultFolder) -> int:
    return driver.run(Run(resume=str(folder.path)))


def test_a_run_that_is_not_waited_for_is_started_and_left_and_says_what_its_launcher_says(left, capsys):
    folder = submitted()
    assert left.done == ["start"]
    assert "news of start" in capsys.readouterr().out
    assert "ended" not in folder.read_run()["occasions"][-1]
    assert not (folder.path / "summary.json").exists()


def test_resume_takes_up_runners_that_go_on_and_starts_none_beside_them(left):
    folder = submitted()
    started = folder.read_run()["occasions"][-1]["started"]
    left.done, left.alive = [], True
    collect(folder)
    assert left.done == ["attach"]
    assert folder.read_run()["occasions"][-1]["started"] == started, "the budget goes on as it was"
    assert (folder.path / "summary.json").exists()


def test_resume_collects_what_runners_finished_meanwhile_without_starting_any(left):
    folder = submitted()
    ended(folder, "ok", "failed")
    left.done = []
    assert collect(folder) == 1, "a failed launch is said"
    assert left.done == ["attach"]
    assert "ended" in folder.read_run()["occasions"][-1]


@pytest.mark.parametrize("statuses", [(), ("ok",), ("ok", "running")])
def test_resume_starts_what_runners_that_died_have_left_undone(left, statuses):
    folder = submitted()
    ended(folder, *statuses)
    left.done = []
    collect(folder)
    assert left.done == ["attach", "start"]


def test_a_result_that_was_collected_is_resumed_like_any_other(left):
    folder = submitted()
    ended(folder, "ok", "failed")
    collect(folder)
    left.done = []
    collect(folder)
    assert left.done == ["start"], "what failed is tried again"


def test_a_job_that_the_launcher_leaves_running_keeps_its_checkpoints_and_is_taken_up_by_resume(left, capsys):
    left.gives_up = True
    folder = submitted(wait=True)
    checkpoint = saved(folder)
    ended(folder, "ok", "running")
    left.done, left.alive = [], True
    assert collect(folder) == 0
    assert checkpoint.exists()
    assert f"resume={folder.path}" in capsys.readouterr().out
    assert folder.read_launch(1)["status"] == "running"
    assert "ended" not in folder.read_run()["occasions"][-1]
    assert not (folder.path / "summary.json").exists()
    left.gives_up = False
    collect(folder)
    assert left.done == ["attach", "attach"], "no second job beside the first one"
    assert not checkpoint.exists()
    assert folder.read_launch(1)["status"] == "lost", "concluded only now"


def test_a_resume_that_cannot_find_out_whether_the_job_goes_on_touches_nothing(left):
    folder = submitted()
    checkpoint, before = saved(folder), contents(folder.path)
    left.unsure = "resume: no answer; try later"
    with pytest.raises(BadInput, match="no answer"):
        collect(folder)
    assert checkpoint.exists()
    assert contents(folder.path) == before


@pytest.mark.parametrize(("alive", "statuses"), [(True, ()), (False, ("ok", "ok"))])
def test_what_a_new_job_would_need_is_not_asked_of_one_that_is_taken_up_or_collected(left, alive, statuses):
    folder = submitted()
    ended(folder, *statuses)
    left.done, left.alive, left.refusal = [], alive, "cluster: the reservation has expired"
    collect(folder)
    assert left.done == ["attach"]
    assert "ended" in folder.read_run()["occasions"][-1]


def test_what_a_job_that_died_has_measured_is_collected_although_no_new_one_can_be_started(left, capsys):
    folder = submitted()
    ended(folder, "ok", "running")
    left.done, left.refusal = [], "cluster: the reservation has expired"
    assert collect(folder) == 1
    assert left.done == ["attach"]
    assert "cannot be started: cluster: the reservation has expired" in capsys.readouterr().out
    assert (folder.path / "summary.json").exists()
    with pytest.raises(BadInput, match="the reservation has expired"):
        collect(folder)


def test_a_budget_and_a_job_given_beside_resume_are_taken_and_recorded(left):
    folder = submitted(budget=Budget(minutes=1.0, gpu_hours=2.0))
    ended(folder, "ok", "failed")
    collect(folder)
    asked = Run(resume=str(folder.path), budget=Budget(minutes=30.0), job=Job(period_s=60.0))
    driver.run(asked, given=["resume", "budget.minutes", "job.period_s"])
    run = folder.read_run()
    assert run["config"]["budget"] == {"minutes": 30.0, "gpu_hours": 2.0}
    assert (run["budget"]["minutes"], run["config"]["job"]["period_s"]) == (30.0, 60.0)


def test_runners_that_may_still_be_at_work_are_collected_before_anything_is_given_anew(left):
    folder = submitted()
    with pytest.raises(BadInput, match=r"^budget\.minutes: the runners of .* collect them first by resume= alone"):
        driver.run(Run(resume=str(folder.path), budget=Budget(minutes=9.0)), given=["resume", "budget.minutes"])


def test_another_occasion_keeps_the_settled_interval_and_takes_a_budget_of_its_own(left):
    folder = submitted()
    ended(folder, "ok", "ok")
    folder.write_launch(1, folder.read_launch(1) | {"interval": 23})
    collect(folder)
    first = folder.read_run()
    asked = Run(device="cpu", launches=1, cluster=Cluster(name="slurm", wait=False), budget=Budget(gpu_hours=3.0))
    driver.run(dataclasses.replace(asked, append=str(folder.path)), given=["append", "budget.gpu_hours"])
    run = folder.read_run()
    assert [each.get("interval") for each in run["occasions"]] == [None, 23]
    assert run["environment"] == first["environment"]
    assert run["config"]["budget"]["gpu_hours"] == 3.0


def test_a_run_of_which_no_launch_has_begun_has_failed(left):
    folder = submitted()
    assert collect(folder) == 1


def test_the_nodes_of_an_engine_share_a_checkpoint_folder_beside_the_results_unless_another_is_given(tmp_path):
    config = Run(cluster=Cluster(name="slurm"), results_dir=str(tmp_path))
    assert driver.checkpoint_base(config) == tmp_path / ".checkpoints"
    assert driver.checkpoint_base(config, tmp_path / "moved") == tmp_path / "moved" / ".checkpoints"
    given = dataclasses.replace(config, storage=Storage(dir="/shared"))
    assert driver.checkpoint_base(given, tmp_path) == Path("/shared")
    local = Run(work_dir=str(tmp_path))
    assert driver.checkpoint_base(local) == tmp_path / "checkpoints"


def test_waiting_otherwise_is_not_other_work_and_another_partition_is():
    measured = Run(cluster=Cluster(name="slurm"))
    assert unlike(measured, Run(cluster=Cluster(name="slurm", wait=False, poll_s=60.0, time="10"))) == []
    assert unlike(measured, Run(cluster=Cluster(name="slurm", partition="other"))) == ["cluster"]


# --- whole runs
@pytest.mark.timeout(300)
def test_the_smoke_scenario_measures_verifies_and_leaves_nothing_behind(place):
    process = place.start("scenario=ckpt_smoke", *QUICK)
    until(lambda: place.begun and place.look_at_shared_memory(), process)
    out = place.finish(process, 0)
    assert place.statuses() == {0: "ok", 1: "ok"}
    summary = place.json("summary.json")
    assert_follows_schema_1(summary)
    assert (summary["scenario"], summary["machine"], summary["device"]) == ("ckpt_smoke", "box", "cpu")
    assert (summary["world_size"], summary["rehearsal"], summary["interrupted"]) == (2, False, False)
    assert [arm["name"] for arm in summary["arms"]] == ["none", "sync_local", "nvrx_async"]
    assert [arm["content_verified"] for arm in summary["arms"]] == [None, True, True]
    for arm in summary["arms"][1:]:
        assert arm["blocking_s"]["median"] > 0
        assert arm["written_bytes"] >= 0.9 * Run(model=Model(**model_of(place))).predicted_checkpoint_bytes
    samples = pd.read_parquet(place.folder / "samples.parquet")
    assert len(samples[samples.measured]) == 3
    assert "What a checkpoint costs" in out
    assert f"result: {place.folder}" in " ".join(out.split())


def model_of(place: Place) -> dict[str, Any]:
    return place.json("run.json")["config"]["model"]


def assert_follows_schema_1(summary: dict[str, Any]) -> None:
    assert summary["schema_version"] == SCHEMA_VERSION == 1
    assert set(summary) == names(Summary)
    for arm in summary["arms"]:
        assert set(arm) == names(Arm)
        figures = [value for value in arm.values() if isinstance(value, dict)]
        assert all(
            set(figure) == names(Figure) and figure["low"] <= figure["median"] <= figure["high"] for figure in figures
        )
    assert {row["category"] for row in summary["ledger"]} <= set(CATEGORIES)
    assert sum(row["share"] for row in summary["ledger"]) == pytest.approx(1.0)
    assert {verdict["outcome"] for verdict in summary["verdicts"]} <= {
        "holds",
        "does_not_hold",
        "not_decided",
        "not_measured",
    }
    assert {check["level"] for check in summary["checks"]} <= {"ok", "note", "warn", "invalid"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupted_run_keeps_what_it_has_is_finished_by_resume_and_enlarged_by_append(place):
    process = place.start("scenario=ckpt_smoke", *SMALL)
    until(lambda: place.begun and place.statuses().get(1) == "running", process)
    until(lambda: list((place.folder / "launches" / "1" / "events").glob("worker-*")), process)
    process.send_signal(signal.SIGINT)
    place.finish(process, 130)
    assert place.statuses() == {0: "ok", 1: "interrupted"}
    assert place.json("run.json")["interrupted"] is True
    assert place.json("summary.json")["interrupted"] is True
    place.assert_nothing_is_left()
    pilot = contents(place.folder / "launches" / "0")

    place.run(f"resume={place.folder}")
    assert place.statuses() == {0: "ok", 1: "ok"}
    assert contents(place.folder / "launches" / "0") == pilot
    assert json.loads((place.folder / "launches/1/attempts/0/launch.json").read_text())["status"] == "interrupted"
    assert place.json("summary.json")["interrupted"] is False
    place.assert_nothing_is_left()
    finished = {index: contents(place.folder / "launches" / index) for index in "01"}

    place.run("scenario=ckpt_smoke", *SMALL, f"append={place.folder}")
    assert place.statuses() == {0: "ok", 1: "ok", 2: "ok", 3: "ok"}
    assert {index: contents(place.folder / "launches" / index) for index in "01"} == finished
    assert [arm["launches"] for arm in place.json("summary.json")["arms"]] == [2, 2]
    assert len(place.json("run.json")["occasions"]) == 2


# --- slow: other launchers and layers, and violence
@pytest.mark.slow
def test_a_cluster_scenario_is_rehearsed_on_emulated_nodes_and_stamped_so(place):
    out = place.run("scenario=ckpt_2node", "cluster=emulated", "model.layers=1", "train.seq_len=16", "launches=1")
    summary = place.json("summary.json")
    assert_follows_schema_1(summary)
    assert (summary["rehearsal"], summary["num_nodes"], summary["world_size"]) == (True, 2, 2)
    assert [arm["content_verified"] for arm in summary["arms"]] == [None, True, True]
    assert {record["nodes"].keys() == {"0", "1"} for record in place.launches().values()} == {True}
    assert "REHEARSAL" in out


@pytest.mark.slow
def test_a_run_under_torchrun_measures_too(place):
    place.run("scenario=ckpt_smoke", "recovery=torchrun", *QUICK)
    assert place.statuses() == {0: "ok", 1: "ok"}
    assert all(record["nodes"]["0"]["codes"] == {"agent": 0} for record in place.launches().values())


@pytest.mark.slow
def test_the_instrument_recovers_known_durations(place):
    """Each figure in one undisturbed run of four; another program's burst of work is not the instrument's error."""
    off: dict[str, str] | None = None
    for _ in range(4):
        place.start("scenario=calibrate").communicate(timeout=300)
        checks = [check for check in place.json("summary.json")["checks"] if "calibration" in check["name"]]
        assert len({check["name"] for check in checks}) == 5, checks
        missed = {check["name"]: check["reason"] for check in checks if check["level"] != "ok"}
        off = missed if off is None else {name: reason for name, reason in missed.items() if name in off}
        if not off:
            break
    assert off == {}


@pytest.mark.slow
def test_a_sweep_from_any_folder_makes_a_result_for_each_combination(place):
    out = place.run("-m", "scenario=ckpt_smoke", "seed=1,2", *SMALL)
    runs = [json.loads(path.read_text()) for path in place.results.glob("box/ckpt_smoke/*/run.json")]
    assert sorted(run["config"]["seed"] for run in runs) == [1, 2]
    assert out.count("What a checkpoint costs") == 2


def workers_of(place: Place) -> list[int]:
    """Pids of the ranks that train at the moment."""
    found = []
    for pid in with_token(place.json("run.json")["token"]):
        try:
            command = psutil.Process(pid).cmdline()
        except psutil.Error:
            continue
        found += [pid] if "bench.train.worker" in command else []
    return found


def training(place: Place, launch: int) -> list[int]:
    """The ranks of a launch, once it takes steps."""
    events = place.folder / "launches" / str(launch) / "events"
    stepping = any('"step"' in path.read_text() for path in events.glob("worker-*"))
    return workers_of(place) if stepping else []


@pytest.mark.slow
def test_a_killed_worker_fails_its_launch_and_the_run_goes_on_and_says_so(place):
    process = place.start("scenario=ckpt_smoke", *SMALL, "launches=2", "cycles=40")
    os.kill(until(lambda: place.begun and training(place, 1), process)[0], signal.SIGKILL)
    out = place.finish(process, 1)
    assert place.statuses() == {0: "ok", 1: "failed", 2: "ok"}
    assert place.launches()[1]["nodes"]["0"]["codes"] == {"rank-0": -signal.SIGKILL}
    assert "launch 1 (quick) failed" in out
    summary = place.json("summary.json")
    (check,) = [check for check in summary["checks"] if check["name"] == "launches"]
    assert (summary["status"], check["level"]) == ("warn", "warn")
    assert "others failed: 1" in check["reason"]
    assert all(arm["launches"] >= 1 for arm in summary["arms"])


@pytest.mark.slow
def test_a_killed_runner_loses_its_launch_and_takes_its_workers_along(place):
    process = place.start("scenario=ckpt_smoke", *SMALL, "cycles=40")
    until(lambda: place.begun and training(place, 1), process)
    (runner,) = [child for child in psutil.Process(process.pid).children() if "bench.node" in child.cmdline()]
    runner.kill()
    place.finish(process, 1)
    assert place.statuses() == {0: "ok", 1: "lost"}


@pytest.mark.slow
def test_a_killed_driver_takes_everything_along_within_seconds(place):
    process = place.start("scenario=ckpt_smoke", *SMALL, "cycles=40", "checkpoint.arms=[none,nvrx_async]")
    until(lambda: place.begun and training(place, 1), process)
    until(place.look_at_shared_memory, process)
    process.kill()
    process.communicate()
    token, end = place.json("run.json")["token"], time.monotonic() + 20
    while with_token(token) or any(str(place.path) in " ".join(p.info["cmdline"] or []) for p in all_processes()):
        assert time.monotonic() < end
        time.sleep(0.1)
    place.run(f"resume={place.folder}")
    assert place.statuses() == {0: "ok", 1: "ok"}


def all_processes() -> Iterator[psutil.Process]:
    return psutil.process_iter(["cmdline"])


@pytest.mark.slow
def test_the_quick_and_the_full_design_agree_about_the_shares(place):
    """Paced steps: the share is no difference of noise. Three launches each: fewer do not show how launches differ."""
    shared = ["scenario=ckpt_smoke", "checkpoint.verify_content=false", "checkpoint.interval=5"]
    shared += ["train.compute=paced", "train.step_s=0.02"]
    place.run(*shared, "launches=3", "cycles=5")
    quick = shares(place)
    place.run(*shared, "design=full", "train.steps=73", "blocks=3")
    full = shares(place)
    assert min(quick["sync_local"]["median"], full["sync_local"]["median"]) > 0.03
    for arm in ("sync_local", "nvrx_async"):
        assert quick[arm]["interval"] == full[arm]["interval"] == "ci95"
        assert quick[arm]["low"] <= full[arm]["high"], (arm, quick[arm], full[arm])
        assert full[arm]["low"] <= quick[arm]["high"], (arm, quick[arm], full[arm])


def shares(place: Place) -> dict[str, dict[str, Any]]:
    return {arm["name"]: arm["share"] for arm in place.json("summary.json")["arms"]}
