from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.measure.events import LaunchRecord, read_launch
from bench.measure.summary import summarise
from bench.measure.validity import CHECKS
from bench.schema import Check, Summary
from tests.measure.streams import ARMS, ArmSpec, Job, Scenario, run_json, simulate, write_files

SCENARIO = Scenario(cycles=12, long_cycle=5, probe_bytes_per_s=50e6, verify=True, load_s=(0.3, 0.1))
UNSYNCED = {"fsync": False, "provisioned_bytes_per_s": None}
PAIRED = replace(  # of a run without fsync: an arm as it is, and the same with fsync
    SCENARIO,
    arms={"none": ARMS["none"], "sync_local": ARMS["sync_local"], "sync_local+fsync": ARMS["sync_local"]},
    probe_fsync=False,
)
Change = Callable[[Job], None]


def unchanged(job: Job) -> None:
    """The launch as simulated."""


def record(folder: Path, scenario: Scenario = SCENARIO, change: Change = unchanged) -> LaunchRecord:
    job = simulate(scenario)
    change(job)
    write_files(folder / str(scenario.index), scenario.launch(), job.files)
    return read_launch(folder / str(scenario.index))


def summary_of(launches: list[LaunchRecord], scenario: Scenario = SCENARIO, **config: Any) -> Summary:
    return summarise(run_json(scenario, **config), launches)[0]


def check(name: str, launches: list[LaunchRecord], scenario: Scenario = SCENARIO, **config: Any) -> Check:
    return next(check for check in summary_of(launches, scenario, **config).checks if check.name == name)


def test_a_sound_result_passes_every_check(tmp_path: Path) -> None:
    launches = [record(tmp_path, replace(SCENARIO, index=index)) for index in (1, 2)]
    summary = summary_of(launches)
    assert {c.name: c.level for c in summary.checks} == dict.fromkeys([c.name for c in summary.checks], "ok")
    assert len(summary.checks) == len(CHECKS)
    assert summary.status == "valid"


def test_every_doubt_comes_with_a_reason_and_a_remedy_on_one_line(tmp_path: Path) -> None:
    scenario = Scenario(cycles=3, load1=99.0)
    for each in summary_of([record(tmp_path, scenario)], scenario).checks:
        assert each.reason
        assert "\n" not in each.reason + each.remedy
        assert bool(each.remedy) == (each.level != "ok")


def test_fewer_than_ten_saves_are_a_warning_that_counts_over_all_launches(tmp_path: Path) -> None:
    few = replace(SCENARIO, cycles=8)
    found = check("enough_saves", [record(tmp_path, few)], few)
    assert found.level == "warn"
    assert "sync_local (6)" in found.reason
    assert check("enough_saves", [record(tmp_path, replace(few, index=i)) for i in (1, 2)], few).level == "ok"


def test_a_measured_flag_on_a_warm_up_save_is_invalid(tmp_path: Path) -> None:
    hasty = replace(SCENARIO, warmup_saves=1)
    found = check("warmup", [record(tmp_path, hasty)], hasty)
    assert found.level == "invalid"
    assert "save 1 of launch 1" in found.reason


def test_a_write_that_outlasts_the_period_is_a_warning(tmp_path: Path) -> None:
    job = {"step_s": 0.01, "interval_steps": 2, "period_s": None}
    found = check("saturated", [record(tmp_path)], job=job)
    assert found.level == "warn"
    assert "nvrx_async (period 0.35 s)" in found.reason


@pytest.mark.parametrize(("gap_s", "level"), [(0.0005, "ok"), (0.0035, "warn"), (0.02, "invalid")])
def test_unattributed_time_warns_above_two_percent_and_invalidates_above_five(
    tmp_path: Path, gap_s: float, level: str
) -> None:
    scenario = replace(SCENARIO, gap_s=gap_s)
    launches = [record(tmp_path, replace(SCENARIO, index=1)), record(tmp_path, replace(scenario, index=2))]
    found = check("unattributed", launches)
    assert found.level == level
    assert "(launch 2)" in found.reason


