"""A background writer is killed (SIGKILL), as by the kernel for want of memory: the trainer must notice by itself."""

from __future__ import annotations

from typing import Any

from bench.faults.base import WITH_WRITER, Missed, Planned, RankFault, Scene, Site
from bench.record import process_start_ticks
from bench.schema import strategy_of
from bench.supervise import end_recorded


class WriterKilled(RankFault):
    name = "writer_killed"
    moments = ("write", "step")  # with a write in flight; or between saves, where a writer that persists idles
    expects = "The checkpoint in flight never becomes complete; the trainer finds its writer dead at its next look."
    needs = "a strategy that writes in another process"

    def unavailable(self, planned: Planned, site: Site) -> str | None:
        arm = site.checkpoint_dir.name
        if strategy_of(arm) in WITH_WRITER:
            return None
        return f"{arm} has no writer process; give checkpoint.arms=[nvrx_async]"

    def prepare(self, planned: Planned, scene: Scene) -> dict[str, Any] | None:
        """The writer to be killed, newest first; None while this rank has none."""
        for pid in sorted(scene.children(), reverse=True):
            try:
                return {"writer_pid": pid, "writer_pid_start": process_start_ticks(pid)}
            except (OSError, IndexError):
                continue  # it has just ended
        return None

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> None:
        if not end_recorded(details["writer_pid"], details["writer_pid_start"], scene.token):
            raise Missed
