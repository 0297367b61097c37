"""A strategy of exactly known durations, to calibrate the instrument with. It writes nothing.

Options: `block_s`: seconds that save() blocks (S). `durable_s`: seconds from the call until the write counts as durable
(L). `slowdown`: how many times longer the trainer's paced steps take meanwhile (1); the trainer reads and obeys it.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.checkpoint.base import Context, Strategy, Tree
from bench.errors import BadInput
from bench.record import clock, wait_until


@dataclass(frozen=True)
class _Write:
    save: int
    step: int
    t_begin: float


class Synthetic(Strategy):
    name = "synthetic"
    keeps_checkpoints = False

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        options = {name: float(context.options.get(name, -1.0)) for name in ("block_s", "durable_s")}
        self.slowdown = float(context.options.get("slowdown", 1.0))
        if min(options.values()) < 0 or self.slowdown < 1:
            given = f"{context.options}"
            raise BadInput(f"checkpoint.synthetic: needs block_s and durable_s >= 0 s and slowdown >= 1, got {given}")
        self.block_s, self.durable_s = options["block_s"], options["durable_s"]
        self.background = self.durable_s > self.block_s
        self._in_flight: _Write | None = None

    def _save(self, step: int, tree: Tree, save: int) -> None:
        with self.phase("wait_previous"):
            self.drain()
        t_begin = clock()
        self._in_flight = _Write(save, step, t_begin)
        with self.phase("write"):
            wait_until(t_begin + self.block_s)
        self.poll()

    def poll(self) -> bool:
        """Records the moment at which the write became durable, once it has come: a killed process must not have."""
        write = self._in_flight
        if write is None:
            return True
        t_durable = write.t_begin + self.durable_s
        if clock() < t_durable:
            return False
        self.context.recorder.instant(
            "durable", t=t_durable, arm=self.name, save=write.save, step=write.step, bytes=0, t_begin=write.t_begin
        )
        self._in_flight = None
        return True
