"""Aligning hosts: the offset of this node's monotonic clock from node 0's, by ping-pong.

A ping carries nothing; node 0 answers with its clock. The exchange with the smallest round trip is kept: its middle is
when node 0's clock was read, and half that round trip bounds the error.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
import time
from dataclasses import dataclass

PINGS = 32


class _Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while self.request.recv(1):
            self.request.sendall(struct.pack("!d", time.monotonic()))


class ClockServer:
    """Answers pings with this host's monotonic clock until closed."""

    def __init__(self) -> None:
        socketserver.ThreadingTCPServer.allow_reuse_address = True
        self._server = socketserver.ThreadingTCPServer(("", 0), _Answer)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="clock", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True)
class Offset:
    """Add `offset_s` to this node's monotonic times to get node 0's; off by at most `uncertainty_s`."""

    offset_s: float
    uncertainty_s: float


def measure(host: str, port: int) -> Offset:
    """Offset to the clock server at host:port. Raises OSError when it cannot be reached."""
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return min((_ping(connection) for _ in range(PINGS)), key=lambda offset: offset.uncertainty_s)


def _ping(connection: socket.socket) -> Offset:
    sent = time.monotonic()
    connection.sendall(b"?")
    answer = b""
    while len(answer) < 8:
        part = connection.recv(8 - len(answer))
        if not part:
            raise ConnectionError("node 0's clock closed the connection")
        answer += part
    received = time.monotonic()
    (theirs,) = struct.unpack("!d", answer)
    return Offset(theirs - (sent + received) / 2, (received - sent) / 2)
