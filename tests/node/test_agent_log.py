"""Telling lines of a log that grows, in whatever pieces it is written."""

from __future__ import annotations

import json

import pytest

from bench.node.agent_log import AgentLog
from bench.record import Recorder

ANCHORS = (r"failed \(exitcode", "timeout elapsed")


@pytest.fixture
def recorder(tmp_path):
    made = Recorder(tmp_path, role="runner", node=0, local_rank=-1)
    yield made
    made.close()


def detected(recorder: Recorder) -> list[str]:
    events = [json.loads(line) for line in recorder.path.read_text().splitlines()]
    return [event["text"] for event in events if event.get("name") == "detected"]


def test_every_line_that_an_anchor_matches_is_recorded_once(tmp_path, recorder):
    path = tmp_path / "agent.log"
    log = AgentLog(path, ANCHORS, recorder)
    log.look()
    path.write_text("started\nrank 1 failed (exitcode: -9)\nrank 0 fa")
    log.look()
    assert detected(recorder) == ["rank 1 failed (exitcode: -9)"]
    with open(path, "a") as file:
        file.write("iled (exitcode: 1)\nFT timeout elapsed\n")
    log.look()
    log.look()
    assert detected(recorder)[1:] == ["rank 0 failed (exitcode: 1)", "FT timeout elapsed"]


def test_what_stood_in_the_log_before_is_not_new(tmp_path, recorder):
    path = tmp_path / "agent.log"
    path.write_text("timeout elapsed\n")
    log = AgentLog(path, ANCHORS, recorder)
    log.look()
    assert detected(recorder) == []


def test_a_layer_without_an_agent_has_no_log_to_follow(tmp_path, recorder):
    path = tmp_path / "agent.log"
    log = AgentLog(path, (), recorder)
    path.write_text("timeout elapsed\n")
    log.look()
    assert detected(recorder) == []


def test_folders_of_the_machine_are_left_out_of_what_is_kept(tmp_path, recorder):
    path = tmp_path / "agent.log"
    log = AgentLog(path, ANCHORS, recorder)
    path.write_text("rank 1 failed (exitcode: -9) of binary: /some/where/.venv/bin/python\n")
    log.look()
    assert detected(recorder) == ["rank 1 failed (exitcode: -9) of binary: python"]
