"""Every delay that a story was told with comes out again, within 1 % or 2 ms: what is asked of a calibration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.measure.episodes import Course
from bench.measure.points import Instrument, Points, away_times, parts, points
from tests.measure.stories import (
    Delays,
    Setting,
    Story,
    by_engine,
    in_new_processes,
    in_place,
    new_processes,
    started,
    through_the_queue,
)

DELAYS = Delays(detect=0.4, stop=0.3, restart=1.1)


def told(story: Story, folder: Path) -> tuple[Points, dict[str, float | None]]:
    launch = story.write(folder)
    course = Course.of(launch)
    found = points(course, course.episodes[0])
    return found, parts(found, Instrument.of(launch))


def within_calibration(known: float) -> object:
    return pytest.approx(known, rel=0.01, abs=0.002)


@pytest.mark.parametrize("layer", ["in_job", "torchrun", "requeue", "pod_restart", "in_process"])
@pytest.mark.parametrize("check_s", [0.0, 0.07])
def test_known_delays_are_recovered_under_every_layer(tmp_path: Path, layer: str, check_s: float) -> None:
    setting = Setting(layer=layer, check_s=check_s)
    tell = in_place if layer == "in_process" else in_new_processes
    _, found = told(tell(setting, 6, 4, DELAYS), tmp_path)
    assert found == {
        "detect": within_calibration(0.4),
        "stop": within_calibration(0.3),
        "queue": None,
        "restart": within_calibration(1.1),
        "load": within_calibration(0.5),
        "first_step": within_calibration(0.1),
        "catch_up": within_calibration(0.2),  # steps 6 and 7 again
    }


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    detect=st.floats(0.01, 5),
    stop=st.floats(0.01, 5),
    restart=st.floats(0.5, 30),
    load_s=st.floats(0.01, 20),
    check_s=st.sampled_from([0.0, 0.5]),
    offset_s=st.floats(-100, 100),
    lost=st.integers(0, 3),
)
def test_any_delays_are_recovered_also_across_nodes_with_other_clocks(
    tmp_path: Path,
    detect: float,
    stop: float,
    restart: float,
    load_s: float,
    check_s: float,
    offset_s: float,
    lost: int,
) -> None:
    setting = Setting(nodes=2, load_s=load_s, check_s=check_s, node_offset_s=(0.0, offset_s))
    for old in (*tmp_path.glob("1/events/*"), *tmp_path.glob("1/faults/*")):
        old.unlink()
    _, found = told(in_new_processes(setting, 4 + lost, 4, Delays(detect, stop, restart)), tmp_path)
    known = {"detect": detect, "stop": stop, "restart": restart, "load": load_s, "first_step": 0.1}
    assert found == {name: within_calibration(s) for name, s in known.items()} | {
        "queue": None,
        "catch_up": within_calibration(0.1 * lost),
    }


def test_points_that_nobody_told_are_missing_and_so_are_the_parts_beside_them(tmp_path: Path) -> None:
    story = in_new_processes(Setting(), 6, 4)
    runner = story.runners[0]
    runner.events = [event for event in runner.events if event.get("name") not in ("detected", "gone")]
    for seq, event in enumerate(runner.events):
        event["seq"] = seq
    found, of_parts = told(story, tmp_path)
    assert (found.detected, found.stopped) == (None, None)
    assert [name for name, seconds in of_parts.items() if seconds is None] == ["detect", "stop", "queue", "restart"]
    assert found.first_step is not None


def test_a_rank_whose_end_is_not_on_record_leaves_the_stop_open(tmp_path: Path) -> None:
    story = in_new_processes(Setting(), 6, 4)
    runner = story.runners[0]
    gone = [event for event in runner.events if event.get("name") == "gone"]
    runner.events.remove(gone[-1])
    found, _ = told(story, tmp_path)
    assert found.detected is not None
    assert found.stopped is None


def test_a_recovery_from_nothing_has_no_time_of_loading(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(3)
    new_processes(story, None, DELAYS)
    story.steps(12)
    story.finish()
    found, of_parts = told(story, tmp_path)
    assert found.loaded == found.restarted
    assert of_parts["load"] == 0.0
    assert of_parts["catch_up"] == pytest.approx(0.3)


def test_the_first_of_the_layers_own_signs_is_the_detection(tmp_path: Path) -> None:
    """An exit that the runner saw at once is no detection by a layer that works in place."""
    in_process, _ = told(in_place(Setting(layer="in_process", ranks_per_node=3), 6, 4, DELAYS, victim=1), tmp_path)
    assert (in_process.detected_by, in_process.detected) == ("abort", pytest.approx(in_process.injected + 0.4))
    nested, _ = told(in_new_processes(Setting(index=2, layer="nested"), 6, 4, DELAYS), tmp_path)
    assert nested.detected_by == "launcher_log"
    requeue, _ = told(in_new_processes(Setting(index=3, layer="requeue"), 6, 4, DELAYS), tmp_path)
    assert requeue.detected_by == "exit"


def test_what_happens_on_a_node_that_is_away_is_seen_by_nobody(tmp_path: Path) -> None:
    story = started(Setting(nodes=2, layer="in_job"))
    story.steps(6)
    old = list(story.ranks)
    story.strike("node_loss", old[-1])
    away = story.runners[1]
    away.instant("away", story.t, fault="f0")
    away.instant("exited", story.t + 0.01, local_rank=None, pid=501, code=-9)
    for file in old[2:]:
        story.gone(file, story.t + 0.01)
    story.t += 0.6
    story.log_line(node=0)
    story.t += 0.2
    for file in old[:2]:
        story.gone(file)
    story.t += 2.0
    away.instant("back", story.t)
    story.attempt([story.process(slot) for slot in story.slots], 4)
    story.steps(12)
    story.finish()
    found, _ = told(story, tmp_path)
    assert (found.detected_by, found.detected) == ("launcher_log", pytest.approx(found.injected + 0.6))
    assert found.stopped == pytest.approx(found.injected + 0.8)


def test_a_writer_of_before_belongs_to_the_stop_unless_it_outlives_the_restart(tmp_path: Path) -> None:
    for index, late_s in enumerate((0.2, 60.0)):
        story = started(Setting(index=index))
        writer = story.process((0, 0), "writer")
        story.steps(6)
        begin = story.t
        new_processes(story, 4, DELAYS)
        story.gone(writer, begin + 0.7 + late_s, "writer")
        story.steps(12)
        story.finish()
        found, _ = told(story, tmp_path)
        assert found.outlived == index
        assert found.stopped == pytest.approx(begin + 0.7 + (late_s if index == 0 else 0.0))


def test_catching_up_ends_with_the_next_fault(tmp_path: Path) -> None:
    story = started(Setting())
    story.steps(7)
    new_processes(story, 4)
    story.steps(6)
    new_processes(story, 4)
    story.steps(12)
    story.finish()
    launch = story.write(tmp_path)
    course = Course.of(launch)
    first, second = (points(course, episode) for episode in course.episodes)
    assert first.first_step is not None
    assert first.caught_up is None
    assert second.caught_up is not None


def test_a_recovery_that_failed_has_the_points_that_it_came_to(tmp_path: Path) -> None:
    story = started(Setting(layer="requeue"))
    story.steps(6)
    story.strike("sigkill", story.ranks[1])
    story.t += 0.4
    story.exited(story.ranks[1])
    story.gone(story.ranks[1])
    story.t += 0.3
    story.gone(story.ranks[0])
    story.end = "failed"
    story.over(1.0)
    found, of_parts = told(story, tmp_path)
    assert of_parts == dict.fromkeys(("queue", "restart", "load", "first_step", "catch_up")) | {
        "detect": pytest.approx(0.4),
        "stop": pytest.approx(0.3),
    }
    assert found.first_step is None


def test_of_ranks_that_check_together_the_longest_is_taken_out_once(tmp_path: Path) -> None:
    story = started(Setting())
    fast, slow = story.ranks
    begin = story.t
    fast.span("check", begin, begin + 0.1, at="saved", step=4)
    slow.span("check", begin + 0.05, begin + 0.3, at="saved", step=4)
    fast.span("check", begin + 5, begin + 5.1, at="saved", step=4)  # the same step again, after a rollback
    instrument = Instrument.of(story.write(tmp_path))
    assert instrument.between(begin, begin + 1) == pytest.approx(0.75)
    assert instrument.between(begin, begin + 0.175) == pytest.approx(0.05)
    assert instrument.between(begin, begin + 10) == pytest.approx(9.65)
    assert instrument.between(None, begin) is None


def test_the_setting_of_a_story_does_not_move_its_points(tmp_path: Path) -> None:
    plain, _ = told(in_new_processes(Setting(), 6, 4, DELAYS), tmp_path)
    late, _ = told(in_new_processes(replace(Setting(index=2), begin=5000.0), 6, 4, DELAYS), tmp_path)
    later = late.in_order()
    for name, t in plain.in_order().items():
        assert t is not None
        assert later[name] == pytest.approx(t + 4000)


# --- started again by the engine
@pytest.mark.parametrize("nodes", [1, 2])
def test_the_engines_queue_is_a_part_of_its_own(tmp_path: Path, nodes: int) -> None:
    found, seconds = told(by_engine(Setting(nodes=nodes, node_offset_s=(0.0, 30.0)), 6, 4, DELAYS, 120.0), tmp_path)
    known = {"detect": 0.4, "stop": 0.3, "queue": 120.0, "restart": 1.1, "load": 0.5, "first_step": 0.1}
    assert seconds == {name: within_calibration(s) for name, s in (known | {"catch_up": 0.2}).items()}
    assert found.first_step is not None
    assert found.first_step - found.injected == within_calibration(sum(known.values()))


def test_a_start_on_other_machines_is_aligned_by_wall_clocks_and_said_to_be_unresolved(tmp_path: Path) -> None:
    setting = Setting(nodes=2, node_offset_s=(0.0, 30.0))
    story = by_engine(setting, 6, 4, DELAYS, 120.0, boots=("one", "two"), clocks_s=(-4000.0, 555.0))
    _, seconds = told(story, tmp_path)
    known = {"detect": 0.4, "stop": 0.3, "queue": 120.0, "restart": 1.1, "load": 0.5, "first_step": 0.1}
    assert seconds == {name: within_calibration(s) for name, s in (known | {"catch_up": 0.2}).items()}
    assert story.write(tmp_path).uncertainty_s is None


def test_on_the_same_machines_clocks_stay_resolved(tmp_path: Path) -> None:
    launch = by_engine(Setting(nodes=2, node_offset_s=(0.0, 30.0)), 6, 4, DELAYS, 120.0).write(tmp_path)
    assert launch.uncertainty_s == pytest.approx(1e-5)


def test_the_start_between_two_queues_is_part_of_the_restart(tmp_path: Path) -> None:
    """A second fault strikes before the job has stepped again."""
    story = started(Setting(layer="requeue"))
    story.steps(6)
    through_the_queue(story, 4, DELAYS, 50.0)
    story.step = 0
    through_the_queue(story, 4, DELAYS, 70.0)
    story.steps(12)
    story.finish()
    found, seconds = told(story, tmp_path)
    assert len(found.queues) == 2
    assert seconds["queue"] == within_calibration(120.0)
    # the first start until it was struck and gone (it had joined and loaded), and the second until it was ready
    assert seconds["restart"] == within_calibration((1.1 + 0.5 + 0.4 + 0.3) + 1.1)


def test_a_node_that_was_lost_is_there_again_once_the_engine_has_started_the_job(tmp_path: Path) -> None:
    story = started(Setting(layer="requeue", nodes=2, ranks_per_node=1))
    story.steps(6)
    story.runners[1].instant("away", story.t, fault="f0")
    through_the_queue(story, 4, DELAYS, 50.0)
    story.steps(12)
    story.finish()
    (earlier, later) = (runner for runner in story.write(tmp_path).runners if runner.node == 1)
    ((begin, end),) = away_times(earlier)
    assert end - begin == within_calibration(0.7)
    assert away_times(later) == []
