"""One launch on one node, with real but tiny processes in place of a trainer: watched, ended, shipped, reported."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench import recovery
from bench.config import Checkpoint, Design, Model, Run, Storage, Train
from bench.design import plan
from bench.faults.base import Planned
from bench.faults.claim import claim, record_of
from bench.node import around
from bench.node.base import Node, NodeLost, Scene, Stopped, interface_to
from bench.node.board import Board
from bench.node.clocks import ClockServer
from bench.node.launch import LaunchRunner
from bench.recovery.base import Layer, Place, Process
from bench.results import ResultFolder
from bench.supervise import TOKEN, Supervisor, with_token

TOKEN_OF_RUN = "token-of-this-run"
SLEEP = "import time; time.sleep(120)"
# What a rank would do: an event file of its own, and an exit.
WRITE_EVENTS = """
import json, os, sys
settings = json.load(open(os.environ["BENCH_LAUNCH"]))
with open(os.path.join(settings["events_dir"], "worker-n0-r0-%d-1.jsonl" % os.getpid()), "w") as file:
    file.write(json.dumps({"kind": "meta", "token": os.environ["BENCH_TRIAL_TOKEN"]}) + "\\n")
print("done")
"""
LEAVE_ORPHAN = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)"
LEAVE_SHM = "import os; open('/dev/shm/psm_%d_bench' % os.getpid(), 'w').close()\n" + WRITE_EVENTS


class FakeLayer(Layer):
    """Starts one process per snippet of Python."""

    name = "fake"

    def __init__(self, *snippets: str) -> None:
        self.snippets = snippets
        self.place: Place | None = None

    def processes(self, place: Place) -> list[Process]:
        self.place = place
        return [Process(f"rank-{n}", [sys.executable, "-c", code], {}, n) for n, code in enumerate(self.snippets)]


class Bed:
    """A node with a board, a result folder and a launch to run on it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, *snippets: str, **changes: Any) -> None:
        self.clock = ClockServer()
        self.board = Board("127.0.0.1", 0, serve=True)
        self.board.post("clock", self.clock.port)
        config = Run(**({"storage": Storage(probe=False), "ranks_per_node": 1} | changes))
        self.folder = ResultFolder(path / "result")
        self.supervisor = Supervisor()
        self.node = Node(
            0,
            "127.0.0.1",
            self.board,
            config,
            self.folder,
            TOKEN_OF_RUN,
            path / "work",
            path / "checkpoints",
            "cpu",
            self.supervisor,
        )
        self.layer = FakeLayer(*snippets)
        monkeypatch.setattr(recovery, "create", lambda name: self.layer)
        self.record = plan(config)[0].to_json() | {"collective_timeout_s": 60.0, "deadline_s": 60.0, "timeouts": None}
        self.folder.write_launch(0, self.record)

    def runner(self) -> LaunchRunner:
        return LaunchRunner(self.node, 0, self.record)

    def run(self) -> dict[str, Any]:
        self.runner().run()
        return self.report()

    def report(self) -> dict[str, Any]:
        return self.board.read("ended/0/0")

    def events(self, name: str) -> list[dict[str, Any]]:
        (path,) = (self.folder.launch_dir(0) / "events").glob("runner-*.jsonl")
        found = [json.loads(line) for line in path.read_text().splitlines()]
        return [event for event in found if event.get("name") == name]


@pytest.fixture
def bed(tmp_path, monkeypatch):
    beds: list[Bed] = []

    def make(*snippets: str, **changes: Any) -> Bed:
        beds.append(Bed(tmp_path, monkeypatch, *snippets, **changes))
        return beds[-1]

    yield make
    for made in beds:
        made.clock.close()
        assert made.supervisor.end_all() == []
    assert with_token(TOKEN_OF_RUN) == []


def test_a_launch_whose_processes_end_well_is_ok_and_its_events_and_logs_are_in_the_result(bed):
    made = bed(WRITE_EVENTS)
    assert made.run() == {"status": "ok", "codes": {"rank-0": 0}, "leftovers": []}
    folder = made.folder.launch_dir(0)
    (worker,) = (folder / "events").glob("worker-*.jsonl")
    assert json.loads(worker.read_text()) == {"kind": "meta", "token": TOKEN_OF_RUN}
    assert (folder / "logs" / "node0-rank-0.log").read_text() == "done\n"


def test_the_runner_records_its_clock_the_load_and_the_begin_and_end_of_the_processes(bed):
    made = bed(WRITE_EVENTS)
    made.run()
    assert [event["when"] for event in made.events("clock")] == ["before", "after"]
    (begin,), (end,), (exited,) = made.events("launch_begin"), made.events("launch_end"), made.events("exited")
    assert begin["t"] <= exited["t"] <= end["t"]
    assert (exited["local_rank"], exited["code"]) == (0, 0)
    assert made.events("load")[0]["cpus"] == len(os.sched_getaffinity(0))


