"""Ranks inside inprocess.Wrapper below ft_launcher. The agent acts when a rank dies, or is silent for longer than the
Wrapper takes to mend it."""

from __future__ import annotations

from bench.recovery.inside.base import Post, TrainingFunction
from bench.recovery.inside.in_job import RankMonitor
from bench.recovery.inside.in_process import InProcessInside
from bench.recovery.inside.torchrun import agents_round


class NestedInside(InProcessInside):
    layer = "nested"

    def __init__(self, post: Post) -> None:
        super().__init__(post)
        self._monitor = RankMonitor(sections=False)

    def _generation(self) -> str:
        return agents_round(self.post)

    def _attempt(self, train: TrainingFunction, generation: str) -> None:
        # Once in the life of the process, and here: the Wrapper's monitor process, forked before, must not inherit the
        # line to the agent and keep it open after this rank's death; and a reserve rank, which does not beat, has none.
        if not self._monitor.is_open:
            self._monitor.open()
        else:
            self._monitor.beat()  # the silence of a restart in place ends here
        super()._attempt(train, generation)

    def beat(self) -> None:
        super().beat()
        self._monitor.beat()

    def effective(self) -> dict[str, float]:
        return super().effective() | self._monitor.effective("nested_heartbeat_s")

    def close(self) -> None:
        self._monitor.close()