def test_one_slot_with_lost_time_is_enough(tmp_path: Path) -> None:
    def lose_saves(job: Job) -> None:
        events = job.workers[1].events
        job.workers[1].events = [e for e in events if (e.get("name"), e.get("arm")) != ("save", "sync_local")]

    assert check("unattributed", [record(tmp_path, change=lose_saves)]).level == "invalid"


def drop_span(job: Job) -> None:
    del job.workers[0].events[20]


def double_span(job: Job) -> None:
    job.workers[0].events.insert(20, job.workers[0].events[20])


def overlap(job: Job) -> None:
    step = next(e for e in job.workers[0].events if e.get("use") == "control")
    step["t1"] += 0.01


@pytest.mark.parametrize(("change", "named"), [(drop_span, "gap"), (double_span, "doubled"), (overlap, "overlap")])
def test_lost_doubled_and_overlapping_events_invalidate(tmp_path: Path, change: Change, named: str) -> None:
    found = check("events", [record(tmp_path, change=change)])
    assert found.level == "invalid"
    assert named in found.reason
    assert "worker-n0-r0" in found.reason


def test_a_torn_last_line_is_a_note_and_a_damaged_line_a_warning(tmp_path: Path) -> None:
    path = record(tmp_path).workers[0].name
    file = tmp_path / "1" / "events" / path
    text = file.read_text()
    file.write_text(text + '{"kind":"inst')
    assert check("events", [read_launch(tmp_path / "1")]).level == "note"
    lines = text.splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if '"name":"dirty"' in line)
    file.write_text("".join([*lines[:at], "garbage\n", *lines[at + 1 :]]))
    assert check("events", [read_launch(tmp_path / "1")]).level == "warn"
    file.write_text("garbage\n")
    assert "without a readable first line" in check("events", [read_launch(tmp_path / "1")]).reason


def test_clocks_must_agree_within_a_tenth_of_the_blocking_time(tmp_path: Path) -> None:
    nodes = replace(SCENARIO, nodes=2, ranks_per_node=1)
    assert check("clocks", [record(tmp_path, nodes)], nodes).level == "ok"
    drifting = replace(nodes, node_drift_s=0.004)
    found = check("clocks", [record(tmp_path, drifting)], drifting)
    assert found.level == "warn"
    assert "nvrx_async" in found.reason
    assert "sync_local" not in found.reason

    def never_read(job: Job) -> None:
        job.runners[1].events = [e for e in job.runners[1].events if e.get("name") != "clock"]

    assert check("clocks", [record(tmp_path, nodes, never_read)], nodes).level == "warn"


def test_a_busy_machine_is_judged_before_the_first_launch_only(tmp_path: Path) -> None:
    idle, busy = (replace(SCENARIO, index=i, load1=load) for i, load in ((1, 1.0), (2, 7.0)))
    assert check("machine_busy", [record(tmp_path, idle), record(tmp_path, busy)]).level == "ok"
    first = replace(busy, index=0)
    found = check("machine_busy", [record(tmp_path, first), record(tmp_path, idle)])
    assert found.level == "warn"
    assert "7.0 on 8 CPUs before launch 0" in found.reason


@pytest.mark.parametrize("kind", ["pids", "ports", "shm"])
def test_leftovers_invalidate(tmp_path: Path, kind: str) -> None:
    def leave(job: Job) -> None:
        next(e for e in job.runners[0].events if e.get("name") == "leftovers")[kind] = ["4711"]

    found = check("leftovers", [record(tmp_path, change=leave)])
    assert found.level == "invalid"
    assert f"{kind} ['4711']" in found.reason


