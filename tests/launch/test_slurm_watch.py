"""Watching a job: when the wait ends, and what is told. Times are given, nothing waits."""

from __future__ import annotations

import pytest

from bench.launch.slurm_commands import JobState
from bench.launch.slurm_watch import (
    COMPLETING_PATIENCE_S,
    HEADLESS_PATIENCE_S,
    REQUEUE_PATIENCE_S,
    SILENCE_PATIENCE_S,
    Watch,
)


@pytest.fixture
def watch() -> Watch:
    return Watch("12", now=0.0)


def test_a_job_is_followed_from_the_queue_to_its_end_and_each_change_is_told_once(watch):
    pending = JobState("PENDING", "Priority", start="2026-01-05T10:00:00")
    for now, state in enumerate([pending, pending, JobState("RUNNING", nodes="n[1-2]"), JobState("COMPLETED")]):
        assert watch.alive
        watch.see(float(now), state)
    assert not watch.alive
    assert watch.news() == [
        "job 12 waits (Priority); Slurm expects it to start at 2026-01-05 10:00:00",
        "job 12 runs on n[1-2]",
        "job 12 has ended",
    ]
    assert watch.news() == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (JobState("NODE_FAIL", "NodeDown", 0), "has ended: NODE_FAIL, NodeDown"),
        (JobState("TIMEOUT", "TimeLimit", -15), "has ended: TIMEOUT, TimeLimit, ended by signal 15"),
        (JobState("FAILED", "NonZeroExitCode", 1), "has ended: FAILED, exit code 1"),
        (JobState("PREEMPTED"), "has ended: PREEMPTED"),
        (
            JobState("FAILED", "NonZeroExitCode", 130),
            "has ended in order before its work was done: its time limit came near, or somebody asked it to",
        ),
    ],
)
def test_a_job_that_died_ends_the_wait_with_what_it_died_of(watch, state, words):
    watch.see(1.0, state)
    assert not watch.alive
    assert watch.news() == [f"job 12 {words}"]


def test_a_reason_is_told_in_words(watch):
    watch.see(0.0, JobState("PENDING", "Nodes_required_for_job_are_DOWN,_DRAINED"))
    assert watch.news() == ["job 12 waits (Nodes required for job are DOWN, DRAINED)"]


def test_a_job_that_slurm_no_longer_knows_has_ended(watch):
    watch.see(1.0, None)
    assert not watch.alive
    assert watch.news() == ["job 12 is no longer known to Slurm, so it has ended"]


def test_a_requeued_job_is_waited_for_and_said_to_have_started_again(watch):
    watch.see(1.0, JobState("RUNNING", nodes="n[1-2]"))
    watch.see(2.0, JobState("PENDING", "BeginTime", restarts=1))
    watch.see(3.0, JobState("RUNNING", nodes="n[1-2]", restarts=1))
    assert watch.alive
    assert watch.news()[1:] == [
        "job 12 waits (BeginTime, started again 1 time)",
        "job 12 runs on n[1-2], started again 1 time",
    ]


def test_a_job_that_can_never_start_is_given_up(watch):
    watch.see(1.0, JobState("PENDING", "PartitionTimeLimit"))
    assert (watch.alive, watch.to_cancel) == (False, True)
    assert watch.news() == ["job 12 cannot start (PartitionTimeLimit); it is cancelled"]


def test_a_job_that_a_dead_node_keeps_completing_is_not_waited_for_for_ever(watch):
    for now in (0.0, COMPLETING_PATIENCE_S):
        watch.see(now, JobState("COMPLETING"))
        assert watch.alive
    watch.see(COMPLETING_PATIENCE_S + 1, JobState("COMPLETING"))
    assert not watch.alive


def test_a_job_that_may_be_queued_again_is_waited_for_through_long_epilogs():
    watch = Watch("12", now=0.0, returns=True)
    for now in (0.0, COMPLETING_PATIENCE_S + 1, REQUEUE_PATIENCE_S):
        watch.see(now, JobState("COMPLETING", restarts=1))
        assert watch.alive
    (told,) = watch.news()
    assert told.startswith("job 12 is completing, started again 1 time; waiting for")
    assert told.endswith("whether Slurm queues it again")
    watch.see(REQUEUE_PATIENCE_S + 1, JobState("PENDING", "BeginTime", restarts=2))
    assert watch.alive


def test_a_job_that_is_not_queued_again_is_not_waited_for_for_ever():
    watch = Watch("12", now=0.0, returns=True)
    for now in (0.0, REQUEUE_PATIENCE_S + 1):
        watch.see(now, JobState("COMPLETING"))
    assert not watch.alive
    assert watch.news()[-1] == "job 12 has been completing for 900 s and was not queued again; its runners are gone"


def test_a_job_without_its_first_node_is_cancelled_once_the_others_had_time_to_bring_home_what_they_have(watch):
    headless = JobState("RUNNING", nodes="n[2-8]", headless=True)
    for now in (0.0, HEADLESS_PATIENCE_S):
        watch.see(now, headless)
        assert watch.alive
    watch.see(HEADLESS_PATIENCE_S + 1, headless)
    assert (watch.alive, watch.to_cancel) == (False, True)
    assert "has lost its first node" in watch.news()[-1]


def test_completing_is_counted_anew_when_the_job_was_started_again_in_between(watch):
    watch.see(0.0, JobState("COMPLETING"))
    watch.see(60.0, JobState("RUNNING", nodes="n1", restarts=1))
    watch.see(COMPLETING_PATIENCE_S + 1, JobState("COMPLETING", restarts=1))
    assert watch.alive


def test_a_controller_that_is_away_for_a_while_ends_nothing(watch):
    watch.see(0.0, JobState("RUNNING", nodes="n1"))
    for now in (10.0, 20.0):
        watch.no_answer(now, "no answer")
    watch.see(30.0, JobState("RUNNING", nodes="n1"))
    assert watch.alive
    assert watch.news() == [
        "job 12 runs on n1",
        "job 12 cannot be looked at just now (no answer)",
        "job 12 runs on n1",
    ]


def test_a_controller_that_stays_away_ends_the_wait_and_leaves_the_job_alone(watch):
    watch.see(5.0, JobState("RUNNING", nodes="n1"))
    watch.no_answer(5.0 + SILENCE_PATIENCE_S, "no answer")
    assert watch.alive
    watch.no_answer(6.0 + SILENCE_PATIENCE_S, "no answer")
    assert (watch.alive, watch.silent, watch.to_cancel) == (False, True, False)
    assert "has not answered for 15 minutes" in watch.news()[-1]
