"""The coordinator over a real board, with threads for runners: order, budget, deadlines, lost nodes, resuming."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.config import Budget, Checkpoint, Design, Fault, Faults, Model, Recovery, Run, Storage, Train
from bench.design import plan
from bench.node import follow, room
from bench.node.board import Board
from bench.node.coordinate import Coordinator
from bench.node.pilot import Pilot
from bench.node.room import HOME_S
from bench.results import ResultFolder

HOST = "127.0.0.1"
PILOT = Pilot(0.1, 2.0, 1.0, {"sync_local": 0.5}, {"sync_local": 0.5, "nvrx_async": 1.0}, {})
OK = {"status": "ok", "codes": {}, "leftovers": []}
FAILED = {"status": "failed", "codes": {"rank-0": 1}, "leftovers": []}

# What a runner does with an order: (node, launch record) -> its report, or one of the words below.
Behaviour = Callable[[int, dict[str, Any]], "dict[str, Any] | str"]
UNTIL_STOPPED = "until stopped"
SILENT = "silent"


class FakeRunner(threading.Thread):
    """Takes orders from the board as a runner does and answers as `behaviour` says; `seen` are the launches it took."""

    def __init__(self, board: Board, node: int, behaviour: Behaviour) -> None:
        super().__init__(daemon=True)
        self.board, self.node, self.behaviour = board, node, behaviour
        self.seen: list[dict[str, Any]] = []
        self.stops: list[str] = []

    def run(self) -> None:
        for order in range(100):
            message = self.board.wait(f"order/{order}", 30)
            if message["action"] != "launch":
                return
            self.seen.append(message["record"])
            answer = self.behaviour(self.node, message["record"])
            if answer in (UNTIL_STOPPED, SILENT):
                self.stops.append(self.board.wait(f"stop/{order}", 30))
                if answer == SILENT:
                    return
                known = ("deadline", "relaunch")
                answer = {"status": self.stops[-1] if self.stops[-1] in known else "stopped"}
            self.board.post(f"ended/{order}/{self.node}", answer)


class Stage:
    """A result folder with a plan, a board, a coordinator and its runners."""

    def __init__(self, path: Path, config: Run, started_ago_s: float = 0.0) -> None:
        self.config = config
        self.folder = ResultFolder(path)
        self.launches = plan(config)
        started, records = time.time() - started_ago_s, [launch.to_json() for launch in self.launches]
        self.folder.write_run({"occasions": [{"started": started, "launches": records}]})
        self.server = Board(HOST, 0, serve=True)

    def play(self, behaviour: Behaviour, read_pilot: Callable[[Path], Pilot] = lambda _: PILOT) -> list[FakeRunner]:
        server = self.server = Board(HOST, 0, serve=True)
        views = [server] + [Board(HOST, server.port, serve=False) for _ in range(self.config.num_nodes - 1)]
        runners = [FakeRunner(view, node, behaviour) for node, view in enumerate(views)]
        self.coordinator = Coordinator(server, self.config, self.folder, read_pilot)
        for thread in (*runners, self.coordinator):
            thread.start()
        for thread in (self.coordinator, *runners):
            thread.join(60)
            assert not thread.is_alive()
        return runners

    def statuses(self) -> list[str | None]:
        return [(self.folder.read_launch(launch.index) or {}).get("status") for launch in self.launches]

    def reasons(self) -> list[str | None]:
        return [(self.folder.read_launch(launch.index) or {}).get("reason") for launch in self.launches]


def config(**changes: Any) -> Run:
    checkpoint = Checkpoint(arms=["none", "sync_local", "nvrx_async"], verify_content=False)
    return Run(**({"launches": 2, "cycles": 3, "checkpoint": checkpoint, "device": "cpu"} | changes))


@pytest.fixture
def stage(tmp_path) -> Callable[..., Stage]:
    return lambda started_ago_s=0.0, **changes: Stage(tmp_path, config(**changes), started_ago_s)


def succeed(node: int, record: dict[str, Any]) -> dict[str, Any]:
    return OK


def test_launches_are_ordered_one_after_the_other_as_planned_and_the_end_is_announced(stage):
    made = stage(num_nodes=2)
    runners = made.play(succeed)
    assert made.statuses() == ["ok", "ok", "ok"]
    for runner in runners:
        assert [record["index"] for record in runner.seen] == [0, 1, 2]
    assert made.server.read("order/3") == {"action": "end"}


def test_what_the_pilot_showed_is_told_with_every_order_after_it(stage):
    (runner,) = stage().play(succeed)
    pilot, first, _ = runner.seen
    assert (pilot["pilot"], pilot["expected_s"], pilot["interval"]) == (None, None, None)
    assert first["pilot"] == PILOT.to_json()
    assert first["interval"] == PILOT.interval() == 20
    assert first["collective_timeout_s"] == PILOT.collective_timeout_s()
    assert first["deadline_s"] == pytest.approx(3 * first["expected_s"] + 60)


def test_a_pilot_of_a_large_checkpoint_on_a_slow_store_is_given_the_time_that_it_takes(stage):
    """96 GB at 0.6 GB/s, that of 4.8 TiB of FSx for Lustre: a save takes 161 s, the pilot 17 minutes."""
    slow = Storage(provisioned_bytes_per_s=0.6e9)
    model = Model(vocab_size=128256, dim=4096, layers=32, heads=32, kv_heads=8, ffn_dim=14336, max_seq_len=8192)
    checkpoint = Checkpoint(arms=["none", "sync_full", "nvrx_async"], verify_content=False, deadline_s=1800.0)
    (runner,) = stage(model=model, storage=slow, checkpoint=checkpoint, device="cuda").play(succeed)
    pilot = runner.seen[0]
    assert pilot["deadline_s"] > 2 * 1048
    assert pilot["collective_timeout_s"] == 1800.0


def test_a_pilot_of_a_small_checkpoint_is_given_ten_minutes_and_its_collectives_two(stage):
    (runner,) = stage().play(succeed)
    assert (runner.seen[0]["deadline_s"], runner.seen[0]["collective_timeout_s"]) == (600.0, 120.0)


def test_an_interval_that_the_user_gave_outranks_the_pilots(stage):
    given = Checkpoint(arms=["none", "sync_local"], interval=5, verify_content=False)
    (runner,) = stage(checkpoint=given).play(succeed)
    assert runner.seen[1]["interval"] == 5


def test_another_occasion_keeps_the_interval_that_the_first_pilot_settled(stage):
    made = stage(design=Design(name="full"), train=Train(steps=163), blocks=1)
    run = made.folder.read_run()
    run["occasions"][-1]["interval"] = 9
    made.folder.write_run(run)
    (runner,) = made.play(succeed)
    assert PILOT.interval() != 9
    assert {s["interval"] for record in runner.seen[1:] for s in record["segments"]} == {9}


def test_an_automatic_interval_fills_the_segments_of_the_full_design(stage):
    (runner,) = stage(design=Design(name="full"), train=Train(steps=163), blocks=1).play(succeed)
    assert [[(s["interval"], s["saves"]) for s in record["segments"]] for record in runner.seen[1:]] == [[(20, 8)]] * 3


def test_a_finished_launch_is_recorded_with_its_times_and_every_nodes_report(stage):
    made = stage(num_nodes=2)
    made.play(succeed)
    record = made.folder.read_launch(1)
    assert record["started"] <= record["ended"]
    assert record["nodes"] == {"0": OK, "1": OK}
    assert "reason" not in record


def test_after_a_failed_pilot_nothing_is_started_and_everything_says_why(stage):
    made = stage()
    (runner,) = made.play(lambda node, record: FAILED)
    assert [record["index"] for record in runner.seen] == [0]
    assert made.statuses() == ["failed", "skipped", "skipped"]
    assert made.reasons()[1:] == ["the pilot launch failed"] * 2


def test_a_failed_launch_does_not_end_the_run(stage):
    made = stage()
    made.play(lambda node, record: FAILED if record["index"] == 1 else OK)
    assert made.statuses() == ["ok", "failed", "ok"]


def test_a_failed_launch_is_explained_by_its_logs(stage):
    made = stage()

    def fail(node: int, record: dict[str, Any]) -> dict[str, Any]:
        log = made.folder.launch_dir(record["index"]) / "logs" / "node0-rank-0.log"
        log.write_text("RuntimeError: out of luck\n")
        return FAILED

    made.play(fail)
    assert made.reasons()[0] == "RuntimeError: out of luck"


def test_when_one_node_fails_the_launch_is_stopped_on_the_others(stage):
    made = stage(num_nodes=3)
    runners = made.play(lambda node, record: FAILED if node == 1 else UNTIL_STOPPED)
    assert made.statuses()[0] == "failed"
    assert [runner.stops for runner in runners] == [["failed"], [], ["failed"]]


def test_a_launch_is_stopped_at_its_deadline_on_all_nodes_and_the_run_goes_on(stage):
    made = stage(num_nodes=2, launch_deadline_s=0.05)
    runners = made.play(lambda node, record: UNTIL_STOPPED if record["index"] == 1 else OK)
    assert made.statuses() == ["ok", "deadline", "ok"]
    assert made.reasons()[1] == "ended at its deadline of 1 s"
    assert [runner.stops for runner in runners] == [["deadline"]] * 2


def test_a_node_that_never_reports_is_lost_after_a_while_and_named_so(stage, monkeypatch):
    monkeypatch.setattr(follow, "REPORT_PATIENCE_S", 0.05)
    made = stage(num_nodes=2, launch_deadline_s=0.05)
    made.play(lambda node, record: SILENT if node == 1 else OK)
    assert made.statuses()[0] == "lost"
    assert made.folder.read_launch(0)["nodes"] == {"0": OK, "1": {"status": "lost"}}
    assert made.reasons()[0] == "node 1 was lost"


def test_a_launch_that_no_longer_fits_the_budget_is_left_out_and_says_so(stage):
    made = stage(budget=Budget(minutes=1.0), started_ago_s=59.0)
    (runner,) = made.play(succeed)
    assert [record["kind"] for record in runner.seen] == ["pilot"]
    assert made.statuses() == ["ok", "skipped", "skipped"]
    assert all(reason.startswith("budget.minutes=1.0 has no room for another ") for reason in made.reasons()[1:])


def test_a_launch_that_no_longer_fits_the_jobs_time_limit_is_left_out_and_says_so(stage):
    made = stage()
    run = made.folder.read_run()
    run["occasions"][-1]["ends_by"] = time.time() + 1
    made.folder.write_run({name: value for name, value in run.items() if name != "schema_version"})
    made.play(succeed)
    assert made.statuses() == ["ok", "skipped", "skipped"]
    assert made.reasons()[1].startswith("the job's time limit (cluster.time) has no room for another ")


def test_a_budget_of_gpu_hours_counts_every_rank(stage):
    left = stage(num_nodes=1, ranks_per_node=8, budget=Budget(gpu_hours=0.02))
    left.play(succeed)
    assert left.reasons()[1].startswith("budget.gpu_hours=0.02 has no room")
    fits = stage(num_nodes=1, ranks_per_node=1, budget=Budget(gpu_hours=0.02))
    for index in (0, 1, 2):
        (fits.folder.launch_dir(index) / "launch.json").unlink(missing_ok=True)
    fits.play(succeed)
    assert fits.statuses() == ["ok"] * 3


def test_resuming_keeps_what_is_finished_and_learns_from_the_pilot_again(stage):
    made = stage()
    made.play(lambda node, record: FAILED if record["index"] == 2 else OK)
    kept = [(made.folder.launch_dir(index) / "launch.json").read_bytes() for index in (0, 1)]
    (runner,) = made.play(succeed)
    assert [(record["index"], record["interval"]) for record in runner.seen] == [(2, 20)]
    assert [(made.folder.launch_dir(index) / "launch.json").read_bytes() for index in (0, 1)] == kept
    assert made.statuses() == ["ok"] * 3


def test_resuming_sets_an_unfinished_attempt_aside_and_takes_up_what_was_skipped(stage):
    made = stage()
    made.play(lambda node, record: FAILED)
    (made.folder.launch_dir(0) / "events" / "worker.jsonl").write_text("half\n")
    made.play(succeed)
    assert made.statuses() == ["ok"] * 3
    assert (made.folder.launch_dir(0) / "attempts" / "0" / "events" / "worker.jsonl").read_text() == "half\n"
    assert list((made.folder.launch_dir(0) / "events").iterdir()) == []


def test_after_an_interrupted_launch_no_other_is_begun(stage):
    made = stage()
    (runner,) = made.play(lambda node, record: {"status": "interrupted"} if record["index"] == 1 else OK)
    assert [record["index"] for record in runner.seen] == [0, 1]
    assert made.statuses() == ["ok", "interrupted", None]


def test_a_cancelled_run_waits_for_its_runners_reports_and_ends(stage):
    made = stage()

    def cancel(node: int, record: dict[str, Any]) -> str:
        made.coordinator.cancelled.set()
        return UNTIL_STOPPED

    (runner,) = made.play(cancel)
    assert [record["index"] for record in runner.seen] == [0]
    assert made.statuses() == ["running", None, None]  # the driver marks it


def test_a_pilot_that_shows_nothing_has_failed_and_the_run_ends_on_every_node(stage):
    def unreadable(folder: Path) -> Pilot:
        raise ValueError("the pilot launch recorded no steps")

    made = stage(num_nodes=2)
    runners = made.play(succeed, unreadable)
    assert [[record["index"] for record in runner.seen] for runner in runners] == [[0], [0]]
    assert made.statuses() == ["failed", "skipped", "skipped"]
    assert made.reasons()[0] == "the pilot launch recorded no steps"


def test_an_error_of_the_coordinator_itself_leaves_no_runner_waiting(stage, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    made = stage(num_nodes=2)
    monkeypatch.setattr(Coordinator, "_status", lambda self, outcomes: 1 / 0)
    runners = made.play(succeed)
    assert [[record["index"] for record in runner.seen] for runner in runners] == [[0], [0]]


# --- started again by the engine
def by_engine(**changes: Any) -> dict[str, Any]:
    faults = Faults(given=[Fault("sigkill", rank=0)])
    recovery = Recovery(layers=["requeue"], relaunch="engine", **changes)
    checkpoint = Checkpoint(arms=["sync_local"], interval=6, verify_content=False)
    return {
        "blocks": 1,
        "design": Design(name="recovery"),
        "faults": faults,
        "recovery": recovery,
        "checkpoint": checkpoint,
    }


def starts(made: Stage, number: int) -> None:
    """As the engine's own side of a start notes it."""
    run = made.folder.read_run()
    run["occasions"][-1]["starts"] = number
    made.folder.write_run({name: value for name, value in run.items() if name != "schema_version"})


