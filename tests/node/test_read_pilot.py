"""What a pilot's events say, against a launch whose durations are known exactly."""

from __future__ import annotations

import json

import pytest

from bench.node.read_pilot import read_pilot
from tests.measure.streams import ARMS, ArmSpec, Scenario, write_launch

PILOT = Scenario(kind="pilot", cycles=2, step_s=0.1, startup_s=3.0, shutdown_s=1.0)


def test_the_figures_are_those_of_the_second_saves_and_of_undisturbed_steps(tmp_path):
    write_launch(tmp_path, PILOT)
    found = read_pilot(tmp_path)
    assert found.step_s == pytest.approx(0.1)
    assert found.blocking_s == pytest.approx({"none": 0.0, "sync_local": 0.25, "nvrx_async": 0.02})
    assert found.durable_s == pytest.approx({"sync_local": 0.2, "nvrx_async": 0.35})
    assert found.first_durable_s == pytest.approx(found.durable_s)
    assert found.written_bytes == 2 * ARMS["sync_local"].shard_bytes


def test_startup_ends_with_the_first_step_and_what_is_around_the_processes_counts_twice(tmp_path):
    write_launch(tmp_path, PILOT)
    found = read_pilot(tmp_path)
    assert found.startup_s == pytest.approx(3.0 + 0.1)
    assert found.around_s == pytest.approx(2 * 1.0 + 1.0)  # the runner writes from a second before the launch on


def test_an_arm_that_writes_nothing_has_no_write_time(tmp_path):
    write_launch(tmp_path, Scenario(kind="pilot", cycles=2, arms={"none": ArmSpec()}))
    assert (read_pilot(tmp_path).durable_s, read_pilot(tmp_path).written_bytes) == ({}, None)


def test_clocks_of_other_nodes_do_not_disturb_it(tmp_path):
    write_launch(tmp_path / "one", Scenario(kind="pilot", cycles=2))
    write_launch(tmp_path / "two", Scenario(kind="pilot", cycles=2, nodes=2, node_offset_s=(0.0, 5000.0)))
    one, two = read_pilot(tmp_path / "one"), read_pilot(tmp_path / "two")
    assert two.step_s == pytest.approx(one.step_s)
    assert two.durable_s == pytest.approx(one.durable_s)


def test_a_pilot_without_steps_is_refused(tmp_path):
    (tmp_path / "events").mkdir()
    (tmp_path / "launch.json").write_text(
        json.dumps({"index": 0, "kind": "pilot", "occasion": 0, "block": 0, "segments": []})
    )
    with pytest.raises(ValueError, match="recorded no steps"):
        read_pilot(tmp_path)
