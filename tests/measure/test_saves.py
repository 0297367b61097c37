from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.measure.events import LaunchRecord, read_launch
from bench.measure.saves import samples
from bench.schema import Sample
from tests.measure.streams import ARMS, ArmSpec, Event, Job, Scenario, Truth, simulate, write_files, write_launch


def launched(folder: Path, scenario: Scenario, change: Callable[[Job], None] = lambda job: None) -> LaunchRecord:
    job = simulate(scenario)
    change(job)
    write_files(folder, scenario.launch(), job.files)
    return read_launch(folder)


def of(found: list[Sample], arm: str, save: int = 3) -> Sample:
    return next(sample for sample in found if sample.arm == arm and sample.save == save)


def check(sample: Sample, truth: Truth, scenario: Scenario) -> None:
    assert sample.blocking_s == pytest.approx(truth.blocking_s, abs=1e-9)
    if truth.durable_s is None:
        assert sample.durable_s is None
    else:
        assert sample.durable_s == pytest.approx(truth.durable_s, abs=1e-9)
    if not sample.measured:
        assert sample.cost_s is None
        return
    assert sample.cost_s == pytest.approx(truth.cost_s, abs=1e-9)
    assert sample.hidden_s == pytest.approx(truth.cost_s - truth.blocking_s, abs=1e-9)
    assert sample.control_step_s == pytest.approx(scenario.step_s + scenario.gap_s, abs=1e-9)


# --- quick design -----------------------------------------------------------------------------------------------------
times = st.floats(0.001, 3.0)
specs = st.builds(
    ArmSpec, block_s=st.floats(0.0, 2.0), durable_s=st.none() | st.floats(0.0, 4.0), slowdown=st.floats(1.0, 3.0)
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arms=st.dictionaries(st.sampled_from(["a", "b", "none"]), specs, min_size=1),
    step_s=st.floats(0.01, 1.0),
    gap_s=st.floats(0.0, 0.05),
    ranks=st.integers(1, 3),
    nodes=st.integers(1, 2),
    offset_s=st.floats(-1e4, 1e4),
)
def test_known_durations_are_recovered_exactly(
    tmp_path: Path, arms: dict[str, ArmSpec], step_s: float, gap_s: float, ranks: int, nodes: int, offset_s: float
) -> None:
    scenario = Scenario(
        arms=arms, step_s=step_s, gap_s=gap_s, ranks_per_node=ranks, nodes=nodes, node_offset_s=(0, offset_s)
    )
    for old in tmp_path.glob("events/*"):
        old.unlink()
    job = write_launch(tmp_path, scenario)
    found = samples([read_launch(tmp_path)])
    assert len(found) == len(job.truths) == scenario.cycles * len(arms)
    for truth in job.truths:
        check(of(found, truth.arm, truth.save), truth, scenario)


def test_the_last_rank_decides_when_ranks_are_apart(tmp_path: Path) -> None:
    scenario = Scenario(ranks_per_node=4, skew_s=0.004, gap_s=0.002)
    job = write_launch(tmp_path, scenario)
    found = samples([read_launch(tmp_path)])
    for truth in job.truths:
        check(of(found, truth.arm, truth.save), truth, scenario)
    slow = of(found, "sync_local")
    assert slow.arrive_s == pytest.approx(3 * 0.004)
    assert slow.peers_s == pytest.approx(3 * 0.004)
    assert slow.phases["write"] == pytest.approx(0.25)


def test_a_save_begins_when_the_last_rank_is_in_and_ends_when_the_last_is_out(tmp_path: Path) -> None:
    def early(job: Job) -> None:
        """Rank 1 enters the save 0.03 s before rank 0, and leaves it 0.05 s before."""
        for event in job.workers[1].events:
            if event.get("name") == "save" and event["kind"] == "span":
                event["t0"], event["t1"] = event["t0"] - 0.03, event["t1"] - 0.05

    sample = of(samples([launched(tmp_path, Scenario(), early)]), "sync_local")
    assert sample.blocking_s == pytest.approx(0.25)
    assert sample.durable_s == pytest.approx(0.2)
    assert sample.cost_s == pytest.approx(0.25)


def test_sigma_is_the_lost_share_of_steps_during_the_write(tmp_path: Path) -> None:
    write_launch(tmp_path, Scenario())
    found = samples([read_launch(tmp_path)])
    sample = of(found, "nvrx_async")
    assert sample.during_steps == 3  # 0.33 s of writing after the save, in steps of 0.125 s
    assert sample.slowdown_share == pytest.approx(1 - 1 / 1.25)
    assert of(found, "sync_local").during_steps == 0
    assert of(found, "sync_local").slowdown_share is None
    assert of(found, "none").slowdown_share is None


