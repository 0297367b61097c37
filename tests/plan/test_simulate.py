"""The simulator against closed forms wherever these are exact, and what only it can do."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from dataclasses import replace
from math import expm1

import numpy as np
import pytest

from bench.plan import formulas
from bench.plan.formulas import DAY_S
from bench.plan.simulate import PARTS, FailureClass, Gaps, JobModel, simulate, simulate_work

SAVES, REPLICATES = 30, 1500

# (M, tau, blocking, cost, latency): from rare to frequent failures, synchronous, asynchronous and saturated writers.
JOBS = [
    (10_000, 1000, 100, 100, 100),
    (10_000, 1000, 10, 40, 500),
    (2000, 300, 5, 20, 250),
    (2000, 100, 5, 20, 250),  # saves wait for the last write
    (50_000, 3600, 275, 275, 275),
    (3000, 700, 0, 0, 0),
    (1000, 200, 30, 60, 120),
]
RECOVERIES = [
    (FailureClass("one", 1.0, (0.0,)),),
    (FailureClass("one", 1.0, (270.0,)),),
    (FailureClass("in place", 0.3, (10.0,)), FailureClass("all", 0.7, (270.0,))),
    (FailureClass("in place", 0.6, (5.0, 15.0, 40.0)), FailureClass("all", 0.4, (100.0, 300.0))),
]
SETTINGS = [
    (JobModel(tau, blocking, cost, latency, mtbf, classes, can_fail=can_fail))
    for (mtbf, tau, blocking, cost, latency), classes, can_fail in itertools.product(JOBS, RECOVERIES, (True, False))
]


def recoveries_of(job: JobModel) -> list[tuple[float, float]]:
    return [(each.share / len(each.recovery_s), r) for each in job.classes for r in each.recovery_s]


def expected_wall_s(job: JobModel, saves: int) -> float:
    """The first interval has no write before it: its length is tau + L, as if it were a synchronous one."""
    recoveries = recoveries_of(job)
    first = formulas.recovery_factor_s(job.mtbf_s, recoveries, job.can_fail) * expm1(
        (job.work_s + job.latency_s) / job.mtbf_s
    )
    later = formulas.async_interval_s(job.work_s, job.cost_s, job.latency_s, recoveries, job.mtbf_s, job.can_fail)
    return first + (saves - 1) * later


def test_there_are_more_than_50_settings_to_compare():
    assert len(SETTINGS) >= 50


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_a_fixed_amount_of_work_takes_as_long_as_the_closed_form_says(number):
    job = SETTINGS[number]
    found = simulate_work(job, SAVES, REPLICATES, seed=number)
    error = found.wall_s.std(ddof=1) / REPLICATES**0.5
    assert abs(found.wall_s.mean() - expected_wall_s(job, SAVES)) < 4 * error
    assert np.allclose(sum(found.parts.values()), found.wall_s)


@pytest.mark.parametrize("number", [0, 9, 18, 27, 36])
def test_the_long_run_goodput_is_that_of_the_closed_form(number):
    job = SETTINGS[number]
    found = simulate(job, 400 * job.mtbf_s, 400, seed=number)
    closed = formulas.goodput(
        job.work_s, job.cost_s, job.latency_s, recoveries_of(job), job.mtbf_s, can_fail=job.can_fail
    )
    assert abs(found.goodput - closed) < 4 * found.standard_error + closed / 800  # half an interval at the ends


def test_waiting_for_a_repair_without_spares_is_a_longer_recovery():
    job = SETTINGS[2]
    waiting = replace(job, classes=(FailureClass("hardware", 1.0, (20.0,), needs_node=True),), spares=0, repair_s=250.0)
    found = simulate_work(waiting, SAVES, REPLICATES, seed=1)
    same = replace(job, classes=(FailureClass("hardware", 1.0, (270.0,)),))
    error = found.wall_s.std(ddof=1) / REPLICATES**0.5
    assert abs(found.wall_s.mean() - expected_wall_s(same, SAVES)) < 4 * error
    assert found.parts["idle"].mean() > 5 * found.parts["recovery"].mean()


# --- what only the simulator can do
BASE = JobModel(600, 5, 10, 60, 8000, (FailureClass("a", 1.0, (100.0,)),))


def test_the_same_seed_gives_the_same_result_and_another_one_another():
    first, again, other = (simulate(BASE, 20 * DAY_S, 20, seed) for seed in (7, 7, 8))
    assert (first.goodputs == again.goodputs).all()
    assert (first.goodputs != other.goodputs).any()


def test_every_second_goes_to_one_part():
    found = simulate(BASE, 20 * DAY_S, 50, seed=1)
    assert set(found.parts) == set(PARTS)
    assert np.allclose(sum(found.parts.values()), 20 * DAY_S)
    assert all((seconds > -1e-6).all() for seconds in found.parts.values())


def test_without_failures_the_parts_are_arithmetic():
    job = JobModel(90.0, 2.0, 5.0, 20.0, 1e15, BASE.classes)
    found = simulate(job, 10 * 95.0 + 90.0, 2, seed=0)
    assert found.failures.tolist() == [0, 0]
    seconds = {part: found.parts[part][0] for part in PARTS}
    assert seconds["ckpt_stall"] == pytest.approx(10 * 2.0)
    assert seconds["interference"] == pytest.approx(10 * 3.0)
    assert seconds["useful"] == pytest.approx(11 * 90.0)
    assert seconds["replay"] == pytest.approx(0, abs=1e-6)


def test_a_saturated_writer_shows_as_stall():
    job = JobModel(50.0, 1.0, 1.0, 100.0, 1e15, BASE.classes)
    found = simulate(job, 1000 * 100.0, 2, seed=0)
    assert found.share("ckpt_stall").mean() == pytest.approx(0.5, abs=0.002)


def test_a_failure_costs_the_work_since_the_last_completed_save():
    """One failure at 1,000 s, from a trace: saves begin at 300, 610, 920 and are complete 200 s later."""
    job = JobModel(300, 10, 10, 200, 1000, (FailureClass("a", 1.0, (50.0,)),), gaps=Gaps(trace=(1.0, 1.0)))
    found = simulate(job, 1050.0, 2, seed=0)
    assert found.failures.tolist() == [1, 1]
    executed = 300 * 3 + (80 - 10)
    assert found.parts["replay"][0] == pytest.approx(executed - 600)
    assert found.parts["useful"][0] == pytest.approx(600)
    assert found.parts["recovery"][0] == pytest.approx(50)


def test_a_lost_node_falls_back_on_the_older_save_in_the_store():
    local = FailureClass("process", 0.5, (10.0,))
    store = FailureClass("node", 0.5, (10.0,), every=10, latency_s=300.0)
    replays = [
        simulate(replace(BASE, mtbf_s=20_000, classes=(local, each)), 60 * DAY_S, 100, 3).share("replay").mean()
        for each in (replace(local, name="node"), store)
    ]
    assert replays[1] > 3 * replays[0]
    lost_s = 0.5 * 60 + 0.5 * 300 + 600 / 2 * (0.5 + 0.5 * 10)
    assert replays[1] == pytest.approx(lost_s / 20_000, rel=0.15)


def test_recoveries_that_fail_cost_their_time_and_that_of_the_fallback():
    first, last = FailureClass("in place", 1.0, (20.0,), fails_share=0.25), FailureClass("all", 0.0, (400.0,))
    job = replace(BASE, mtbf_s=50_000, classes=(first, last))
    found = simulate(job, 400 * DAY_S, 100, seed=5)
    a_failure_s = found.parts["recovery"].sum() / found.failures.sum()
    assert a_failure_s == pytest.approx(20 + 0.25 * 400, rel=0.03)


def test_spares_that_run_out_make_the_job_wait():
    hardware = (FailureClass("hardware", 1.0, (50.0,), needs_node=True),)
    waits = {}
    for spares in (0, 1, 2, 20, None):
        job = replace(BASE, classes=hardware, spares=spares, repair_s=8000.0)
        waits[spares] = simulate(job, 30 * DAY_S, 50, seed=2).share("idle").mean()
    assert waits[0] > waits[1] > waits[2] > waits[20]
    assert waits[20] == waits[None] == 0


def test_a_spare_comes_back_after_its_repair():
    """A failure every 1,000 s and a repair of 1,500 s: one spare is waited for, two are not."""
    job = replace(
        BASE,
        mtbf_s=1000,
        classes=(FailureClass("h", 1.0, (5.0,), needs_node=True),),
        gaps=Gaps(trace=(1.0,)),
        repair_s=1500.0,
    )
    one, two = (simulate(replace(job, spares=spares), 10_500.0, 2, seed=0) for spares in (1, 2))
    assert two.parts["idle"][0] == 0
    assert one.parts["idle"][0] > 0


def test_gaps_of_any_shape_keep_the_mean():
    rng = np.random.default_rng(0)
    for gaps in (Gaps(), Gaps(0.7), Gaps(trace=(1.0, 2.0, 30.0))):
        drawn = gaps.draw(rng, 500.0, (400, 500))
        assert drawn.mean() == pytest.approx(500, rel=0.02)


def test_failures_in_bursts_lose_less_work_than_spread_ones():
    spread, bursts = (simulate(replace(BASE, gaps=Gaps(shape)), 200 * DAY_S, 200, seed=4) for shape in (1.0, 0.6))
    assert bursts.goodput - spread.goodput > 5 * (bursts.standard_error + spread.standard_error)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: replace(BASE, cost_s=1.0),
        lambda: replace(BASE, latency_s=6.0),
        lambda: replace(BASE, work_s=0.0),
        lambda: replace(BASE, mtbf_s=-1.0),
        lambda: replace(BASE, classes=(FailureClass("a", 0.5, (1.0,)),)),
        lambda: simulate(BASE, 0.0, 10, 0),
        lambda: simulate(BASE, 10.0, 1, 0),
        lambda: simulate_work(BASE, 0, 10, 0),
    ],
)
def test_what_cannot_be_simulated_is_refused(wrong):
    with pytest.raises(ValueError, match="needs"):
        wrong()


CLASSES = (
    FailureClass("process", 0.15, tuple(np.linspace(8, 14, 12))),
    FailureClass("agent", 0.35, (17.0,), fails_share=0.1, needs_node=True),
    FailureClass("all", 0.5, (270.0, 280.0, 300.0), every=4, latency_s=90.0, needs_node=True),
)
LARGE = JobModel(
    300, 2, 10, 60, formulas.mtbf_s(12_500, 6.5), CLASSES, Gaps(0.75), spares=64, repair_s=6 * 3600.0
)  # 100,000 GPUs with layers, tiers, spares and Weibull gaps


def test_1000_replicates_of_90_days_on_100_000_gpus_take_less_than_5_seconds():
    begin = time.process_time()  # of the processor: other work shares the machine
    found = simulate(LARGE, 90 * DAY_S, 1000, seed=3)
    assert time.process_time() - begin < 5
    assert found.failures.mean() == pytest.approx(90 * 12.5 * 6.5, rel=0.01)


def test_1000_replicates_stay_far_below_a_gigabyte_however_long_they_run():
    peaks = []
    for days in (3, 9):
        tracemalloc.start()
        simulate(LARGE, days * DAY_S, 1000, seed=3)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 50e6
    assert peaks[1] == pytest.approx(peaks[0], rel=0.1)