def falls_once(made: Stage) -> Behaviour:
    def behave(node: int, record: dict[str, Any]) -> dict[str, Any] | str:
        if record["kind"] != "recovery" or record.get("relaunches"):
            return OK
        made.server.post("fell/2/0", True)
        return UNTIL_STOPPED

    return behave


def test_a_job_that_the_engine_started_again_goes_on_with_the_launch_that_fell(stage):
    made = stage(**by_engine())
    (runner,) = made.play(falls_once(made))
    assert runner.stops == ["relaunch"]
    assert made.server.read("order/3") == {"action": "relaunch"}
    fallen = made.folder.read_launch(2)
    assert (fallen["status"], fallen["relaunches"][0]["start"]) == ("relaunching", 1)
    (made.folder.launch_dir(2) / "faults" / "f0.json").write_text("{}")

    starts(made, 2)
    (runner,) = made.play(falls_once(made))
    (record,) = runner.seen
    assert record["started"] == fallen["started"]
    assert record["relaunches"][0]["back"] >= record["relaunches"][0]["asked"]
    assert made.statuses() == ["ok", "ok", "ok"]
    assert (made.folder.launch_dir(2) / "faults" / "f0.json").exists(), "what it had recorded stays with it"
    assert not (made.folder.launch_dir(2) / "attempts").exists()