def test_bytes_and_the_writing_time_are_summed_over_shards(tmp_path: Path) -> None:
    write_launch(tmp_path, Scenario(nodes=2))
    sample = of(samples([read_launch(tmp_path)]), "nvrx_async")
    assert sample.written_bytes == 4_000_000
    assert sample.write_s == pytest.approx(0.35)
    assert sample.write_bytes_per_s == pytest.approx(4_000_000 / 0.35)
    assert sample.dirty_bytes == 2 * 4096


def test_an_arm_that_writes_nothing_has_a_cost_and_no_durable_time(tmp_path: Path) -> None:
    write_launch(tmp_path, Scenario())
    sample = of(samples([read_launch(tmp_path)]), "none")
    assert sample.cost_s == pytest.approx(0, abs=1e-9)
    assert (sample.durable_s, sample.written_bytes, sample.write_s, sample.write_bytes_per_s) == (None,) * 4


def test_warm_up_cycles_are_not_measured(tmp_path: Path) -> None:
    write_launch(tmp_path, Scenario())
    for sample in samples([read_launch(tmp_path)]):
        assert sample.measured == (sample.save >= 2)


def test_a_checkpoint_gathered_on_rank_0_needs_no_other_shard(tmp_path: Path) -> None:
    write_launch(tmp_path, Scenario(arms={"sync_full": ArmSpec(0.2, 0.2, gathered=True)}))
    sample = of(samples([read_launch(tmp_path)]), "sync_full")
    assert sample.durable_s == pytest.approx(0.2)
    assert sample.written_bytes == 1_000_000


# --- what is missing is None ------------------------------------------------------------------------------------------
def without(name: str, arm: str, save: int, kind: str = "span") -> Callable[[list[Event]], list[Event]]:
    def drop(events: list[Event]) -> list[Event]:
        wanted = {"name": name, "arm": arm, "save": save, "kind": kind}
        return [event for event in events if any(event.get(key) != value for key, value in wanted.items())]

    return drop


def test_a_save_that_one_rank_did_not_record_has_no_blocking_time_and_no_cost(tmp_path: Path) -> None:
    def drop(job: Job) -> None:
        job.workers[1].events = without("save", "nvrx_async", 3)(job.workers[1].events)

    sample = of(samples([launched(tmp_path, Scenario(), drop)]), "nvrx_async")
    assert (sample.blocking_s, sample.durable_s, sample.cost_s, sample.hidden_s) == (None,) * 4
    assert sample.slowdown_share is None
    assert sample.phases == {}


def test_a_missing_durable_makes_everything_that_needs_it_unknown(tmp_path: Path) -> None:
    def drop(job: Job) -> None:
        job.writers[1].events = without("durable", "nvrx_async", 3, "instant")(job.writers[1].events)

    found = samples([launched(tmp_path, Scenario(), drop)])
    sample = of(found, "nvrx_async")
    assert sample.blocking_s == pytest.approx(0.02)
    unknown = ("durable_s", "cost_s", "hidden_s", "slowdown_share", "write_s", "written_bytes", "write_bytes_per_s")
    assert [getattr(sample, name) for name in unknown] == [None] * len(unknown)
    assert of(found, "nvrx_async", 2).cost_s is not None


def test_a_writer_that_never_made_anything_durable_is_missed_in_every_save(tmp_path: Path) -> None:
    def drop(job: Job) -> None:
        job.writers[2].events = [event for event in job.writers[2].events if event.get("name") != "durable"]

    found = samples([launched(tmp_path, Scenario(ranks_per_node=4), drop)])
    assert all(sample.durable_s is None for sample in found if sample.arm == "nvrx_async")
    assert of(found, "sync_local").durable_s is not None


def test_a_failed_shard_leaves_the_save_without_a_durable_time(tmp_path: Path) -> None:
    def fail(job: Job) -> None:
        for event in job.writers[0].events:
            if event.get("name") == "durable" and event["save"] == 3 and event["arm"] == "nvrx_async":
                event["name"], event["reason"] = "failed", "No space left on device"

    sample = of(samples([launched(tmp_path, Scenario(), fail)]), "nvrx_async")
    assert (sample.durable_s, sample.cost_s, sample.written_bytes) == (None, None, None)


@pytest.mark.parametrize("use", ["control", "after"])
def test_a_step_that_one_rank_did_not_record_is_never_bridged(tmp_path: Path, use: str) -> None:
    """A control block without one of its steps is left out; a window without one of its steps has no cost."""
    scenario = Scenario(arms={"sync_local": ARMS["sync_local"]})

    def drop(job: Job) -> None:
        events = job.workers[1].events
        steps = [i for i, e in enumerate(events) if e.get("use") == use and e["cycle"] == 3]
        del events[steps[1]]

    found = samples([launched(tmp_path, scenario, drop)])
    assert of(found, "sync_local", 3).cost_s is None
    assert of(found, "sync_local", 2).cost_s == pytest.approx(0.25, abs=1e-9)


