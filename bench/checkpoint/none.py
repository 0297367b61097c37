"""No checkpoints: the control arm, and the null object wherever a strategy is expected."""

from __future__ import annotations

from bench.checkpoint.base import Strategy, Tree


class NoCheckpoint(Strategy):
    """Saves nothing and returns at once."""

    name = "none"
    keeps_checkpoints = False

    def _save(self, step: int, tree: Tree, save: int) -> None:
        return None
