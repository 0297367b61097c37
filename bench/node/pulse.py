"""Signs of life of the runners, on the board: a node without power says nothing, and must not hold up the rest."""

from __future__ import annotations

import threading
import time

from bench.node.board import Board

BEAT_S = 2.0
SILENT_S = 20.0  # a node that was silent for so long is lost


class Pulse(threading.Thread):
    """Posts a growing number every BEAT_S for as long as this runner lives."""

    def __init__(self, board: Board, node: int) -> None:
        super().__init__(name="pulse", daemon=True)
        self.board = board
        self.node = node

    def run(self) -> None:
        beat = 0
        while True:
            try:
                self.board.post(key(self.node), beat)
            except RuntimeError:
                return  # the board is gone, and so is the run
            beat += 1
            time.sleep(BEAT_S)


class Pulses:
    """What node 0 hears, by its own clock alone."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._heard: dict[int, tuple[int, float]] = {}  # node -> (last beat, when it was new)

    def silent(self, node: int) -> bool:
        """Whether a node that was heard before has been silent for too long."""
        if not self.board.has(key(node)):
            return False
        now, beat = time.monotonic(), int(self.board.read(key(node)))
        last, since = self._heard.get(node, (-1, now))
        if beat != last:
            self._heard[node] = (beat, now)
            return False
        return now - since > SILENT_S


def key(node: int) -> str:
    return f"pulse/{node}"
