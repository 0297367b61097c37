from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.measure.events import LaunchRecord
from bench.measure.ledger import ledger
from bench.measure.slots import all_slots
from bench.schema import CATEGORIES
from tests.measure.stories import (
    Delays,
    Setting,
    Story,
    by_engine,
    in_new_processes,
    in_place,
    new_processes,
    started,
    twice_struck,
    twin,
)

DELAYS = Delays(detect=0.4, stop=0.3, restart=1.1)
SAVES = {"arrive": 0.0, "ckpt_peers": 0.0, "ckpt_stall": 0.9}


def accounts(launch: LaunchRecord) -> dict[str, dict[str, float]]:
    """slot -> category -> seconds"""
    found: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in ledger([launch]):
        assert row.category in CATEGORIES
        found[row.slot][row.category] += row.seconds
    return {slot: dict(categories) for slot, categories in found.items()}


def account(story: Story, folder: Path, slot: str = "0/0") -> dict[str, float]:
    """Of one slot, what is 0 left out."""
    return {name: s for name, s in accounts(story.write(folder))[slot].items() if abs(s) > 1e-9 or name in SAVES}


def test_the_time_of_a_recovery_in_new_processes_stands_in_its_parts(tmp_path: Path) -> None:
    for slot in ("0/0", "0/1"):
        assert account(in_new_processes(Setting(check_s=0.05), 6, 4, DELAYS), tmp_path, slot) == pytest.approx(
            SAVES
            | {"startup": 3.0, "useful": 1.2, "replay": 0.2, "detect": 0.4, "stop": 0.3, "restart": 1.1, "load": 0.5}
            | {"shutdown": 0.5}
        )


def test_a_restart_in_one_process_is_accounted_like_one_in_new_processes(tmp_path: Path) -> None:
    in_process = account(in_place(Setting(layer="in_process"), 6, 4, DELAYS), tmp_path)
    assert in_process == pytest.approx(account(in_new_processes(Setting(index=2), 6, 4, DELAYS), tmp_path))


def test_the_twin_has_neither_recovery_nor_unexplained_time(tmp_path: Path) -> None:
    assert account(twin(Setting(check_s=0.05)), tmp_path) == pytest.approx(
        SAVES | {"startup": 3.0, "useful": 1.2, "shutdown": 0.5}
    )


def test_while_the_job_is_in_the_engines_queue_its_nodes_are_away(tmp_path: Path) -> None:
    for slot in ("0/0", "0/1"):
        assert account(by_engine(Setting(), 6, 4, DELAYS, 90.0), tmp_path, slot) == pytest.approx(
            SAVES
            | {"startup": 3.0, "useful": 1.2, "replay": 0.2, "detect": 0.4, "stop": 0.3, "restart": 1.1, "load": 0.5}
            | {"shutdown": 0.5, "idle": 90.0}
        )


def test_a_spare_idles_until_it_is_needed_and_the_dead_slot_afterwards(tmp_path: Path) -> None:
    setting = Setting(layer="in_process", ranks_per_node=3, reserve=1)
    found = accounts(in_place(setting, 6, 4, DELAYS, victim=1).write(tmp_path))
    assert found["0/2"]["idle"] == pytest.approx(0.2 + 6 * 0.1 + 0.3 + 0.4 + 0.3)
    assert found["0/2"]["restart"] == pytest.approx(1.1)
    assert (found["0/1"]["detect"], found["0/1"]["stop"]) == (pytest.approx(0.4), pytest.approx(0.3))
    assert found["0/1"]["idle"] == pytest.approx(1.1 + 0.5 + 8 * 0.1 + 2 * 0.3)
    assert found["0/1"]["useful"] == pytest.approx(0.4)
    assert found["0/1"]["replay"] == pytest.approx(0.2)
    assert all(categories["unattributed"] == pytest.approx(0, abs=1e-9) for categories in found.values())


def test_spare_ranks_are_slots_of_the_last_node_alone_however_many_they_are(tmp_path: Path) -> None:
    story = started(Setting(nodes=2, ranks_per_node=1, layer="in_process"))
    spares = [story.process((1, local)) for local in (1, 2)]
    for file in [*story.ranks, *spares]:
        file.events[0]["world_size"] = 4
    story.steps(12)
    story.finish()
    story.ranks_by_node = [1, 3]
    assert all_slots(story.write(tmp_path)) == ["0/0", "1/0", "1/1", "1/2"]