def test_nothing_runs_within_the_outage_of_the_launch_that_waits(stage):
    """An earlier launch that had failed, or did not fit, is tried again in the next start, but after that one."""
    made = stage(**by_engine())
    made.play(falls_once(made))
    made.folder.write_launch(1, made.folder.read_launch(1) | {"status": "failed"})
    starts(made, 2)
    (runner,) = made.play(falls_once(made))
    assert [record["index"] for record in runner.seen] == [2, 1]


def test_another_job_begins_a_launch_that_waited_for_the_engine_afresh(stage):
    made = stage(**by_engine())
    made.play(falls_once(made))
    starts(made, 1)
    (runner,) = made.play(succeed)
    (record,) = runner.seen
    assert "relaunches" not in record
    assert (made.folder.launch_dir(2) / "attempts" / "0" / "launch.json").exists()
    assert made.statuses() == ["ok", "ok", "ok"]


def test_a_launch_that_its_fault_ended_is_a_result_with_what_the_job_died_of(stage):
    made = stage(**by_engine())

    def behave(node: int, record: dict[str, Any]) -> dict[str, Any]:
        if record["kind"] != "recovery":
            return OK
        folder = made.folder.launch_dir(record["index"])
        (folder / "faults" / "f0.json").write_text("{}")
        (folder / "logs" / "node0-rank-0.log").write_text("RuntimeError: nobody answers\n")
        return FAILED

    made.play(behave)
    record = made.folder.read_launch(2)
    assert (record["status"], record["end"]) == ("ok", "failed")
    assert record["given_up"] == "RuntimeError: nobody answers"
    assert "reason" not in record


