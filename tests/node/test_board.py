"""Messages between runners over a real store on the loopback interface."""

from __future__ import annotations

import threading

import pytest

from bench.node.board import Board

HOST = "127.0.0.1"


@pytest.fixture
def boards():
    """The board of node 0 and another runner's view of it."""
    server = Board(HOST, 0, serve=True)
    return server, Board(HOST, server.port, serve=False)


class GaveUp(Exception):
    pass


def give_up() -> None:
    raise GaveUp


def test_a_message_posted_on_one_node_is_read_on_the_other(boards):
    server, other = boards
    server.post("order/0", {"action": "launch", "record": {"index": 3, "share": 0.5, "none": None}})
    assert other.has("order/0")
    assert other.read("order/0") == {"action": "launch", "record": {"index": 3, "share": 0.5, "none": None}}
    assert not other.has("order/1")


def test_waiting_returns_what_another_thread_posts(boards):
    server, other = boards
    asked = threading.Event()
    poster = threading.Thread(target=lambda: asked.wait(10) and server.post("late", 7))
    poster.start()
    assert other.wait("late", 10, alive=asked.set) == 7
    poster.join()


def test_waiting_gives_up_after_its_patience(boards):
    with pytest.raises(TimeoutError, match="no message 'never'"):
        boards[1].wait("never", 0.0)


def test_waiting_ends_when_the_waiter_is_told_to(boards):
    with pytest.raises(GaveUp):
        boards[1].wait("never", alive=give_up)


def test_a_meeting_lets_nobody_go_before_all_have_come(boards):
    server, other = boards
    with pytest.raises(TimeoutError):
        server.meet("start", 2, 0.0)
    other.meet("start", 2, 10.0)
    assert server.has("start/all")


def test_two_runners_meet(boards):
    server, other = boards
    errors = []

    def come(board: Board) -> None:
        try:
            board.meet("verify/0", 2, 10.0)
        except TimeoutError as error:
            errors.append(error)

    threads = [threading.Thread(target=come, args=(board,)) for board in (server, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_runner_alone_does_not_wait(boards):
    boards[0].meet("start", 1, 0.0)


def test_messages_do_not_mix_with_the_keys_of_the_ranks_in_the_same_store(boards):
    from torch.distributed import PrefixStore, TCPStore

    server, _ = boards
    server.post("clock", 1)
    ranks = PrefixStore("ranks/0", TCPStore(HOST, server.port, is_master=False, wait_for_workers=False))
    assert not ranks.check(["clock"])