def test_one_failed_process_ends_the_launch_and_all_others_with_it(bed):
    made = bed("raise SystemExit(3)", SLEEP)
    assert made.run() == {"status": "failed", "codes": {"rank-0": 3}, "leftovers": []}


def test_a_killed_process_is_a_failure_with_its_signal(bed):
    made = bed("import os; os.kill(os.getpid(), 9)")
    assert made.run()["codes"] == {"rank-0": -signal.SIGKILL}


def test_a_stop_from_the_coordinator_ends_the_launch_under_the_name_of_its_cause(bed):
    for content, status in (("deadline", "deadline"), ("failed", "stopped")):
        made = bed(SLEEP)
        made.board.post("stop/0", content)
        assert made.run() == {"status": status, "codes": {}, "leftovers": []}


def test_processes_that_the_launch_left_in_other_sessions_are_ended_and_none_is_left(bed):
    made = bed(LEAVE_ORPHAN)
    assert made.run()["status"] == "ok"
    assert with_token(TOKEN_OF_RUN) == []
    assert made.events("leftovers")[0]["pids"] == []


def test_a_file_that_a_process_left_in_shared_memory_is_named(bed):
    made = bed(LEAVE_SHM)
    made.run()
    (left,) = made.events("leftovers")
    assert [name.startswith("psm_") for name in left["shm"]] == [True]
    for name in left["shm"]:
        os.unlink(f"/dev/shm/{name}")


def test_events_of_an_attempt_that_nobody_cleaned_up_are_not_shipped(bed):
    made = bed(WRITE_EVENTS)
    stale = made.node.work_dir / "launch-0" / "events" / "worker-n0-r0-1-1.jsonl"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}\n")
    made.run()
    assert not (made.folder.launch_dir(0) / "events" / stale.name).exists()


def test_checkpoints_are_removed_when_the_launch_has_ended(bed):
    made = bed(WRITE_EVENTS)
    made.run()
    assert list(made.node.checkpoint_dir.iterdir()) == []


def test_a_launch_that_the_engine_starts_again_keeps_its_checkpoints_for_the_next_start(bed):
    made = bed(SLEEP)
    made.board.post("stop/0", "relaunch")
    assert made.run() == {"status": "relaunch", "codes": {}, "leftovers": []}
    assert [path.name for path in made.node.checkpoint_dir.iterdir()] == ["launch-0"]


def test_in_the_next_start_logs_have_names_of_their_own_and_nothing_is_probed_before_them(bed):
    made = bed(WRITE_EVENTS, storage=Storage(probe=True))
    made.record["relaunches"] = [{"asked": 1.0, "start": 1, "back": 2.0}]
    assert made.run()["status"] == "ok"
    assert (made.folder.launch_dir(0) / "logs" / "node0-rank-0-attempt1.log").exists()
    (restart,) = made.events("restart")
    assert (restart["scope"], restart["attempt"]) == ("job", 1)
    assert [event["when"] for event in made.events("probe")] == ["after"]
    assert made.layer.place.launch_id.endswith("-0-1")


def test_a_launch_that_begins_finds_no_checkpoint_of_an_attempt_that_was_cut_off(bed):
    stale = [bed(SLEEP).node.checkpoint_dir / "launch-0" / name for name in ("sync_local/step-00000006/shard.pt", "x")]
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("old")
    made = bed(SLEEP)
    made.board.post("stop/0", "relaunch")
    made.run()
    assert list((made.node.checkpoint_dir / "launch-0").iterdir()) == []


def test_an_exception_is_still_reported_and_leaves_no_process(bed, monkeypatch):
    made = bed(SLEEP)

    def stop(*_: Any) -> bool:
        raise KeyboardInterrupt

    has = made.board.__class__.has
    monkeypatch.setattr(made.board.__class__, "has", lambda self, key: stop() if key == "stop/0" else has(self, key))
    with pytest.raises(KeyboardInterrupt):
        made.runner().run()
    monkeypatch.undo()
    assert made.report() == {"status": "interrupted", "codes": {}, "leftovers": []}


def leave(made: Bed) -> Path:
    """A fault on record that left a flag, which its undo takes away."""
    flag, faults = made.node.work_dir.parent / "flag", made.folder.launch_dir(0) / "faults"
    faults.mkdir(parents=True, exist_ok=True)
    fault = Planned("0-health_check_failure", "health_check_failure", "step", 1, 0, 0)
    claim(faults, record_of(fault, 1, 0, (1, 1), "rank", {"flag": str(flag)}))
    return flag


