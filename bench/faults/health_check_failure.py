"""A rank fails, and its health check says that this process must not come back. A new process in its place is well."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

from bench.faults.base import InjectedFault, Planned, RankFault, Scene


class HealthCheckFailure(RankFault):
    name = "health_check_failure"
    expects = "The rank fails and its layer's health check with it: recovery goes on without this process."

    def prepare(self, planned: Planned, scene: Scene) -> dict[str, Any]:
        return {"flag": str(scene.unhealthy)}

    def strike(self, planned: Planned, scene: Scene, details: dict[str, Any]) -> NoReturn:
        scene.unhealthy.write_text(str(os.getpid()))
        raise InjectedFault(f"injected health check failure {planned.id} on rank {scene.rank}")

    def undo(self, record: dict[str, Any]) -> dict[str, Any]:
        Path(record["details"]["flag"]).unlink(missing_ok=True)
        return {}
