from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.measure.events import LaunchRecord, read_launch
from bench.measure.ledger import ledger
from bench.measure.slots import slots_without_wall
from bench.schema import CATEGORIES, LedgerRow
from tests.measure.streams import ArmSpec, File, Job, Scenario, simulate, write_files, write_launch

SCENARIO = Scenario()


def launched(folder: Path, scenario: Scenario, change: Callable[[Job], None] = lambda job: None) -> LaunchRecord:
    for old in folder.glob("events/*"):
        old.unlink()
    job = simulate(scenario)
    change(job)
    write_files(folder, scenario.launch(), job.files)
    return read_launch(folder)


def wall_s(launch: LaunchRecord) -> float:
    (begin,) = launch.runners[0].named("launch_begin")
    (end,) = launch.runners[0].named("launch_end")
    return float(end["t"] - begin["t"])


def by_category(rows: list[LedgerRow], slot: str = "0/0") -> defaultdict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        if row.slot == slot:
            found[row.category] += row.seconds
    return found


def test_a_quick_launch_is_explained_to_the_last_second(tmp_path: Path) -> None:
    launch = launched(tmp_path, SCENARIO)
    found = by_category(ledger([launch]))
    steps = len(launch.workers[0].steps)
    assert set(found) <= set(CATEGORIES)
    assert found["startup"] == pytest.approx(3.0)
    assert found["shutdown"] == pytest.approx(1.0)
    assert found["ckpt_stall"] == pytest.approx(4 * (0.25 + 0.02))
    assert found["useful"] == pytest.approx(steps * 0.1 + 2 * 3 * 0.025)  # slow steps of warm-up cycles stay useful
    assert found["interference"] == pytest.approx(2 * 3 * 0.025)
    assert found["unattributed"] == pytest.approx(0, abs=1e-9)
    assert sum(found.values()) == pytest.approx(wall_s(launch))


def test_rows_name_the_arm_they_belong_to(tmp_path: Path) -> None:
    rows = ledger([launched(tmp_path, SCENARIO)])
    stalls = {row.arm: row.seconds for row in rows if row.category == "ckpt_stall" and row.slot == "0/1"}
    assert stalls["sync_local"] == pytest.approx(4 * 0.25)
    assert stalls["nvrx_async"] == pytest.approx(4 * 0.02)
    assert {row.arm for row in rows if row.category in ("startup", "shutdown", "unattributed")} == {None}


def test_waiting_for_ranks_is_no_stall_of_the_waiting_rank(tmp_path: Path) -> None:
    rows = ledger([launched(tmp_path, replace(SCENARIO, skew_s=0.01, arms={"a": ArmSpec(0.1, 0.05)}))])
    first, last = by_category(rows, "0/1"), by_category(rows, "0/0")
    assert first["ckpt_stall"] == pytest.approx(4 * 0.09)
    assert first["ckpt_peers"] == pytest.approx(4 * 0.01)
    assert first["arrive"] == pytest.approx(4 * 0.01)
    assert last["ckpt_peers"] == pytest.approx(0)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    block_s=st.floats(0, 1),
    durable_s=st.floats(0, 2),
    slowdown=st.floats(1, 2),
    gap_s=st.floats(0, 0.02),
    skew_s=st.floats(0, 0.01),
    nodes=st.integers(1, 2),
    cut=st.floats(0.05, 1.0),
)
def test_the_categories_add_up_to_the_wall_time_of_every_slot(
    tmp_path: Path,
    block_s: float,
    durable_s: float,
    slowdown: float,
    gap_s: float,
    skew_s: float,
    nodes: int,
    cut: float,
) -> None:
    """Whole launches and killed ones: a worker's file ends anywhere."""
    arms = {"none": ArmSpec(), "a": ArmSpec(block_s, durable_s, slowdown)}
    scenario = Scenario(arms=arms, gap_s=gap_s, skew_s=skew_s, nodes=nodes, node_offset_s=(0.0, 77.5))

    def kill(job: Job) -> None:
        events = job.workers[-1].events
        del events[max(1, int(cut * len(events))) :]

    launch = launched(tmp_path, scenario, kill)
    totals: defaultdict[str, float] = defaultdict(float)
    for row in ledger([launch]):
        totals[row.slot] += row.seconds
    assert len(totals) == 2 * nodes
    assert list(totals.values()) == pytest.approx([wall_s(launch)] * len(totals), abs=1e-8)


