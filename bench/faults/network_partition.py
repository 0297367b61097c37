"""A node's link goes down and comes back: no packet passes, no connection is closed, and nobody is told.

Only a link that was made for this run is ever touched (emulated nodes in network namespaces of their own).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any, ClassVar

from bench.faults.base import NodeFault, Option, Planned, Site


class NetworkPartition(NodeFault):
    name = "network_partition"
    expects = (
        "The node falls silent; its peers wait until heartbeats or timeouts run out, and meet it again afterwards."
    )
    needs = "emulated nodes in network namespaces (root)"
    options: ClassVar[dict[str, Option]] = {"seconds": 8.0}
    restores = ("routes",)
    by_hand = "the link may still be down: set it up, or remove its network namespace with ip netns delete"

    def unavailable(self, planned: Planned, site: Site) -> str | None:
        if site.interface is None:
            return "needs a link made for this run; use cluster=emulated cluster.namespaces=true"
        if shutil.which("ip") is None:
            return "needs the command ip (iproute2)"
        try:
            link = Link(site.interface, site.netns)
            link.ip("link", "set", "dev", link.interface, "up")  # it is up; setting it asks for the same rights
        except OSError as error:
            return str(error)
        return None

    def prepare(self, planned: Planned, site: Site) -> dict[str, Any]:
        if site.interface is None:
            raise OSError("no link was made for this run")
        link = Link(site.interface, site.netns)
        return {"interface": link.interface, "netns": link.netns, "routes": link.routes()}

    def strike(self, planned: Planned, site: Site, details: dict[str, Any]) -> None:
        link = Link(details["interface"], details["netns"])
        link.ip("link", "set", "dev", link.interface, "down")

    def lifted_after_s(self, planned: Planned) -> float:
        return float(self.option(planned, "seconds"))

    def touches(self, details: dict[str, Any]) -> tuple[str, ...]:
        return str(details["interface"]), str(details["netns"])

    def undo(self, record: dict[str, Any]) -> dict[str, Any]:
        details = record["details"]
        link = Link(details["interface"], details["netns"])
        if link.exists():
            link.ip("link", "set", "dev", link.interface, "up")
            for words in details["routes"]:  # the kernel has dropped those that it did not make itself
                link.ip("route", "replace", *words)
        return {}


class Link:
    """A network interface, in a named network namespace or in this process's own."""

    def __init__(self, interface: str, netns: str | None) -> None:
        self.interface, self.netns = interface, netns

    def ip(self, *words: str) -> str:
        """Output of the command ip. Raises OSError with its own words."""
        where = [] if self.netns is None else ["-netns", self.netns]
        done = subprocess.run(["ip", *where, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"ip {' '.join(words)} failed: {done.stderr.strip()}")
        return done.stdout

    def exists(self) -> bool:
        try:
            self.ip("link", "show", "dev", self.interface)
        except OSError:
            return False
        return True

    def is_up(self) -> bool:
        (link,) = json.loads(self.ip("-json", "link", "show", "dev", self.interface))
        return "UP" in link["flags"]

    def routes(self) -> list[list[str]]:
        """Routes through it that somebody added, as words for `ip route replace`."""
        lines = self.ip("route", "show", "dev", self.interface).splitlines()
        return [[*line.split(), "dev", self.interface] for line in lines if "proto kernel" not in line]