def test_what_a_fault_left_and_nobody_could_undo_invalidates_and_is_told_with_the_way_out(tmp_path: Path) -> None:
    def leave(*lefts: str | None) -> Check:
        def tell(job: Job) -> None:
            end = next(event["t"] for event in job.runners[0].events if event.get("name") == "leftovers")
            job.runners[0].instant("undone", end + 0.01, fault="1-storage_full", evidence={"filler_bytes": 5})
            for number, left in enumerate(lefts):
                evidence = {"oom_kill": 1, "left": left}
                job.runners[0].instant("undone", end + 0.02 + number / 100, fault="0-oom_host", evidence=evidence)

        return check("leftovers", [record(tmp_path, change=tell)])

    found = leave("busy: /sys/fs/cgroup/x; remove it with rmdir", "still busy: /sys/fs/cgroup/x; remove it with rmdir")
    assert found.level == "invalid"
    assert found.reason.endswith("launch 1: by fault 0-oom_host (still busy: /sys/fs/cgroup/x; remove it with rmdir)")
    assert "do what is said of each fault" in found.remedy
    assert leave("busy", None).level == "ok", "it could be undone in the end"
    assert leave().level == "ok"


def test_a_probe_slower_than_the_run_is_no_ceiling(tmp_path: Path) -> None:
    slow = replace(SCENARIO, probe_bytes_per_s=5e6)  # sync_local writes 2 MB in 0.2 s
    found = check("probe_ceiling", [record(tmp_path, slow)], slow)
    assert found.level == "warn"
    assert "sync_local (2.00 x)" in found.reason
    unprobed = [record(tmp_path, replace(SCENARIO, probe_bytes_per_s=None))]
    for probe, remedy in ((False, "set storage.probe=true"), (True, "see the notes")):
        found = check("probe_ceiling", unprobed, storage=UNSYNCED | {"probe": probe})
        assert found.level == "note"
        assert found.remedy.startswith(remedy)
        assert ("storage.probe" in check("probe_drift", unprobed, storage=UNSYNCED | {"probe": probe}).remedy) != probe


def test_an_arm_is_held_against_the_probe_with_its_own_fsync_setting(tmp_path: Path) -> None:
    both = replace(PAIRED, synced_probe_bytes_per_s=5e6)
    found = check("probe_ceiling", [record(tmp_path, both)], both, storage=UNSYNCED)
    assert found.level == "warn"
    assert "probe: sync_local+fsync (2.00 x)" in found.reason, "sync_local is as fast, and no faster than its own"
    assert check("probe_ceiling", [record(tmp_path, PAIRED)], PAIRED, storage=UNSYNCED).level == "ok"


def test_probes_with_and_without_fsync_are_no_drift(tmp_path: Path) -> None:
    launches = [
        record(tmp_path, replace(PAIRED, index=1)),
        record(tmp_path, replace(PAIRED, index=2, synced_probe_bytes_per_s=5e6)),
        record(tmp_path, replace(PAIRED, index=3, probe_bytes_per_s=None, synced_probe_bytes_per_s=5e6)),
    ]
    assert check("probe_drift", launches, PAIRED, storage=UNSYNCED).level == "ok"


def test_a_probe_that_varies_between_launches_is_a_warning(tmp_path: Path) -> None:
    launches = [
        record(tmp_path, replace(SCENARIO, index=1)),
        record(tmp_path, replace(SCENARIO, index=2, probe_bytes_per_s=70e6)),
    ]
    found = check("probe_drift", launches)
    assert found.level == "warn"
    assert "33%" in found.reason


def test_faster_than_provisioned_is_a_burst(tmp_path: Path) -> None:
    launches = [record(tmp_path)]
    assert check("burst", launches, storage={"fsync": True, "provisioned_bytes_per_s": 60e6}).level == "ok"
    found = check("burst", launches, storage={"fsync": True, "provisioned_bytes_per_s": 9e6})
    assert found.level == "warn"
    assert "sync_local (1.11 x)" in found.reason
    assert "the probe (5.56 x)" in found.reason


