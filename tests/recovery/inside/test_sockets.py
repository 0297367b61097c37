from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bench.recovery.inside.sockets import open_sockets, shut_down


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def connected(stack: ExitStack, listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    ours = stack.enter_context(socket.create_connection(listener.getsockname()))
    return ours, stack.enter_context(listener.accept()[0])


def listening(stack: ExitStack) -> socket.socket:
    return stack.enter_context(socket.create_server(("127.0.0.1", 0)))


def test_a_thread_that_waits_on_a_connection_is_woken(stack):
    listener, before = listening(stack), open_sockets()
    ours, _ = connected(stack, listener)
    received: list[bytes] = []
    waiting = threading.Thread(target=lambda: received.append(ours.recv(1)))
    waiting.start()
    assert shut_down(before) == 2  # both ends are in this process
    waiting.join(10)
    assert received == [b""]


def test_what_was_open_before_stays_open(stack):
    listener = listening(stack)
    ours, theirs = connected(stack, listener)
    assert shut_down(open_sockets()) == 0
    ours.sendall(b"x")
    assert theirs.recv(1) == b"x"


def test_sockets_that_listen_or_belong_to_this_machine_alone_are_left_alone(stack):
    before = open_sockets()
    listener = listening(stack)
    left, right = socket.socketpair()
    stack.enter_context(left)
    stack.enter_context(right)
    assert shut_down(before) == 0
    connected(stack, listener)
    left.sendall(b"x")
    assert right.recv(1) == b"x"


def test_a_socket_is_known_by_more_than_the_number_of_its_descriptor(stack):
    first = socket.socket()
    before, number = open_sockets(), first.fileno()
    first.close()
    listener = listening(stack)
    assert listener.fileno() == number
    assert not open_sockets() <= before
