"""In-job restart: NVRx's ft_launcher watches the ranks' heartbeats or sections and restarts all in new processes."""

from __future__ import annotations

from bench.config import Run
from bench.recovery import ft_launcher, nvrx_versions
from bench.recovery.base import Layer, Place, Process
from bench.recovery.timeouts import unmeasured


class InJob(Layer):
    name = "in_job"
    anchors = nvrx_versions.agent_anchors(nvrx_versions.installed())
    finds_hangs = True
    inside = "bench.recovery.inside.in_job:InJobInside"

    def processes(self, place: Place) -> list[Process]:
        return [ft_launcher.agent(place, (place.timeouts or unmeasured()).rank_heartbeat_s, [])]

    def refusal(self, config: Run) -> str | None:
        return ft_launcher.missing(self.name, config)