# --- where a launch cannot go on
def recovering(layer: str, **changes: Any) -> dict[str, Any]:
    made = by_engine() | {"recovery": Recovery(layers=[layer], **changes)}
    return made | {"num_nodes": 2, "ranks_per_node": 1}


def struck_then(made: Stage, answer: Callable[[int], dict[str, Any] | str]) -> Behaviour:
    """The launch with faults is struck, and each node does what `answer` says."""

    def behave(node: int, record: dict[str, Any]) -> dict[str, Any] | str:
        if record["kind"] != "recovery":
            return OK
        (made.folder.launch_dir(record["index"]) / "faults" / "f0.json").write_text("{}")
        return answer(node)

    return behave


def test_a_requeued_job_without_a_node_that_does_not_come_back_ends_at_once_and_says_why(stage):
    made = stage(**recovering("requeue", node_return_s=None))

    def answer(node: int) -> str:
        if node == 1:
            made.server.post("fell/2/0", True)
            made.server.post("done/2/1", "gone")
        return UNTIL_STOPPED

    made.play(struck_then(made, answer))
    record = made.folder.read_launch(2)
    assert record["status"] == "ok"
    assert record["given_up"].startswith("node 1 does not come back (recovery.node_return_s=null)")


def test_a_pod_that_used_up_its_restarts_is_a_result_that_says_so(stage):
    made = stage(**recovering("pod_restart", max_restarts=4))
    made.play(struck_then(made, lambda node: FAILED if node == 1 else UNTIL_STOPPED))
    given_up = made.folder.read_launch(2)["given_up"]
    assert given_up.startswith("a node was started again 4 times, and recovery.max_restarts allows no more")