def test_slots_whose_ranks_never_said_anything_count_all_the_same(tmp_path: Path) -> None:
    story = started(Setting(nodes=2, ranks_per_node=2, layer="in_process"))
    story.workers = [file for file in story.workers if file.node == 0]
    story.ranks_by_node = [2, 3]
    assert all_slots(story.write(tmp_path)) == ["0/0", "0/1", "1/0", "1/1", "1/2"]


def test_a_node_that_is_away_idles(tmp_path: Path) -> None:
    story = started(Setting(nodes=2, layer="in_job"))
    story.steps(6)
    story.strike("node_loss", story.ranks[-1])
    story.runners[1].instant("away", story.t, fault="f0")
    old = list(story.ranks)
    for file in old[2:]:
        story.gone(file)
    story.log_line(story.t + 0.4)
    for file in old[:2]:
        story.gone(file, story.t + 0.7)
    story.t += 3.0
    story.runners[1].instant("back", story.t)
    story.attempt([story.process(slot) for slot in story.slots], 4)
    story.steps(12)
    story.finish()
    found = accounts(story.write(tmp_path))
    assert found["1/0"]["idle"] == pytest.approx(3.0)
    assert found["1/0"]["restart"] == pytest.approx(0.2)
    assert (found["0/0"]["detect"], found["0/0"]["stop"]) == (pytest.approx(0.4), pytest.approx(0.3))
    assert found["0/0"]["restart"] == pytest.approx(2.3 + 0.2)
    assert "idle" not in found["0/0"]