@pytest.mark.parametrize("error", [KeyboardInterrupt, Stopped, NodeLost])
def test_what_faults_left_is_undone_however_the_launch_ends(bed, monkeypatch, error):
    made = bed(SLEEP)
    leave(made).touch()

    def watch(self):
        raise error

    monkeypatch.setattr(LaunchRunner, "_watch", watch)
    if error is NodeLost:
        made.runner().run()
    else:
        with pytest.raises(error):
            made.runner().run()
    assert not (made.node.work_dir.parent / "flag").exists()


def test_what_a_fault_left_and_nobody_could_undo_is_on_record_each_time_that_it_was_tried(bed):
    made = bed(WRITE_EVENTS)
    leave(made).mkdir()  # no file: it cannot be unlinked
    assert made.run()["status"] == "ok"
    told = made.events("undone")
    assert [event["fault"] for event in told] == ["0-health_check_failure"] * 2
    assert all("flag" in event["evidence"]["left"] for event in told)


def test_faults_that_cannot_be_looked_up_are_noted_and_the_launch_is_reported_all_the_same(bed, monkeypatch):
    made = bed(WRITE_EVENTS)

    def gone(self):
        raise OSError("stale file handle")

    monkeypatch.setattr("bench.faults.runner.Injector.finish", gone)
    assert made.run()["status"] == "ok"
    assert "stale file handle" in made.events("note")[-1]["text"]


def test_what_the_ranks_are_told_is_the_resolved_configuration_and_the_launch(bed):
    made = bed(WRITE_EVENTS, train=Train(threads=3))
    made.run()
    told = json.loads((made.node.work_dir / "launch-0" / "settings.json").read_text())
    assert told["config"]["train"]["threads"] == 3
    assert told["launch"] == {key: json.loads(json.dumps(made.record))[key] for key in told["launch"]}
    assert (told["store_port"], told["token"], told["device"]) == (made.board.port, TOKEN_OF_RUN, "cpu")
    assert made.layer.place.num_nodes == 1
    assert 0 < made.layer.place.agent_port < 65536


def test_every_process_gets_the_same_threads_interface_and_token_and_the_users_variables_win(bed, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "of-the-user")
    env = bed(train=Train(threads=3)).runner().scene.environment()
    assert (env["OMP_NUM_THREADS"], env["GLOO_SOCKET_IFNAME"], env[TOKEN]) == ("3", "of-the-user", TOKEN_OF_RUN)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert bed().runner().scene.environment()["OMP_NUM_THREADS"] == "7"


def test_the_storage_probe_writes_before_and_after_as_many_bytes_as_a_checkpoint(bed):
    made = bed(WRITE_EVENTS, storage=Storage(probe=True, fsync=False), ranks_per_node=2)
    made.run()
    probes = made.events("probe")
    assert [probe["when"] for probe in probes] == ["before", "after"]
    each = made.node.config.predicted_checkpoint_bytes // 2
    assert {(p["processes"], p["bytes_per_process"], p["fsync"]) for p in probes} == {(2, each, False)}
    assert all(probe["bytes_per_s"] > 0 for probe in probes)


def test_arms_with_and_without_fsync_are_each_probed_their_own_way_and_shortly(bed):
    arms = Checkpoint(arms=["none", "sync_local", "sync_local+fsync"])
    made = bed(WRITE_EVENTS, storage=Storage(probe=True, fsync=False), checkpoint=arms)
    made.run()
    probes = made.events("probe")
    found = [(probe["when"], probe["fsync"], len(probe["seconds"])) for probe in probes]
    counted = around.SHORT_REPEATS - 1
    assert found == [(when, fsync, counted) for when in ("before", "after") for fsync in (False, True)]


@pytest.mark.parametrize(
    ("arms", "fsync"), [(["none"], False), (["sync_local+fsync"], True), (["none", "sync_local"], False)]
)
def test_a_launch_is_probed_with_the_settings_of_the_arms_that_it_has(bed, arms, fsync):
    made = bed(WRITE_EVENTS, storage=Storage(probe=True, fsync=False))
    made.record["arms"] = arms
    assert around._fsync_settings(made.runner().scene) == [fsync]