def ends_by(made: Stage, wall: float) -> None:
    run = made.folder.read_run()
    run["occasions"][-1]["ends_by"] = wall
    made.folder.write_run({name: value for name, value in run.items() if name != "schema_version"})


def test_no_launch_may_go_on_beyond_the_jobs_time_limit(stage):
    made = stage(**recovering("in_job"))
    free = made.play(succeed)[0].seen[-1]
    assert free["deadline_by"] is None
    (made.folder.launch_dir(2) / "launch.json").unlink()
    ends_by(made, time.time() + HOME_S + 60.0)
    (bound,) = made.play(succeed)[0].seen
    assert bound["deadline_s"] <= 60.0 - PILOT.around_s < free["deadline_s"]
    assert bound["deadline_by"] == "the job's time limit (cluster.time)"


def test_a_launch_that_hangs_until_then_is_a_result_that_says_so_and_nothing_is_begun_after_it(stage, monkeypatch):
    made = stage(**recovering("in_job") | {"blocks": 2})
    monkeypatch.setattr(room, "capped", lambda *given: (0.2, "the job's time limit (cluster.time)"))

    def hang(node: int) -> str:
        ends_by(made, time.time())
        return UNTIL_STOPPED

    runners = made.play(struck_then(made, hang))
    assert [runner.stops for runner in runners] == [["deadline"]] * 2
    assert made.statuses() == ["ok", "ok", "ok", "skipped", "skipped"]
    assert made.folder.read_launch(2)["given_up"] == (
        "ended after 1 s, where the job's time limit (cluster.time) left no more"
    )