def test_a_step_that_had_begun_is_aborted_until_the_fault_and_part_of_the_detection_afterwards(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(6)
    begin = story.t
    for file in story.ranks[:-1]:
        file.begin("step", begin)
    story.t += 0.07
    story.strike("sigkill", story.ranks[-1])
    story.t += 0.4
    story.log_line()
    for file in story.ranks:
        story.gone(file)
    story.attempt([story.process(slot) for slot in story.slots], 4)
    story.steps(12)
    story.finish()
    found = accounts(story.write(tmp_path))
    assert found["0/0"]["aborted_step"] == pytest.approx(0.07)
    assert found["0/0"]["detect"] == pytest.approx(0.4)
    assert found["0/1"]["unattributed"] == pytest.approx(0.07)  # the victim had not begun it


def test_a_hang_until_the_deadline_is_never_detected(tmp_path: Path) -> None:
    story = started(Setting(layer="none"))
    story.steps(6)
    story.strike("collective_hang", story.ranks[1])
    story.hold(story.ranks[:1], story.t, ended=False)
    story.end = "deadline"
    story.over(30.0)
    for slot, categories in accounts(story.write(tmp_path)).items():
        assert categories["detect"] == pytest.approx(30.0), slot
        assert categories["useful"] == pytest.approx(0.6)


def test_a_job_that_nobody_starts_again_is_shut_down(tmp_path: Path) -> None:
    story = started(Setting(layer="none"))
    story.steps(6)
    victim = story.ranks[1]
    story.strike("sigkill", victim)
    story.exited(victim, story.t + 0.02)
    for file in story.ranks:
        story.gone(file, story.t + 0.05)
    story.over(0.25)
    found = account(story, tmp_path)
    assert (found["detect"], found["stop"], found["shutdown"]) == pytest.approx((0.02, 0.03, 0.2))


def test_what_two_recoveries_made_worthless_is_replay_in_both(tmp_path: Path) -> None:
    story = twice_struck(DELAYS)
    found = account(story, tmp_path)
    assert (found["useful"], found["replay"]) == pytest.approx((1.2, 0.6))
    assert (found["detect"], found["stop"], found["restart"], found["load"]) == pytest.approx((0.8, 0.6, 2.2, 1.0))


def test_attempts_that_failed_are_part_of_the_restart(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(6)
    new_processes(story, 4, DELAYS)
    new_processes(story, 4, DELAYS)
    story.steps(12)
    story.finish()
    found = account(story, tmp_path)
    assert (found["detect"], found["stop"]) == pytest.approx((0.4, 0.3))
    assert found["load"] == pytest.approx(1.0)
    assert found["restart"] == pytest.approx(2 * 1.1 + 0.4 + 0.3)


def test_a_false_alarm_costs_a_restart(tmp_path: Path) -> None:
    story = in_place(Setting(layer="in_process"), 6, 4, DELAYS)
    story.faults.clear()
    found = account(story, tmp_path)
    assert found["restart"] == pytest.approx(0.4 + 0.3 + 1.1)
    assert (found["load"], found["replay"]) == pytest.approx((0.5, 0.2))


def test_a_start_that_was_given_up_before_the_first_step_is_startup(tmp_path: Path) -> None:
    """A hang detection that is too hasty strikes while ranks still set up."""
    story = started(Setting(layer="in_process"))
    story.hold(story.ranks, story.t + 0.05, ended=True)
    story.t += 1.0
    story.attempt(story.ranks, None)
    story.steps(12)
    story.finish()
    found = account(story, tmp_path)
    assert (found["startup"], found["aborted_step"]) == pytest.approx((3.0 + 1.0 + 0.2 - 0.05, 0.05))
    assert "unattributed" not in found


def test_a_dropped_span_and_a_doubled_one_show_as_unattributed_time(tmp_path: Path) -> None:
    dropped, doubled = in_new_processes(Setting(), 6, 4), in_new_processes(Setting(index=2), 6, 4)
    events = dropped.workers[0].events
    events.remove(next(event for event in events if event.get("name") == "save" and "t1" in event))
    events = doubled.workers[0].events
    at = next(i for i, event in enumerate(events) if event.get("name") == "step" and "t1" in event)
    events.insert(at, events[at])
    assert account(dropped, tmp_path)["unattributed"] == pytest.approx(0.3)
    assert account(doubled, tmp_path)["unattributed"] == pytest.approx(-0.1)


def test_rows_name_the_arm_of_their_spans(tmp_path: Path) -> None:
    rows = ledger([in_new_processes(Setting(), 6, 4).write(tmp_path)])
    arms = {category: {row.arm for row in rows if row.category == category} for category in CATEGORIES}
    assert arms["useful"] == arms["ckpt_stall"] == arms["load"] == {"sync_local"}
    assert arms["detect"] == arms["restart"] == arms["startup"] == {None}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    layer=st.sampled_from(["in_process", "in_job", "requeue"]),
    nodes=st.integers(1, 2),
    spare=st.booleans(),
    at_step=st.integers(4, 11),
    detect=st.floats(0, 3),
    stop=st.floats(0, 3),
    restart=st.floats(0.1, 5),
    check_s=st.sampled_from([0.0, 0.2]),
    offset_s=st.floats(-50, 50),
    cut=st.none() | st.floats(0.05, 0.95),
)
def test_the_categories_add_up_to_the_wall_time_less_the_checks_of_every_slot(
    tmp_path: Path,
    layer: str,
    nodes: int,
    spare: bool,
    at_step: int,
    detect: float,
    stop: float,
    restart: float,
    check_s: float,
    offset_s: float,
    cut: float | None,
) -> None:
    """Whole launches, and those of which a worker's file ends anywhere."""
    in_process = layer == "in_process"
    reserve = int(spare and in_process)
    setting = Setting(layer, nodes, 2, reserve, check_s=check_s, node_offset_s=(0.0, offset_s))
    delays, resumed = Delays(detect, stop, restart), at_step // 4 * 4
    if in_process:
        story = in_place(setting, at_step, resumed, delays, victim=0 if spare else None)
    else:
        story = in_new_processes(setting, at_step, resumed, delays)
    if cut is not None:
        events = story.workers[-1].events
        del events[max(1, int(cut * len(events))) :]
    for old in (*tmp_path.glob("1/events/*"), *tmp_path.glob("1/faults/*")):
        old.unlink()
    launch = story.write(tmp_path)
    found = accounts(launch)
    assert len(found) == 2 * nodes
    wall_s = story.t - setting.begin
    for slot, categories in found.items():
        checks = [s for w in launch.workers if w.slot == slot for s in w.spans if s["name"] == "check"]
        check_sum_s = sum(span["t1"] - span["t0"] for span in checks)
        assert sum(categories.values()) == pytest.approx(wall_s - check_sum_s, abs=1e-7)
        if cut is None:
            assert categories["unattributed"] == pytest.approx(0, abs=1e-7)
            assert min(categories.values()) > -1e-7


def test_the_delay_of_a_slow_rank_is_part_of_its_steps(tmp_path: Path) -> None:
    story = started(Setting(layer="requeue"))
    story.steps(5)
    slow, other = story.ranks
    story.strike("slow_rank", slow)
    for step in (6, 7):
        about = story._about_step() | {"step": step}
        slow.span("step", story.t + 1.0, story.t + 1.1, **about)
        other.span("step", story.t, story.t + 1.1, **about)
        story.step, story.t = step, story.t + 1.1
    story.steps(12)
    story.finish()
    found = accounts(story.write(tmp_path))
    for slot in ("0/0", "0/1"):
        assert found[slot]["useful"] == pytest.approx(10 * 0.1 + 2 * 1.1)
        assert found[slot]["unattributed"] == pytest.approx(0, abs=1e-9)
