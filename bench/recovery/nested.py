"""Both of NVRx's layers: inprocess.Wrapper mends what it can in place, ft_launcher around it restarts the rest."""

from __future__ import annotations

from dataclasses import replace

from bench.config import Run
from bench.recovery import ft_launcher, nvrx_versions
from bench.recovery.base import Layer, Place, Process
from bench.recovery.in_process import wrapper_env
from bench.recovery.timeouts import unmeasured


class Nested(Layer):
    name = "nested"
    anchors = nvrx_versions.agent_anchors(nvrx_versions.installed())
    stores = frozenset({"base", "wrapper"})
    finds_hangs = True
    inside = "bench.recovery.inside.nested:NestedInside"

    def processes(self, place: Place) -> list[Process]:
        heartbeat_s = (place.timeouts or unmeasured()).nested_heartbeat_s
        agent = ft_launcher.agent(place, heartbeat_s, nvrx_versions.nested_policy(nvrx_versions.installed()))
        return [replace(agent, env=agent.env | wrapper_env(place))]

    def refusal(self, config: Run) -> str | None:
        if config.recovery.ft_monitoring == "sections":
            return (
                "recovery.ft_monitoring: nested watches heartbeats, since sections do not allow for restarts in place; "
                "take heartbeats"
            )
        return ft_launcher.missing(self.name, config)
