"""A link that goes down and comes back, in a network namespace made for the test."""

from __future__ import annotations

import os
import subprocess

import pytest

from bench.faults import create
from bench.faults.network_partition import Link
from bench.faults.runner import Injector, unavailable
from bench.faults.trigger import Trigger
from tests.faults.made import planned, scene, site


@pytest.fixture
def link():
    """One end of a pair, with an address and a route of its own."""
    name = f"bench-test-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no network namespace can be made: {done.stderr.decode().strip()}")
    made = Link("one", name)
    try:
        made.ip("link", "add", "one", "type", "veth", "peer", "name", "other")
        made.ip("address", "add", "10.11.12.1/24", "dev", "one")
        for end in ("one", "other"):
            made.ip("link", "set", "dev", end, "up")
        made.ip("route", "add", "10.99.0.0/16", "via", "10.11.12.2")
        yield made
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def test_a_link_is_down_for_its_time_and_its_routes_come_back_with_it(tmp_path, link):
    now, place = [0.0], site(tmp_path, interface=link.interface, netns=link.netns)
    routes = link.ip("route", "show")
    assert unavailable([planned("network_partition")], place) == {}
    assert link.is_up()
    injector = Injector(place, clock=lambda: now[0])
    Trigger([planned("network_partition", options={"seconds": 8.0})], scene(tmp_path)).reach("step", 7)
    injector.poll()
    assert not link.is_up()
    assert link.ip("route", "show") == ""
    now[0] = 8.0
    injector.poll()
    assert link.is_up()
    assert sorted(link.ip("route", "show").split("\n")) == sorted(routes.split("\n"))
    assert injector.finish() == {}
    assert link.is_up()


def test_a_link_that_is_cut_twice_at_a_time_is_down_until_the_second_is_lifted(tmp_path, link):
    now, place = [0.0], site(tmp_path, interface=link.interface, netns=link.netns)
    routes = sorted(link.ip("route", "show").split("\n"))
    injector = Injector(place, clock=lambda: now[0])
    for now[0], id_ in ((0.0, "0-network_partition"), (4.0, "1-network_partition")):
        Trigger([planned("network_partition", id_, options={"seconds": 8.0})], scene(tmp_path)).reach("step", 7)
        injector.poll()
    now[0] = 8.0
    injector.poll()
    assert not link.is_up()
    now[0] = 12.0
    injector.poll()
    assert link.is_up()
    assert sorted(link.ip("route", "show").split("\n")) == routes


def test_a_link_that_is_gone_needs_no_undoing():
    details = {"interface": "gone-for-good", "netns": None, "routes": []}
    assert create("network_partition").undo({"details": details}) == {}


def test_without_a_link_made_for_the_run_it_is_unavailable_and_never_tried(tmp_path):
    reason = unavailable([planned("network_partition")], site(tmp_path))["0-network_partition"]
    assert "cluster.namespaces=true" in reason
    with pytest.raises(OSError, match="no link was made"):
        create("network_partition").prepare(planned("network_partition"), site(tmp_path))


def test_a_link_that_does_not_exist_is_unavailable_with_the_systems_words(tmp_path):
    place = site(tmp_path, interface="nosuchlink0")
    assert "nosuchlink0" in unavailable([planned("network_partition")], place)["0-network_partition"]