def test_a_span_recorded_twice_makes_its_save_unknown(tmp_path: Path) -> None:
    def repeat(job: Job) -> None:
        events = job.workers[0].events
        at = next(i for i, e in enumerate(events) if e.get("name") == "save" and e.get("save") == 3 and "t0" in e)
        events.insert(at, events[at] | {"t1": events[at]["t1"] + 1})

    found = samples([launched(tmp_path, Scenario(arms={"a": ArmSpec(0.1, 0.05)}), repeat)])
    assert (of(found, "a").blocking_s, of(found, "a").cost_s) == (None, None)


def test_unreadable_memory_figures_stay_unknown(tmp_path: Path) -> None:
    def hide(job: Job) -> None:
        for event in job.workers[2].events:
            if event.get("name") == "dirty":
                event["dirty_bytes"] = None

    found = samples([launched(tmp_path, Scenario(nodes=2), hide)])
    assert all(sample.dirty_bytes is None for sample in found)


def test_saves_after_the_measured_part_have_no_cost_and_are_not_measured(tmp_path: Path) -> None:
    def verify(job: Job) -> None:
        for worker in job.workers:
            worker.span(
                "save", job.t, job.t + 0.1, arm="none", save=4, cycle=-1, step=1, segment=-1, measured=False, phases=[]
            )

    sample = of(samples([launched(tmp_path, Scenario(), verify)]), "none", 4)
    assert not sample.measured
    assert sample.blocking_s == pytest.approx(0.1)
    assert (sample.cost_s, sample.control_step_s, sample.period_s) == (None, None, None)


def test_a_launch_without_any_event_has_no_samples(tmp_path: Path) -> None:
    write_files(tmp_path, Scenario().launch(), [])
    assert samples([read_launch(tmp_path)]) == []


# --- full design ------------------------------------------------------------------------------------------------------
FULL = Scenario(interval=10, saves=6, kind="full", ranks_per_node=2)


def full_launches(folder: Path, arm: ArmSpec, blocks: int = 2, **control: float) -> list[LaunchRecord]:
    launches = []
    for block in range(blocks):
        pair = {"none": ArmSpec(), "nvrx_async": arm}
        for number, (name, spec) in enumerate(pair.items()):
            scenario = replace(FULL, arms={name: spec}, index=2 * block + number, block=block)
            if name == "none":
                scenario = replace(scenario, **control)
            path = folder / str(scenario.index)
            write_launch(path, scenario)
            launches.append(read_launch(path))
    return launches


def test_the_full_design_takes_the_cost_from_the_period_without_saves(tmp_path: Path) -> None:
    found = samples(full_launches(tmp_path, ArmSpec(0.05, 0.45, slowdown=1.5)))
    measured = [sample for sample in found if sample.arm == "nvrx_async" and sample.measured]
    assert [sample.save for sample in measured] == [2, 3, 4, 5] * 2
    for sample in measured:
        if sample.save == 5:  # nothing follows the last save
            assert (sample.period_s, sample.cost_s) == (None, None)
            continue
        # 0.05 s in the save; three steps of 0.15 s begin within the 0.4 s of writing after it
        assert sample.cost_s == pytest.approx(0.05 + 3 * 0.05, abs=1e-9)
        assert sample.period_s == pytest.approx(10 * 0.1 + 0.2, abs=1e-9)
        assert sample.control_step_s == pytest.approx(0.1, abs=1e-9)
        assert sample.slowdown_share == pytest.approx(1 - 1 / 1.5)
        assert sample.hidden_s == pytest.approx(0.15, abs=1e-9)


def test_the_first_saves_of_a_full_launch_are_warm_up_whatever_the_worker_says(tmp_path: Path) -> None:
    def measured_from_the_start(job: Job) -> None:
        for worker in job.workers:
            for event in worker.events:
                if "measured" in event:
                    event["measured"] = True

    scenario = replace(FULL, arms={"none": ArmSpec()})
    found = samples([launched(tmp_path, scenario, measured_from_the_start)], warmup_saves=3)
    assert [sample.measured for sample in found] == [False] * 3 + [True] * 3


def test_a_block_is_compared_with_its_own_control_only(tmp_path: Path) -> None:
    launches = full_launches(tmp_path, ArmSpec(0.05, 0.04))
    write_launch(tmp_path / "slow", replace(FULL, arms={"none": ArmSpec()}, step_s=0.2, index=9, block=1))
    launches[2] = read_launch(tmp_path / "slow")
    found = samples(launches)
    costs = {s.launch: s.cost_s for s in found if s.arm == "nvrx_async" and s.cost_s is not None}
    assert costs[1] == pytest.approx(0.05, abs=1e-9)
    assert costs[3] == pytest.approx(1.05 - 2.0, abs=1e-9)


