"""A node is lost with all that runs on it: agent, ranks, writers. recovery.node_return_s says when it comes back."""

from __future__ import annotations

from typing import Any

from bench.faults.base import NodeFault, Planned, Site


class NodeLoss(NodeFault):
    name = "node_loss"
    expects = "All processes of the node are gone at the same moment; the others see closed connections."
    needs = "a runner that plays the machine"

    def unavailable(self, planned: Planned, site: Site) -> str | None:
        return None if site.lose is not None else "this node's runner cannot take the node away"

    def strike(self, planned: Planned, site: Site, details: dict[str, Any]) -> None:
        if site.lose is None:
            raise OSError("this node's runner cannot take the node away")
        site.lose(planned)
