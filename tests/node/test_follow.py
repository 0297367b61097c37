"""What the coordinator makes of reports, silence and wishes to start again, over a real board."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bench.node import follow, pulse
from bench.node.board import Board
from bench.node.follow import Follow, StartAgain
from bench.node.pulse import Pulses

OK, FAILED, GONE = {"status": "ok"}, {"status": "failed"}, {"status": "gone"}


@pytest.fixture
def board():
    return Board("127.0.0.1", 0, serve=True)


class Following(threading.Thread):
    """Follows a launch of two nodes; what it found is there after `end()`."""

    def __init__(
        self,
        board: Board,
        deadline_s: float = 30.0,
        kind: str = "recovery",
        relaunches: int = 0,
        again: StartAgain | None = None,
        needs_all: bool = False,
    ) -> None:
        super().__init__(daemon=True)
        self.board = board
        record = {"kind": kind, "deadline_s": deadline_s, "relaunches": [{}] * relaunches}
        self.follow = Follow(board, 0, record, 2, Pulses(board), again, needs_all)
        self.start()

    def run(self) -> None:
        self.found = self.follow.outcomes(threading.Event())

    def end(self) -> dict[str, Any]:
        self.join(30)
        assert not self.is_alive()
        return self.found


def test_every_nodes_report_is_collected(board):
    following = Following(board)
    board.post("ended/0/0", OK)
    board.post("ended/0/1", GONE)
    assert following.end() == {"0": OK, "1": GONE}
    assert not board.has("stop/0")


def test_one_failure_stops_the_others(board):
    following = Following(board)
    board.post("done/0/1", "failed")
    assert board.wait("stop/0", 10) == "failed"
    board.post("ended/0/0", {"status": "stopped"})
    board.post("ended/0/1", FAILED)
    assert following.end() == {"0": {"status": "stopped"}, "1": FAILED}


def test_a_node_whose_ranks_are_gone_stops_nobody(board, monkeypatch):
    following = Following(board, deadline_s=0.3)
    board.post("ended/0/1", GONE)
    assert board.wait("stop/0", 10) == "deadline"
    board.post("ended/0/0", {"status": "deadline"})
    assert following.end()["0"] == {"status": "deadline"}


def test_nobody_waits_for_nodes_that_have_no_rank_left(board):
    following = Following(board)
    board.post("gone/0/1", True)
    board.post("done/0/0", "ok")  # its report comes only when the other node is done
    assert board.wait("stop/0", 10) == "over"
    board.post("ended/0/0", OK)
    board.post("ended/0/1", GONE)
    assert following.end() == {"0": OK, "1": GONE}


def test_who_lingers_after_another_node_has_come_to_the_end_is_told_that_it_is_over(board, monkeypatch):
    monkeypatch.setattr(follow, "LINGER_S", 0.05)
    following = Following(board)
    board.post("done/0/0", "ok")
    assert board.wait("stop/0", 10) == "over"
    board.post("ended/0/0", OK)
    board.post("ended/0/1", OK)
    assert following.end() == {"0": OK, "1": OK}


def test_in_a_launch_without_faults_every_node_has_the_time_it_needs(board, monkeypatch):
    monkeypatch.setattr(follow, "LINGER_S", 0.0)
    following = Following(board, deadline_s=0.3, kind="quick")
    board.post("ended/0/0", OK)
    assert board.wait("stop/0", 10) == "deadline"
    board.post("ended/0/1", {"status": "deadline"})
    following.end()


def test_a_wish_to_start_again_is_passed_on_to_all_and_granted_when_all_are_ready(board):
    following = Following(board, again=StartAgain(2, "used up"))
    board.post("fell/0/0", True)
    board.wait("again/0/1", 10)
    board.post("ready/0/1/0", True)
    assert not board.has("go/0/1")
    board.post("ready/0/1/1", True)
    board.wait("go/0/1", 10)
    board.post("fell/0/1", True)
    board.wait("again/0/2", 10)
    board.post("ended/0/0", OK)
    board.post("ended/0/1", OK)
    following.end()


def test_a_job_that_falls_once_more_than_it_may_start_again_is_stopped_and_says_why(board):
    following = Following(board, again=StartAgain(1, "used up"), needs_all=True)
    board.post("fell/0/0", True)
    for node in (0, 1):
        board.post(f"ready/0/1/{node}", True)
    board.wait("go/0/1", 10)
    board.post("fell/0/1", True)
    assert board.wait("stop/0", 10) == "failed"
    assert not board.has("again/0/2")
    board.post("ended/0/0", {"status": "stopped"})
    board.post("ended/0/1", {"status": "stopped"})
    following.end()
    assert following.follow.why == "used up"


def test_nobody_waits_for_a_node_that_does_not_come_back_where_the_layer_needs_all(board):
    following = Following(board, again=StartAgain(3, "used up"), needs_all=True)
    board.post("fell/0/0", True)
    board.post("ready/0/1/0", True)
    board.post("done/0/1", "gone")
    assert board.wait("stop/0", 10) == "failed"
    board.post("ended/0/0", {"status": "stopped"})
    board.post("ended/0/1", GONE)
    following.end()
    assert following.follow.why.startswith("node 1 does not come back (recovery.node_return_s=null)")


def test_the_next_start_by_an_engine_has_all_nodes_again(board):
    following = Following(board, again=StartAgain(3, "used up", by_engine=True), needs_all=True)
    board.post("done/0/1", "gone")
    board.post("fell/0/0", True)
    assert board.wait("stop/0", 10) == "relaunch"
    board.post("ended/0/0", {"status": "relaunch"})
    board.post("ended/0/1", GONE)
    following.end()


def test_where_an_engine_starts_the_job_again_a_fall_ends_it_on_all_nodes(board):
    following = Following(board, relaunches=1, again=StartAgain(3, "used up", by_engine=True))
    board.post("fell/0/1", True)
    assert board.wait("stop/0", 10) == "relaunch"
    board.post("ended/0/0", {"status": "relaunch"})
    board.post("ended/0/1", {"status": "relaunch"})
    assert following.end() == {"0": {"status": "relaunch"}, "1": {"status": "relaunch"}}
    assert not board.has("again/0/2"), "no runner starts anything itself"


def test_a_job_that_has_used_up_its_restarts_is_not_given_to_the_engine_again(board):
    following = Following(board, relaunches=3, again=StartAgain(0, "used up", by_engine=True))
    board.post("fell/0/3", True)
    assert board.wait("stop/0", 10) == "failed"
    board.post("ended/0/0", {"status": "stopped"})
    board.post("ended/0/1", {"status": "stopped"})
    following.end()


def test_a_node_that_reads_back_has_its_time_after_the_deadline_and_is_not_lost(board, monkeypatch):
    monkeypatch.setattr(follow, "REPORT_PATIENCE_S", 0.0)
    following = Following(board, deadline_s=0.3, kind="quick")
    for node in range(2):
        board.post(f"done/0/{node}", "ok")
        board.post(f"reading/0/{node}", 60.0 * node)
    board.post("ended/0/0", OK)
    following.join(1.0)  # well past the deadline
    assert following.is_alive()
    assert not board.has("stop/0")
    board.post("ended/0/1", OK)
    assert following.end() == {"0": OK, "1": OK}


def test_a_node_that_falls_silent_is_lost_long_before_the_deadline(board, monkeypatch):
    monkeypatch.setattr(pulse, "SILENT_S", 0.1)
    board.post(pulse.key(1), 1)
    following = Following(board)
    assert board.wait("lost", 10) == 1
    assert board.wait("stop/0", 10) == "failed"
    board.post("ended/0/0", {"status": "stopped"})
    assert following.end()["1"] == {"status": "lost"}


def test_a_runner_that_never_had_a_pulse_is_not_called_silent(board, monkeypatch):
    monkeypatch.setattr(pulse, "SILENT_S", 0.0)
    assert not Pulses(board).silent(0)
