"""Ranks below ft_launcher, whose monitor watches their heartbeats or sections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient

from bench.recovery.inside.base import Post, Section, TrainingFunction
from bench.recovery.inside.torchrun import TorchrunInside


class RankMonitor:
    """This rank's line to ft_launcher's monitor process. `sections`: that is what it watches, else heartbeats.

    The monitor outlives its ranks. When a restarted one ends after `open` and before its first heartbeat or section,
    NVRx 0.4.1 and 0.7.0 take the restart for aborted, a state that their monitor never leaves: it cuts off every later
    rank at its first message, and the job fails until its restarts are used up. This hits the rank that failed and
    those that were waiting for it. Sections are safe, for the first one is opened at once. Heartbeats begin when a rank
    has started, as in the library's examples, and a fault between `open` and that costs the job. It is left as a user's
    job has it: to send one earlier would put the start under the shorter of the two timeouts, and to open the line only
    after joining, as some jobs do, moves the exposed time to the rest of the start and leaves the join unwatched.
    """

    def __init__(self, sections: bool) -> None:
        self.sections = sections
        self._client = RankMonitorClient()

    @property
    def is_open(self) -> bool:
        return bool(self._client.is_initialized)

    def open(self) -> None:
        self._client.init_workload_monitoring()

    def beat(self) -> None:
        """One message to the monitor and, in 0.4.1, its answer."""
        if self.is_open and not self.sections:
            self._client.send_heartbeat()

    @contextmanager
    def section(self, name: Section) -> Iterator[None]:
        self._client.start_section(name)
        try:
            yield
        finally:
            self._client.end_section(name)

    def effective(self, heartbeat_field: str) -> dict[str, float]:
        """What the monitor uses, by the names of Timeouts; only what is on."""
        config = self._client.cfg
        found = {"check_interval_s": config.workload_check_interval}
        if self.sections:
            found |= {f"section_{name}_s": seconds for name, seconds in config.rank_section_timeouts.items()}
            found["out_of_section_s"] = config.rank_out_of_section_timeout
        else:
            found["initial_heartbeat_s"] = config.initial_rank_heartbeat_timeout
            found[heartbeat_field] = config.rank_heartbeat_timeout
        return {name: float(seconds) for name, seconds in found.items() if seconds is not None}

    def close(self) -> None:
        if self.is_open:
            self._client.shutdown_workload_monitoring()


class InJobInside(TorchrunInside):
    layer = "in_job"

    def __init__(self, post: Post) -> None:
        super().__init__(post)
        self._monitor = RankMonitor(post.monitoring == "sections")

    def _run(self, train: TrainingFunction) -> None:
        self._monitor.open()
        super()._run(train)

    def beat(self) -> None:
        self._monitor.beat()

    @contextmanager
    def section(self, name: Section) -> Iterator[None]:
        with self._monitor.section(name) if self._monitor.sections else super().section(name):
            yield

    def effective(self) -> dict[str, float]:
        return super().effective() | self._monitor.effective("rank_heartbeat_s")

    def close(self) -> None:
        self._monitor.close()
