from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.measure.events import LaunchRecord, read_launch
from bench.measure.summary import summarise
from bench.schema import Arm, Summary
from tests.measure.streams import ARMS, ArmSpec, Scenario, run_json, simulate, write_files, write_launch

SCENARIO = Scenario(cycles=6, probe_bytes_per_s=50e6, verify=True)


def launches(folder: Path, *scenarios: Scenario) -> list[LaunchRecord]:
    for scenario in scenarios:
        write_launch(folder / str(scenario.index), scenario)
    return [read_launch(folder / str(scenario.index)) for scenario in scenarios]


def quick(folder: Path) -> list[LaunchRecord]:
    pilot = replace(SCENARIO, index=0, kind="pilot", arms={"sync_local": ArmSpec(9, 8)}, interval=6, saves=2)
    return launches(folder, pilot, replace(SCENARIO, index=1), replace(SCENARIO, index=2))


def arm(summary: Summary, name: str) -> Arm:
    return next(arm for arm in summary.arms if arm.name == name)


def test_the_figures_of_a_quick_result_are_those_that_went_in(tmp_path: Path) -> None:
    summary, samples, rows = summarise(run_json(SCENARIO), quick(tmp_path))
    sync, background, none = (arm(summary, name) for name in ("sync_local", "nvrx_async", "none"))
    for found in (sync, background, none):
        assert (found.cycles, found.launches) == (8, 2)
        assert found.step_s is not None
        assert found.step_s.median == pytest.approx(0.1)
    assert sync.cost_s is not None
    assert (sync.cost_s.median, sync.cost_s.interval, sync.cost_s.n) == (pytest.approx(0.25), "within_run", 8)
    assert sync.share is not None
    assert sync.share.median == pytest.approx(0.25 / (10 * 0.1 + 0.25))  # launch.json: an interval of 10 steps
    assert sync.period_s == pytest.approx(1.25)
    assert sync.period_at_40_s == pytest.approx(0.625)
    assert sync.written_bytes == 2_000_000
    assert sync.storage_ceiling_share == pytest.approx(2_000_000 / 0.2 / 50e6)
    assert background.cost_s is not None
    assert background.cost_s.median == pytest.approx(0.02 + 3 * 0.025)
    assert background.hidden_s is not None
    assert background.hidden_s.median == pytest.approx(0.075)
    assert background.durable_s is not None
    assert background.durable_s.median == pytest.approx(0.35)
    assert background.stall_share is not None
    assert background.stall_share.median == pytest.approx(0.02 / 1.095)
    assert background.launch_medians_cost_s == pytest.approx([0.095, 0.095])
    assert background.slowdown_share is not None
    assert background.slowdown_share.median == pytest.approx(0.2)
    assert none.period_at_40_s is None
    assert none.durable_s is None
    assert none.written_bytes is None
    assert (sync.content_verified, none.content_verified) == (True, None)
    assert {sync.goodput, background.goodput} == {None}
    assert len(samples) == 2 + 2 * 18
    assert {row.launch for row in rows} == {0, 1, 2}


def test_first_saves_are_reported_apart_and_without_the_pilots(tmp_path: Path) -> None:
    summary, _, _ = summarise(run_json(SCENARIO), quick(tmp_path))
    first = arm(summary, "sync_local").first_save_s
    assert first is not None
    assert (first.n, first.median) == (2, pytest.approx(0.25))


def test_the_ledger_of_the_summary_covers_all_time_but_the_pilots(tmp_path: Path) -> None:
    summary, _, rows = summarise(run_json(SCENARIO), quick(tmp_path))
    assert sum(entry["share"] for entry in summary.ledger) == pytest.approx(1)
    assert sum(entry["seconds"] for entry in summary.ledger) == pytest.approx(
        sum(row.seconds for row in rows if row.launch != 0)
    )


def test_the_users_own_period_replaces_the_scenarios(tmp_path: Path) -> None:
    records = quick(tmp_path)
    by_period, _, _ = summarise(
        run_json(SCENARIO, job={"step_s": None, "interval_steps": None, "period_s": 0.5}), records
    )
    by_steps, _, _ = summarise(run_json(SCENARIO, job={"step_s": 0.5, "interval_steps": 2, "period_s": None}), records)
    for summary, share in ((by_period, 0.25 / 0.5), (by_steps, 0.25 / 1.25)):
        found = arm(summary, "sync_local").share
        assert found is not None
        assert found.median == pytest.approx(share)
        assert arm(summary, "sync_local").period_at_40_s == pytest.approx(0.625)
        assert "your period" in summary.verdicts[0].text
    assert by_period.verdicts[0].outcome == "holds"
    assert by_steps.verdicts[0].outcome == "does_not_hold"