def test_the_speed_of_the_page_cache_is_no_burst(tmp_path: Path) -> None:
    unsynced = replace(SCENARIO, probe_fsync=False)
    storage = UNSYNCED | {"provisioned_bytes_per_s": 9e6}
    found = check("burst", [record(tmp_path, unsynced)], storage=storage)
    assert (found.level, found.remedy) == ("note", "measure with storage.fsync=true")
    pair = check("burst", [record(tmp_path, PAIRED)], PAIRED, storage=storage)
    assert pair.level == "warn"
    assert pair.reason == "faster than the provisioned bandwidth: sync_local+fsync (1.11 x)"


@pytest.mark.parametrize(
    ("cluster", "shared", "level"),
    [
        ("local", True, "note"),
        ("emulated", True, "note"),
        ("slurm", True, "warn"),
        ("slurm", False, "ok"),
        ("slurm", None, "note"),
    ],
)
def test_one_file_system_weighs_more_on_a_cluster(
    tmp_path: Path, cluster: str, shared: bool | None, level: str
) -> None:
    run = run_json(SCENARIO, cluster={"name": cluster})
    run["environment"]["one_filesystem"] = shared
    summary, _, _ = summarise(run, [record(tmp_path)])
    assert next(c for c in summary.checks if c.name == "one_file_system").level == level


def test_content_that_differs_invalidates_and_content_never_read_warns(tmp_path: Path) -> None:
    wrong = replace(SCENARIO, wrong_digest=True)
    found = check("content", [record(tmp_path, wrong)], wrong)
    assert found.level == "invalid"
    assert "sync_local, nvrx_async" in found.reason
    unread = replace(SCENARIO, verify=False)
    assert check("content", [record(tmp_path, unread)], unread).level == "warn"


def test_a_reader_that_was_too_slow_is_a_warning_with_its_reason_and_no_difference(tmp_path: Path) -> None:
    def give_up(job: Job) -> None:
        for event in job.runners[0].events:
            if event.get("name") == "verified" and event["arm"] == "sync_local":
                event.update(complete=None, digest=None, unread="node 0 had not read it within 300 s")

    launches = [record(tmp_path, change=give_up)]
    found = check("content", launches)
    assert found.level == "warn"
    assert found.reason == "not read back: sync_local (node 0 had not read it within 300 s)"
    arms = {arm.name: arm.content_verified for arm in summary_of(launches).arms}
    assert arms == {"none": None, "sync_local": None, "nvrx_async": True}


def test_a_shard_that_the_reader_did_not_find_is_wrong_content(tmp_path: Path) -> None:
    def lose(job: Job) -> None:
        events = job.runners[0].events
        del events[next(i for i, e in enumerate(events) if e.get("name") == "verified")]

    assert check("content", [record(tmp_path, change=lose)]).level == "invalid"


def test_an_arm_that_was_not_measured_is_named(tmp_path: Path) -> None:
    config = {"arms": [*SCENARIO.arms, "nvrx_local"], "interval": "auto"}
    found = check("arms_present", [record(tmp_path)], checkpoint=config)
    assert found.level == "warn"
    assert "nvrx_local" in found.reason


def kill(job: Job) -> None:
    del job.workers[1].events[200:]


def test_a_failed_launch_warns_and_none_measured_invalidates(tmp_path: Path) -> None:
    whole, failed = record(tmp_path), record(tmp_path, replace(SCENARIO, index=2), kill)
    failed.launch.update(status="failed", reason="rank 1 was killed")
    found = check("launches", [whole, failed])
    assert found.level == "warn"
    assert "2 (failed: rank 1 was killed)" in found.reason
    assert check("launches", [failed]).level == "invalid"
    assert summary_of([failed]).status == "invalid"


def test_launches_left_out_for_the_budget_are_a_note(tmp_path: Path) -> None:
    write_files(tmp_path / "9", replace(SCENARIO, index=9).launch() | {"status": "skipped", "reason": "budget"}, [])
    found = check("launches", [record(tmp_path), read_launch(tmp_path / "9")])
    assert (found.level, "left out for the budget: 9" in found.reason) == ("note", True)