def test_a_dropped_span_shows_as_unattributed_time(tmp_path: Path) -> None:
    def drop(job: Job) -> None:
        events = job.workers[0].events
        del events[
            next(
                i for i, e in enumerate(events) if e.get("name") == "save" and e.get("t1") and e["arm"] == "sync_local"
            )
        ]

    found = by_category(ledger([launched(tmp_path, SCENARIO, drop)]))
    assert found["unattributed"] == pytest.approx(0.25)


def test_a_doubled_span_shows_as_negative_unattributed_time(tmp_path: Path) -> None:
    def double(job: Job) -> None:
        events = job.workers[0].events
        at = next(i for i, e in enumerate(events) if e.get("name") == "step" and "t1" in e)
        events.insert(at, events[at])

    found = by_category(ledger([launched(tmp_path, SCENARIO, double)]))
    assert found["unattributed"] == pytest.approx(-0.1)


def test_what_comes_after_the_measured_end_is_shutdown(tmp_path: Path) -> None:
    def verify(job: Job) -> None:
        job.workers[0].span("step", job.t + 0.1, job.t + 0.4, step=999, arm="none", cycle=-1, use="settle", segment=-1)
        job.workers[0].begin("save", job.t + 0.5)

    plain, longer = (by_category(ledger([launched(tmp_path, SCENARIO, c)])) for c in (lambda job: None, verify))
    assert longer == pytest.approx(plain)


def test_a_step_that_was_not_finished_is_aborted_until_the_launch_ends(tmp_path: Path) -> None:
    def kill(job: Job) -> None:
        events = job.workers[0].events
        at = [i for i, e in enumerate(events) if e["kind"] == "begin" and e["name"] == "step"][10]
        del events[at + 1 :]

    launch = launched(tmp_path, SCENARIO, kill)
    begun = launch.workers[0].open_span
    assert begun is not None
    found = by_category(ledger([launch]))
    assert found["aborted_step"] == pytest.approx(launch.runners[0].named("launch_end")[0]["t"] - begun.t)
    assert found["shutdown"] == pytest.approx(0)
    assert found["unattributed"] == pytest.approx(0, abs=1e-9)


def restarted(scenario: Scenario, open_step: bool) -> Callable[[Job], None]:
    """Rank 0 dies after step 12 (in step 13, if so asked), comes back 5 s later and repeats steps 9 to 12."""

    def change(job: Job) -> None:
        old = job.workers[0]
        ends = [i for i, e in enumerate(old.events) if e["kind"] == "span" and e["name"] == "step"]
        del old.events[ends[11] + (2 if open_step else 1) :]
        t = old.events[ends[11]]["t1"]
        old.events[ends[10]]["t1"] -= 0.05  # one of those to be repeated differs from the others
        new = File("worker", scenario, 0, 0, t + 5)
        new.name = "worker-n0-r0-999-8.jsonl"
        new.span("load", t + 6, t + 6.5)
        for number in range(6):
            new.span("step", t + 7 + 0.1 * number, t + 7.08 + 0.1 * number, step=9 + number, arm="none", cycle=9)
        new.instant("measured_end", t + 7.6)
        job.workers.insert(1, new)
        job.runners[0].events = [e for e in job.runners[0].events if e.get("name") != "launch_end"]
        job.runners[0].instant("launch_end", t + 8)

    return change