def test_without_a_control_launch_the_cost_of_the_full_design_is_unknown(tmp_path: Path) -> None:
    launches = full_launches(tmp_path, ArmSpec(0.05, 0.04), blocks=1)
    found = samples(launches[1:])
    assert found[2].period_s == pytest.approx(1.05)
    assert {sample.cost_s for sample in found} == {None}


def test_a_saturated_strategy_waits_for_its_own_earlier_write(tmp_path: Path) -> None:
    found = samples(full_launches(tmp_path, ArmSpec(0.05, 1.5), blocks=1))
    waiting = of(found, "nvrx_async", 3)
    assert waiting.period_s is not None
    assert waiting.durable_s is not None
    assert waiting.durable_s > waiting.period_s
    assert waiting.phases["wait_previous"] > 0.3
    assert waiting.period_s == pytest.approx(1.5, abs=0.06)


def test_the_pilots_saves_are_no_control_and_not_measured(tmp_path: Path) -> None:
    launches = full_launches(tmp_path, ArmSpec(0.05, 0.04), blocks=1)
    write_launch(tmp_path / "pilot", replace(FULL, arms={"none": ArmSpec()}, kind="pilot", step_s=5, index=50))
    found = samples([read_launch(tmp_path / "pilot"), *launches])
    pilots = [sample for sample in found if sample.launch == 50]
    assert len(pilots) == 6
    assert {(sample.measured, sample.period_s, sample.cost_s) for sample in pilots} == {(False, None, None)}
    assert of([s for s in found if s.launch == 1], "nvrx_async", 3).cost_s == pytest.approx(0.05, abs=1e-9)


def test_the_numbers_of_a_launch_are_plain_json(tmp_path: Path) -> None:
    write_launch(tmp_path, Scenario())
    for sample in samples([read_launch(tmp_path)]):
        assert json.loads(json.dumps(vars(sample), allow_nan=False))["arm"] == sample.arm


# --- intervals, imbalance, deleting -----------------------------------------------------------------------------------
def test_a_save_of_the_full_design_knows_its_own_segments_interval(tmp_path: Path) -> None:
    scenario = Scenario(arms={"none": ArmSpec()}, kind="full", interval=5, saves=4)
    write_launch(tmp_path / "full", scenario)
    write_launch(tmp_path / "quick", Scenario())
    assert {s.interval_steps for s in samples([read_launch(tmp_path / "full")])} == {5}
    assert {s.interval_steps for s in samples([read_launch(tmp_path / "quick")])} == {None}


def test_the_control_step_goes_by_the_segments_interval(tmp_path: Path) -> None:
    scenario = Scenario(arms={"none": ArmSpec()}, kind="full", interval=5, saves=4)
    write_launch(tmp_path, scenario)
    launch = json.loads((tmp_path / "launch.json").read_text())
    launch["segments"].append(launch["segments"][0] | {"interval": 50})  # another one of this launch, never begun
    (tmp_path / "launch.json").write_text(json.dumps(launch))
    assert of(samples([read_launch(tmp_path)]), "none", 2).control_step_s == pytest.approx(0.1)


def test_imbalance_is_the_slowest_ranks_writing_time_over_the_median_ranks(tmp_path: Path) -> None:
    def late(job: Job) -> None:
        """Rank 2 of 4 begins to write as the others do, and takes twice as long."""
        for event in (*job.workers[2].events, *job.writers[2].events):
            if event.get("name") == "durable":
                event["t"] += event["t"] - event["t_begin"]

    found = samples([launched(tmp_path, Scenario(ranks_per_node=4), late)])
    assert of(found, "sync_local").write_imbalance == pytest.approx(2)
    assert of(found, "none").write_imbalance is None


def test_a_single_writer_is_not_out_of_balance(tmp_path: Path) -> None:
    write_launch(tmp_path, Scenario(arms={"sync_full": ArmSpec(0.2, 0.2, gathered=True)}))
    assert of(samples([read_launch(tmp_path)]), "sync_full").write_imbalance is None


def test_deleting_belongs_to_the_save_during_which_it_took_place_and_the_slowest_rank_counts(tmp_path: Path) -> None:
    def slow(job: Job) -> None:
        for event in (*job.workers[1].events, *job.writers[1].events):
            if event.get("name") == "deleted":
                event["t"] += 0.03

    found = samples([launched(tmp_path, Scenario(delete_s=0.01), slow)])
    for arm in ("sync_local", "nvrx_async"):
        assert [s.delete_s for s in found if s.arm == arm] == [None, *[pytest.approx(0.04)] * 3]
    assert {s.delete_s for s in found if s.arm == "none"} == {None}