@pytest.mark.parametrize(("pilot", "probed"), [(None, []), ({"written_bytes": 4096}, [2048] * 2)])
def test_a_model_of_unknown_size_is_probed_with_the_bytes_that_its_pilot_wrote(bed, pilot, probed):
    made = bed(WRITE_EVENTS, storage=Storage(probe=True), model=Model(target="package.Class"), ranks_per_node=2)
    made.record["pilot"] = pilot
    assert made.run()["status"] == "ok"
    assert [probe["bytes_per_process"] for probe in made.events("probe")] == probed
    assert made.events("note") == []


def test_a_probe_of_a_slow_store_is_given_the_time_that_it_takes_and_nodes_wait_for_it(bed):
    large = Model(vocab_size=128256, dim=4096, layers=32, heads=32, kv_heads=8, ffn_dim=14336, max_seq_len=8192)
    slow = bed(WRITE_EVENTS, model=large, storage=Storage(provisioned_bytes_per_s=0.6e9)).runner().scene
    assert around.probe_patience_s(slow) > 2 * 321  # two writes of 96 GB, all nodes together
    assert around.after_probe_patience_s(slow) > around.probe_patience_s(slow) + 60
    assert around.probe_patience_s(bed(WRITE_EVENTS).runner().scene) == 300.0


def verifying(bed, *arms: str) -> Bed:
    """A launch at whose end a save of each arm is to be read back, though there is none."""
    events = [{"kind": "instant", "name": "verify_save", "arm": arm, "step": 7, "digest": "abc"} for arm in arms]
    says = "\n".join(map(json.dumps, events))
    write = WRITE_EVENTS.replace('print("done")', f"file = open(file.name, 'a'); print({says!r}, file=file)")
    return bed(write, checkpoint=Checkpoint(arms=list(arms)))


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (None, "node 0 had not read it within 300 s"),
        (-9, "the reader ended with exit code -9; see logs/node0-verify-sync_local.log of the launch"),
    ],
)
def test_a_reader_that_does_not_come_to_an_end_is_recorded_as_such_and_not_as_a_difference(
    bed, monkeypatch, code, reason
):
    made = verifying(bed, "sync_local")
    monkeypatch.setattr(Scene, "call", lambda *_: [code])
    assert made.run()["status"] == "ok"
    (found,) = made.events("verified")
    assert (found["rank"], found["digest"], found["complete"], found["unread"]) == (0, None, None, reason)


def test_the_patience_with_readers_grows_with_the_bytes_and_all_nodes_wait_for_the_slowest(bed, monkeypatch):
    made, asked, met = verifying(bed, "sync_local", "nvrx_async"), [], {}

    def call(scene: Scene, modules: Any, logs: Any, patience_s: float) -> list[int | None]:
        asked.append(([module[:2] + module[-2:] for module in modules], patience_s))
        return [None] * len(modules)

    monkeypatch.setattr(around, "bytes_to_read", lambda *_: 40_000_000_000)
    monkeypatch.setattr(Scene, "call", call)
    monkeypatch.setattr(Scene, "meet", lambda scene, name, patience_s=0.0: met.update({name: patience_s}))
    assert made.run()["status"] == "ok"
    ((modules, patience_s),) = asked
    assert patience_s == 2 * 40e9 / around.READ_BYTES_PER_S
    assert [module[0] for module in modules] == ["bench.checkpoint.verify"] * 2
    assert {module[-2:] for module in modules} == {("--ranks", "0:1")}
    assert made.board.read("reading/0/0") == patience_s
    assert met["verified"] > patience_s


def test_saves_to_verify_are_read_from_the_events_and_a_missing_checkpoint_is_no_match(bed):
    made = verifying(bed, "sync_local")
    made.run()
    (found,) = made.events("verified")
    assert (found["arm"], found["step"], found["rank"], found["digest"], found["complete"]) == (
        "sync_local",
        7,
        0,
        None,
        False,
    )


def test_the_interface_to_this_machine_is_the_loopback_one():
    name = interface_to("127.0.0.1")
    addresses = [entry.address for entry in psutil.net_if_addrs()[name] if entry.family == socket.AF_INET]
    assert "127.0.0.1" in addresses


def test_ranks_have_the_same_variables_whichever_arms_their_launch_has(bed, monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    made = bed("pass", design=Design(name="full"))
    launches = [each.to_json() for each in plan(made.node.config)]
    found = []
    for order, record in enumerate(launches):
        scene = Scene.set(made.node, order, record)
        scene.recorder.close()
        variables, own = scene.environment(), ("BENCH_LAUNCH", "TMPDIR")  # where this launch's files lie
        found.append({name: value for name, value in variables.items() if name not in own})
        scene.temporary_dir.rmdir()
    assert len({tuple(record["arms"]) for record in launches}) > 2
    assert found == [found[0]] * len(launches)
    assert found[0]["NCCL_ALGO"] == "Ring"