@pytest.mark.parametrize("open_step", [False, True])
def test_steps_that_a_rollback_made_worthless_are_replay(tmp_path: Path, open_step: bool) -> None:
    launch = launched(tmp_path, SCENARIO, restarted(SCENARIO, open_step))
    found = by_category(ledger([launch]))
    assert len(launch.slots()["0/0"]) == 2
    old, new = launch.slots()["0/0"]
    repeated = (old.steps.step >= 9) & (old.steps.step <= 12)
    assert found["replay"] == pytest.approx((old.steps.t1 - old.steps.t0)[repeated].sum())
    assert (new.steps.t1 - new.steps.t0) == pytest.approx(0.08)
    executed = sum(float((s.steps.t1 - s.steps.t0).sum()) for s in launch.slots()["0/0"])
    assert found["useful"] + found["replay"] == pytest.approx(executed)
    assert found["load"] == pytest.approx(0.5)
    # 7 s from the old process's last event to the first new step, half a second of it loading
    dead_s = 5 if open_step else 0
    assert found["aborted_step"] == pytest.approx(dead_s, abs=0.3)
    assert found["restart"] == pytest.approx(6.5 - dead_s, abs=0.3)
    assert sum(found.values()) == pytest.approx(wall_s(launch))
    assert found["unattributed"] == pytest.approx(
        0.05 + 6 * 0.02, abs=1e-9
    )  # after that step, and after each of the new process's


def test_a_slot_whose_worker_left_no_event_is_wholly_unattributed(tmp_path: Path) -> None:
    launch = launched(tmp_path, SCENARIO, lambda job: job.workers.pop(1))
    found = by_category(ledger([launch]), "0/1")
    assert found == {"unattributed": pytest.approx(wall_s(launch))}


def test_without_the_runners_clock_there_is_no_wall_time_and_no_row(tmp_path: Path) -> None:
    def forget(job: Job) -> None:
        job.runners[0].events = [e for e in job.runners[0].events if e.get("name") != "launch_end"]

    launch = launched(tmp_path, SCENARIO, forget)
    assert ledger([launch]) == []
    assert slots_without_wall(launch) == ["0/0", "0/1"]


def test_the_full_design_finds_interference_against_the_blocks_launch_without_saves(tmp_path: Path) -> None:
    full = Scenario(interval=10, saves=6, kind="full", arms={"none": ArmSpec()}, index=1)
    busy = replace(full, arms={"a": ArmSpec(0.05, 0.45, slowdown=1.5)}, index=2)
    write_launch(tmp_path / "1", full)
    write_launch(tmp_path / "2", busy)
    control, launch = read_launch(tmp_path / "1"), read_launch(tmp_path / "2")
    paired = by_category([row for row in ledger([control, launch]) if row.launch == 2])
    assert paired["interference"] == pytest.approx(5 * 3 * 0.05)  # the sixth save is drained
    assert paired["ckpt_drain"] == pytest.approx(0.4)
    alone = by_category(ledger([launch]))
    assert "interference" not in alone
    assert alone["useful"] == pytest.approx(paired["useful"] + paired["interference"])


def test_a_save_that_an_exception_left_is_stall_and_a_step_aborted(tmp_path: Path) -> None:
    def fail(job: Job) -> None:
        worker = job.workers[0]
        events = worker.events
        at = [i for i, e in enumerate(events) if e.get("name") == "save" and "t1" in e][5]
        del events[at + 1 :]
        events[at]["aborted"] = True
        worker.span("step", events[at]["t1"], events[at]["t1"] + 0.03, step=99, arm="none", aborted=True)

    launch = launched(tmp_path, SCENARIO, fail)
    found = by_category(ledger([launch]))
    stalls = sum(s["t1"] - s["t0"] for s in launch.workers[0].spans if s["name"] == "save")
    (save, _) = launch.workers[0].aborted
    assert found["ckpt_stall"] == pytest.approx(stalls + save["t1"] - save["t0"])
    assert found["aborted_step"] == pytest.approx(0.03)
    assert found["unattributed"] == pytest.approx(0, abs=1e-9)