def test_a_configured_interval_comes_before_the_pilots(tmp_path: Path) -> None:
    config = {"arms": list(SCENARIO.arms), "interval": 40}
    summary, _, _ = summarise(run_json(SCENARIO, checkpoint=config), quick(tmp_path))
    assert arm(summary, "sync_local").period_s == pytest.approx(40 * 0.1 + 0.25)


def full(folder: Path, background: ArmSpec, blocks: int = 3) -> tuple[Scenario, list[LaunchRecord]]:
    base = Scenario(interval=10, saves=6, kind="full")
    scenarios = [
        replace(base, arms={name: spec}, index=2 * block + number, block=block)
        for block in range(blocks)
        for number, (name, spec) in enumerate({"none": ArmSpec(), "nvrx_async": background}.items())
    ]
    together = replace(base, arms={"none": ArmSpec(), "nvrx_async": background})
    return together, launches(folder, *scenarios)


def test_the_full_design_measures_the_share_directly(tmp_path: Path) -> None:
    scenario, records = full(tmp_path, ArmSpec(0.05, 0.45, slowdown=1.5))
    summary, _, _ = summarise(run_json(scenario), records)
    found = arm(summary, "nvrx_async")
    assert found.share is not None
    assert found.share.median == pytest.approx(1 - 1.0 / 1.2)  # 1 - T_control / T
    assert found.share.n == 9
    assert found.period_s == pytest.approx(1.2)
    assert found.saturated is False
    assert found.goodput is not None
    assert 0.5 < found.goodput < 1
    control = arm(summary, "none").goodput
    assert control is not None
    assert control > found.goodput
    assert "as measured" in summary.verdicts[1].text


def test_the_full_design_agrees_with_the_quick_one(tmp_path: Path) -> None:
    spec = ArmSpec(0.05, 0.45, slowdown=1.5)
    scenario, records = full(tmp_path / "full", spec)
    direct, _, _ = summarise(run_json(scenario), records)
    short = replace(SCENARIO, arms={"none": ArmSpec(), "nvrx_async": spec})
    derived, _, _ = summarise(run_json(short), launches(tmp_path / "quick", short))
    one, other = arm(direct, "nvrx_async"), arm(derived, "nvrx_async")
    for name in ("share", "stall_share", "cost_s", "blocking_s", "durable_s", "slowdown_share"):
        assert getattr(one, name).median == pytest.approx(getattr(other, name).median, abs=1e-6)


def test_at_another_period_the_full_design_goes_by_the_cost(tmp_path: Path) -> None:
    scenario, records = full(tmp_path, ArmSpec(0.05, 0.45, slowdown=1.5))
    job = {"step_s": None, "interval_steps": None, "period_s": 20.0}
    summary, _, _ = summarise(run_json(scenario, job=job), records)
    found = arm(summary, "nvrx_async").share
    assert found is not None
    assert found.median == pytest.approx(0.2 / 20)


def test_a_saturated_arm_of_the_full_design_is_seen_as_such(tmp_path: Path) -> None:
    scenario, records = full(tmp_path, ArmSpec(0.05, 1.5))
    summary, _, _ = summarise(run_json(scenario), records)
    found = arm(summary, "nvrx_async")
    assert found.saturated is True
    assert next(check for check in summary.checks if check.name == "saturated").level == "warn"


def test_the_summary_says_what_it_is_about(tmp_path: Path) -> None:
    records = quick(tmp_path)
    run = run_json(SCENARIO, cluster={"name": "emulated"}) | {"interrupted": True}
    run["environment"]["device"] = "cuda"
    summary, _, _ = summarise(run, records)
    assert (summary.rehearsal, summary.interrupted, summary.world_size) == (True, True, 2)
    assert (summary.device, summary.time_unit) == ("cuda", "GPU-seconds")
    assert summarise(run_json(SCENARIO), records)[0].time_unit == "slot-seconds"


def test_the_ceiling_of_an_arm_is_the_probe_with_its_own_fsync_setting(tmp_path: Path) -> None:
    pair = dict.fromkeys(("sync_local", "sync_local+fsync"), ARMS["sync_local"])
    scenario = replace(SCENARIO, arms=pair, probe_fsync=False, synced_probe_bytes_per_s=20e6)
    run = run_json(scenario, storage={"fsync": False, "provisioned_bytes_per_s": None})
    write_launch(tmp_path / "both", scenario)
    summary, _, _ = summarise(run, [read_launch(tmp_path / "both")])
    shares = [each.storage_ceiling_share for each in summary.arms]
    assert shares == [pytest.approx(10e6 / 50e6), pytest.approx(10e6 / 20e6)]
    assert summary.probe_bytes_per_s is not None
    assert summary.synced_probe_bytes_per_s is not None
    assert summary.probe_bytes_per_s.median == pytest.approx(50e6)
    assert summary.synced_probe_bytes_per_s.median == pytest.approx(20e6)
    write_launch(tmp_path / "one", replace(scenario, synced_probe_bytes_per_s=None))
    summary, _, _ = summarise(run, [read_launch(tmp_path / "one")])
    assert [each.storage_ceiling_share is None for each in summary.arms] == [False, True]
    assert summary.arms[1].limited_by is None
    assert summarise(run_json(SCENARIO), quick(tmp_path))[0].synced_probe_bytes_per_s is None


