"""The runner's side: asks are carried out once, lasting faults are lifted in time, and everything is undone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.faults import runner
from bench.faults.base import NodeFault, Planned
from bench.faults.claim import claim, claimed, record_of
from bench.faults.runner import Injector
from bench.faults.trigger import Trigger
from tests.faults.made import ended, planned, rank, record, scene, site


class Switch(NodeFault):
    """A fault of a node that lasts 8 seconds, and remembers what was done."""

    name = "node_loss"
    expects = "."

    def __init__(self, refuses: bool = False) -> None:
        self.done: list[str] = []
        self.refuses = refuses

    def prepare(self, planned, site):
        return {"switch": planned.id}

    def strike(self, planned, site, details):
        self.done.append(f"strike {details['switch']}")
        if self.refuses:
            raise OSError("the machine refused")

    def lifted_after_s(self, planned):
        return 8.0

    def undo(self, record):
        self.done.append(f"undo {record['details']['switch']}")
        return {}


class Valve(Switch):
    """One valve for all nodes, open at first; each fault finds it as it is, and undo sets it to what was found."""

    restores = ("found",)

    def __init__(self) -> None:
        super().__init__()
        self.state = "open"

    def prepare(self, planned, site):
        return {"switch": planned.id, "found": self.state}

    def strike(self, planned, site, details):
        self.state = f"shut by {planned.id}"

    def touches(self, details):
        return ("the valve",)

    def undo(self, record):
        self.state = record["details"]["found"]
        return {}


@pytest.fixture
def valve(monkeypatch):
    made = Valve()
    monkeypatch.setattr(runner, "create", lambda kind: made)
    return made


@pytest.fixture
def switch(monkeypatch):
    made = Switch()
    monkeypatch.setattr(runner, "create", lambda kind: made)
    return made


def ask(folder, *faults: Planned) -> None:
    for fault in faults:
        Trigger([fault], scene(folder)).reach(fault.at, 7)


def test_a_rank_asks_and_the_runner_takes_the_node_away_once(tmp_path):
    lost: list[Planned] = []
    fault = planned("node_loss")
    injector = Injector(site(tmp_path, lose=lost.append))
    assert injector.poll() == []
    process = rank(tmp_path, [fault])
    assert ended(process)[:2] == (0, "went on\n")
    (struck,) = injector.poll()
    assert lost == [fault]
    found = record(tmp_path, "0-node_loss")
    assert found["actor"] == "runner"
    assert (found["pid"], found["rank"], found["step"]) == (process.pid, 3, 7)
    assert found["details"]["requested_mono"] <= found["mono"]
    assert struck["id"] == "0-node_loss"
    assert injector.poll() == []
    assert ended(rank(tmp_path, [fault]))[:2] == (0, "went on\n")
    assert injector.poll() == []
    assert lost == [fault]


def test_another_runner_of_the_same_node_finds_it_claimed(tmp_path, switch):
    ask(tmp_path, planned("node_loss"))
    assert len(Injector(site(tmp_path)).poll()) == 1
    assert Injector(site(tmp_path)).poll() == []
    assert switch.done == ["strike 0-node_loss"]


def test_a_fault_that_lasts_is_lifted_when_its_time_is_over_and_not_before(tmp_path, switch):
    now = [100.0]
    injector = Injector(site(tmp_path), clock=lambda: now[0])
    ask(tmp_path, planned("node_loss"))
    injector.poll()
    for now[0] in (104.0, 107.9):
        injector.poll()
    assert switch.done == ["strike 0-node_loss"]
    now[0] = 108.0
    injector.poll()
    injector.poll()
    assert switch.done == ["strike 0-node_loss", "undo 0-node_loss"]


def test_what_still_lasts_at_the_end_of_the_launch_is_lifted_then(tmp_path, switch):
    injector = Injector(site(tmp_path))
    ask(tmp_path, planned("node_loss"))
    injector.poll()
    assert injector.finish() == {}
    assert switch.done == ["strike 0-node_loss", "undo 0-node_loss"]


@pytest.mark.parametrize("node", [0, 1])
def test_of_overlapping_faults_the_last_one_to_be_lifted_puts_back_what_the_first_one_found(tmp_path, valve, node):
    now = [100.0]
    sites = [site(tmp_path), site(tmp_path, node=node, requests_dir=tmp_path / f"requests-{node}")]
    injectors = [Injector(each, clock=lambda: now[0]) for each in sites]
    sites[1].requests_dir.mkdir(exist_ok=True)
    ask(tmp_path, planned("node_loss", "1-node_loss"))  # it comes first, whatever its number
    injectors[0].poll()
    now[0] = 104.0
    second = planned("node_loss", "0-node_loss", node=node)
    asks = replace(scene(tmp_path), node=node, requests_dir=sites[1].requests_dir)
    Trigger([second], asks).reach("step", 7)
    injectors[1].poll()
    assert record(tmp_path, "0-node_loss")["details"]["found"] == "open"
    for now[0], state in ((108.0, "shut by 0-node_loss"), (111.9, "shut by 0-node_loss"), (112.0, "open")):
        for injector in injectors:
            injector.poll()
        assert valve.state == state
    for injector in injectors:
        assert injector.finish() == {}
    assert valve.state == "open"


def test_a_fault_that_the_end_of_a_start_undid_keeps_no_later_one_from_being_lifted(tmp_path, valve):
    now = [0.0]
    starts = [Injector(site(tmp_path), clock=lambda: now[0]) for _ in range(2)]
    ask(tmp_path, planned("node_loss"))
    starts[0].poll()
    starts[0].finish()
    ask(tmp_path, planned("node_loss", "1-node_loss"))
    starts[1].poll()
    assert valve.state == "shut by 1-node_loss"
    now[0] = 8.0
    starts[1].poll()
    assert valve.state == "open"


def test_several_asks_are_carried_out_in_their_order(tmp_path, switch):
    ask(tmp_path, planned("node_loss", "1-node_loss"), planned("node_loss", "0-node_loss"))
    assert [struck["id"] for struck in Injector(site(tmp_path)).poll()] == ["0-node_loss", "1-node_loss"]


def test_a_fault_that_the_machine_refuses_is_not_on_record_as_injected(tmp_path, switch):
    switch.refuses = True
    injector = Injector(site(tmp_path))
    ask(tmp_path, planned("node_loss"))
    (struck,) = injector.poll()
    assert struck["details"]["failed"] == "the machine refused"
    assert claimed(tmp_path / "faults") == set()
    assert switch.done == ["strike 0-node_loss", "undo 0-node_loss"]
    ask(tmp_path, planned("node_loss"))
    assert injector.poll() == []


def test_a_fault_that_cannot_even_be_prepared_is_refused_without_a_trace(tmp_path):
    ask(tmp_path, planned("network_partition"))
    (struck,) = Injector(site(tmp_path)).poll()
    assert struck["details"]["failed"] == "no link was made for this run"
    assert claimed(tmp_path / "faults") == set()


def test_every_node_undoes_what_struck_it_also_what_its_ranks_did_themselves(tmp_path, switch):
    for node in (0, 1):
        fault = replace(planned("sigkill", f"{node}-sigkill"), node=node)
        place = scene(tmp_path)
        claim(place.faults_dir, record_of(fault, 1, 0, (1, 1), "rank", {"switch": fault.id}))
    Injector(site(tmp_path, node=1)).finish()
    assert switch.done == ["undo 1-sigkill"]


def test_what_cannot_be_undone_is_told_and_does_not_keep_the_rest_from_it(tmp_path, switch, monkeypatch):
    def undo(self, record):
        if record["id"] == "0-sigkill":
            raise OSError("busy")
        return {"seen": 1}

    monkeypatch.setattr(Switch, "undo", undo)
    for id_ in ("0-sigkill", "1-sigkill"):
        claim(scene(tmp_path).faults_dir, record_of(planned("sigkill", id_), 1, 0, (1, 1), "rank", {}))
    assert Injector(site(tmp_path)).finish() == {"0-sigkill": {"left": "busy"}, "1-sigkill": {"seen": 1}}
    assert record(tmp_path, "0-sigkill")["details"] == {"left": "busy"}


def test_what_could_be_undone_in_the_end_is_not_left(tmp_path, switch, monkeypatch):
    tries = []

    def undo(self, record):
        tries.append(record["id"])
        if len(tries) == 1:
            raise OSError("busy")
        return {}

    monkeypatch.setattr(Switch, "undo", undo)
    monkeypatch.setattr(Switch, "by_hand", "turn it off")
    claim(scene(tmp_path).faults_dir, record_of(planned("sigkill"), 1, 0, (1, 1), "rank", {}))
    injector = Injector(site(tmp_path))
    assert injector.finish() == {"0-sigkill": {"left": "busy; turn it off"}}
    assert injector.finish() == {"0-sigkill": {"left": None}}
    assert injector.finish() == {}


def test_a_record_that_cannot_be_amended_keeps_no_fault_from_being_undone(tmp_path, switch, monkeypatch):
    def full(*_, **__):
        raise OSError("no space")

    monkeypatch.setattr(runner, "amend", full)
    monkeypatch.setattr(Switch, "undo", lambda self, record: {"seen": record["id"]})
    for id_ in ("0-sigkill", "1-sigkill"):
        claim(scene(tmp_path).faults_dir, record_of(planned("sigkill", id_), 1, 0, (1, 1), "rank", {}))
    found = Injector(site(tmp_path)).finish()
    assert found == {id_: {"seen": id_, "not_recorded": "no space"} for id_ in ("0-sigkill", "1-sigkill")}


def test_an_ask_for_what_only_a_rank_can_do_is_a_mistake(tmp_path):
    wish = {"planned": planned("sigkill").to_json(), "step": 1, "rank": 0, "process": [1, 1], "mono": 0.0}
    (site(tmp_path).requests_dir / "0-sigkill.json").write_text(json.dumps(wish))
    with pytest.raises(TypeError, match="sigkill strikes in a rank"):
        Injector(site(tmp_path)).poll()


def test_a_node_that_cannot_be_taken_away_says_so_beforehand(tmp_path):
    faults = [planned("node_loss"), planned("sigkill", "1-sigkill")]
    assert set(runner.unavailable(faults, site(tmp_path))) == {"0-node_loss"}
    assert runner.unavailable(faults, site(tmp_path, lose=print)) == {}
