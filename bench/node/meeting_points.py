"""Ports and stores of a launch that exist before any rank starts and outlive every rank: on node 0, told to all."""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass
from datetime import timedelta

from torch.distributed import TCPStore

from bench.node.base import MEETING_PATIENCE_S, Node

STORE_PATIENCE = timedelta(seconds=300)


@dataclass(frozen=True)
class Ports:
    """Of node 0, for one attempt of a launch."""

    agent: int  # free, for the agents' own rendezvous
    wrapper: int  # store of inprocess.Wrapper; 0: not needed
    rank: int  # free, for the env:// rendezvous that rank 0 hosts


class MeetingPoints:
    """Makes what one attempt of a launch needs; node 0's runner keeps the stores alive until the next attempt."""

    def __init__(self, node: Node, order: int) -> None:
        self.node = node
        self.order = order
        self._store: TCPStore | None = None
        self._held: list[socket.socket] = []

    def for_attempt(self, attempt: int, with_wrapper_store: bool) -> Ports:
        """Call it on every node; node 0 decides, the others wait for it. Raises TimeoutError."""
        key = f"ports/{self.order}/{attempt}"
        if self.node.number == 0 and not self.node.board.has(key):
            wrapper = self._host() if with_wrapper_store else 0
            self._let_go()
            self.node.board.post(key, asdict(Ports(self._hold(), wrapper, self._hold())))
        return Ports(**self.node.board.wait(key, MEETING_PATIENCE_S))

    def _host(self) -> int:
        self._store = TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False, timeout=STORE_PATIENCE)
        return int(self._store.port)

    def _hold(self) -> int:
        """A port that nobody else is given until an agent or rank listens there: bound, and not listened on."""
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        self._held.append(held)
        return int(held.getsockname()[1])

    def _let_go(self) -> None:
        while self._held:
            self._held.pop().close()

    def close(self) -> None:
        self._let_go()
        self._store = None