def test_the_summary_is_json_without_nan(tmp_path: Path) -> None:
    for records in (quick(tmp_path), []):
        summary, _, _ = summarise(run_json(SCENARIO), records)
        text = json.dumps(summary.to_json(), allow_nan=False)
        assert json.loads(text)["schema_version"] == 1
        assert json.loads(text)["probe_bytes_per_s"] == (None if not records else json.loads(text)["probe_bytes_per_s"])


def test_accounting_the_same_launches_again_gives_the_same_summary(tmp_path: Path) -> None:
    records = quick(tmp_path)
    assert summarise(run_json(SCENARIO), records) == summarise(run_json(SCENARIO), list(reversed(records)))


# --- around the saves -------------------------------------------------------------------------------------------------
def test_figures_from_around_the_saves_are_those_that_went_in(tmp_path: Path) -> None:
    scenario = replace(SCENARIO, delete_s=0.03, flush_s=0.5, d2h_bytes_per_s=20e6, nodes=2, load_s=(0.4, 0.1))
    records = launches(tmp_path, *(replace(scenario, index=index) for index in (1, 2, 3)))
    summary, _, _ = summarise(run_json(scenario), records)
    found = arm(summary, "sync_local")
    assert found.delete_s is not None
    assert (found.delete_s.median, found.delete_s.n, found.delete_s.interval) == (pytest.approx(0.03), 12, "ci95")
    assert found.flush_s is not None
    assert (found.flush_s.median, found.flush_s.n) == (1.0, 3)  # of two nodes that flush together the slower
    assert found.write_s is not None
    assert found.write_s.median == pytest.approx(0.2)
    assert summary.d2h_bytes_per_s is not None
    assert (summary.d2h_bytes_per_s.median, summary.d2h_bytes_per_s.n) == (pytest.approx(20e6), 12)
    assert arm(summary, "none").delete_s is None
    assert arm(summary, "none").flush_s is None
    assert arm(summary, "none").limited_by is None


def test_staging_is_bytes_of_a_rank_over_the_slowest_ranks_stage_phase(tmp_path: Path) -> None:
    scenario = replace(SCENARIO, d2h_bytes_per_s=10e6)
    job = simulate(scenario)
    for worker in job.workers:
        for event in worker.events:
            if event.get("name") == "save" and event.get("arm") == "nvrx_async" and event["kind"] == "span":
                length = 0.2 if worker.rank else 0.1
                event["phases"] = [["stage", event["t0"], event["t0"] + length]]
    write_files(tmp_path, scenario.launch(), job.files)
    summary, _, _ = summarise(run_json(scenario), [read_launch(tmp_path)])
    found = arm(summary, "nvrx_async")
    assert found.staging_bytes_per_s is not None
    assert found.staging_bytes_per_s.median == pytest.approx(1_000_000 / 0.2)
    assert found.staging_ceiling_share == pytest.approx(0.5)
    assert found.limited_by == "staging"  # 0.2 s of an L of 0.35 s
    assert arm(summary, "sync_local").staging_bytes_per_s is None


def test_the_stamps_say_what_every_reader_must_know(tmp_path: Path) -> None:
    records = launches(tmp_path, SCENARIO)
    storage = {"fsync": True, "provisioned_bytes_per_s": None, "throttle_bytes_per_s": 1e6}
    run = run_json(SCENARIO, cluster={"name": "emulated"}, train={"compute": "paced", "step_s": 0.1}, storage=storage)
    words = [stamp.split(" ")[0] for stamp in summarise(run, records)[0].stamps]
    assert words == ["REHEARSAL", "cpu:", "paced:", "throttled:"]
    shims = ["none", "nvrx_dcp+fsync"]  # the name under which it takes part in a run without fsync
    shimmed = run_json(SCENARIO, checkpoint=run_json(SCENARIO)["config"]["checkpoint"] | {"arms": shims})
    assert [stamp.split(" ")[0] for stamp in summarise(shimmed, records)[0].stamps] == ["cpu:", "cpu-shim:"]
    plain = run_json(SCENARIO)
    plain["environment"]["device"] = "cuda"
    assert summarise(plain, records)[0].stamps == []