@pytest.mark.parametrize(("factor", "level"), [(1.0, "ok"), (1.08, "ok"), (1.25, "warn"), (0.7, "warn")])
def test_a_save_that_takes_longer_after_more_compute_is_a_warning(tmp_path: Path, factor: float, level: str) -> None:
    scenarios = [replace(SCENARIO, index=index, long_cycle=2 + index, long_factor=factor) for index in (1, 2, 3)]
    found = check("extrapolation", [record(tmp_path, scenario) for scenario in scenarios])
    assert found.level == level
    assert (f"sync_local {factor:.2f} times [{factor:.2f}, {factor:.2f}]" in found.reason) == (level == "warn")
    assert "nvrx_async" not in found.reason or factor != 1.08  # its save of 20 ms: less than the instrument tells apart


def test_noise_is_no_dependence_on_the_period_but_may_leave_one_open(tmp_path: Path) -> None:
    def scatter(job: Job) -> None:
        for file in job.workers:
            for event in file.events:
                if event.get("name") == "save" and "t1" in event:
                    event["t0"] -= 0.05 * (event["save"] % 3)

    scenario = replace(SCENARIO, long_cycle=4)
    found = check("extrapolation", [record(tmp_path, scenario, scatter)], scenario)
    assert found.level == "note"
    assert "10 % remain possible: sync_local" in found.reason


def test_without_a_longer_period_nothing_is_claimed_about_one(tmp_path: Path) -> None:
    scenario = replace(SCENARIO, long_cycle=None)
    assert check("extrapolation", [record(tmp_path, scenario)], scenario).level == "note"


def test_a_trend_over_the_cycles_is_a_warning(tmp_path: Path) -> None:
    def slow_down(job: Job) -> None:
        for file in job.workers:
            for event in file.events:
                if event.get("name") == "save" and event.get("arm") == "sync_local" and "t1" in event:
                    event["t0"] -= 0.002 * event["save"]  # earlier in: a longer save and a higher cost, save by save

    found = check("drift", [record(tmp_path, change=slow_down)])
    assert found.level == "warn"
    assert "cost_s of sync_local" in found.reason


def test_outliers_are_noted_and_kept(tmp_path: Path) -> None:
    def one_long(job: Job) -> None:
        for file in job.workers:
            for event in file.events:
                if (
                    event.get("name") == "save"
                    and event.get("arm") == "none"
                    and event.get("save") == 7
                    and "t1" in event
                ):
                    event["t0"] -= 1.0
                elif event.get("name") == "save" and event.get("arm") == "none" and "t1" in event:
                    event["t0"] -= 0.001 * (event["save"] % 3)

    launch = record(tmp_path, change=one_long)
    found = check("outliers", [launch])
    assert found.level == "note"
    assert "none save 7 of launch 1" in found.reason
    assert next(arm for arm in summary_of([launch]).arms if arm.name == "none").cycles == 10


@pytest.mark.parametrize(("fsync", "level"), [(True, "warn"), (False, "note")])
def test_bytes_left_in_memory_weigh_by_whether_they_were_to_be_synced(tmp_path: Path, fsync: bool, level: str) -> None:
    def leave_dirty(job: Job) -> None:
        for event in job.workers[0].events:
            if event.get("name") == "dirty":
                event["dirty_bytes"] = 10**9 + (400_000 if event["arm"] == "sync_local" else 0)  # others write as well

    found = check(
        "client_memory",
        [record(tmp_path, change=leave_dirty)],
        storage={"fsync": fsync, "provisioned_bytes_per_s": None},
    )
    assert found.level == level
    assert "sync_local 20%" in found.reason
    assert "nvrx_async" not in found.reason


def test_every_check_answers_on_a_result_without_anything(tmp_path: Path) -> None:
    summary = summary_of([])
    assert summary.status == "invalid"
    assert len(summary.checks) == len(CHECKS)
    assert {arm.name for arm in summary.arms} == set(ARMS)
    assert all(isinstance(spec, ArmSpec) for spec in ARMS.values())
