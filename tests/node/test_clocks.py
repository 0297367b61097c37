"""The offset between hosts: against the own server it is nothing, and its bound holds."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from dataclasses import asdict

import pytest

from bench.node import clocks
from bench.node.clocks import ClockServer, Offset, measure


@pytest.fixture
def server():
    made = ClockServer()
    yield made
    made.close()


class FakeConnection:
    """Node 0 with a clock `ahead` of ours; the n-th exchange takes `delays[n]` there and as long back."""

    def __init__(self, ahead: float, delays: list[float]) -> None:
        self.now, self.ahead, self.delays = 100.0, ahead, iter(delays)
        self.answer = b""

    def monotonic(self) -> float:
        return self.now

    def sendall(self, data: bytes) -> None:
        self.delay = next(self.delays)
        self.now += self.delay
        self.answer = struct.pack("!d", self.now + self.ahead)
        self.now += self.delay

    def recv(self, size: int) -> bytes:
        part, self.answer = self.answer[:3], self.answer[3:]  # TCP may cut an answer anywhere
        return part


def test_a_clock_is_not_apart_from_itself(server):
    found = measure("127.0.0.1", server.port)
    assert abs(found.offset_s) <= found.uncertainty_s < 0.1


def test_several_nodes_can_ask_at_once_and_again(server):
    found: list[Offset] = []
    threads = [threading.Thread(target=lambda: found.append(measure("127.0.0.1", server.port))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert all(abs(offset.offset_s) <= offset.uncertainty_s for offset in found)


def test_the_offset_is_what_brings_our_clock_to_node_zeros(monkeypatch):
    connection = FakeConnection(ahead=5.0, delays=[0.25])
    monkeypatch.setattr(clocks.time, "monotonic", connection.monotonic)
    assert asdict(clocks._ping(connection)) == {"offset_s": 5.0, "uncertainty_s": 0.25}


def test_the_quickest_exchange_counts(monkeypatch):
    connection = FakeConnection(ahead=-3.0, delays=[0.5, 0.125, *itertools.repeat(0.25, clocks.PINGS)])
    connection.setsockopt = lambda *_: None
    connection.__class__.__enter__ = lambda self: self
    connection.__class__.__exit__ = lambda *_: None
    monkeypatch.setattr(clocks.time, "monotonic", connection.monotonic)
    monkeypatch.setattr(clocks.socket, "create_connection", lambda *_, **__: connection)
    assert measure("node0", 1) == Offset(-3.0, 0.125)


def hang_up_on(listener: socket.socket) -> None:
    listener.accept()[0].close()


def test_a_node_zero_that_goes_away_is_an_error_and_no_endless_wait():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hang_up = threading.Thread(target=hang_up_on, args=(listener,))
        hang_up.start()
        with pytest.raises(OSError):  # noqa: PT011 - closed by the peer, in one way or the other
            measure("127.0.0.1", listener.getsockname()[1])
        hang_up.join()


def test_a_node_zero_that_is_not_there_is_an_error(free_port):
    with pytest.raises(OSError, match="refused"):
        measure("127.0.0.1", free_port)
