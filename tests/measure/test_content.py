from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.measure.content import content_verified, unread
from bench.measure.events import LaunchRecord, read_launch
from tests.measure.streams import Job, Scenario, simulate, write_files, write_launch

SCENARIO = Scenario(cycles=3, nodes=2, verify=True)


def launched(folder: Path, scenario: Scenario) -> LaunchRecord:
    write_launch(folder, scenario)
    return read_launch(folder)


def test_equal_digests_of_every_rank_verify_the_content(tmp_path: Path) -> None:
    launch = launched(tmp_path, SCENARIO)
    assert content_verified([launch], "sync_local") is True
    assert content_verified([launch], "none") is None


def test_one_digest_that_differs_is_enough(tmp_path: Path) -> None:
    good, bad = (
        launched(tmp_path / "1", SCENARIO),
        launched(tmp_path / "2", replace(SCENARIO, index=2, wrong_digest=True)),
    )
    assert content_verified([good, bad], "sync_local") is False


def test_without_a_reader_nothing_is_verified(tmp_path: Path) -> None:
    job = simulate(SCENARIO)
    for runner in job.runners:
        runner.events = [event for event in runner.events if event.get("name") != "verified"]
    write_files(tmp_path, SCENARIO.launch(), job.files)
    assert content_verified([read_launch(tmp_path)], "sync_local") is None


@pytest.mark.parametrize("change", [{"complete": False}, {"digest": None}])
def test_an_incomplete_checkpoint_is_wrong(tmp_path: Path, change: dict[str, bool | None]) -> None:
    job = simulate(SCENARIO)
    event = next(event for event in job.runners[1].events if event.get("name") == "verified")
    event.update(change)
    write_files(tmp_path, SCENARIO.launch(), job.files)
    assert content_verified([read_launch(tmp_path)], event["arm"]) is False


def not_read(reason: str, wrong: bool = False) -> Callable[[Job], None]:
    """Node 1's reader did not come to an end; node 0's did, and found what was saved or (`wrong`) something else."""

    def change(job: Job) -> None:
        for event in job.runners[1].events:
            if event.get("name") == "verified":
                event.update(complete=None, digest=None, unread=reason)
        for event in job.runners[0].events:
            if wrong and event.get("name") == "verified":
                event["digest"] = "other"

    return change


@pytest.mark.parametrize(("wrong", "found"), [(False, None), (True, False)])
def test_a_reader_that_did_not_come_to_an_end_says_nothing_about_the_files(
    tmp_path: Path, wrong: bool, found: bool | None
) -> None:
    job = simulate(SCENARIO)
    not_read("node 1 had not read it within 300 s", wrong)(job)
    write_files(tmp_path, SCENARIO.launch(), job.files)
    launch = read_launch(tmp_path)
    assert content_verified([launch], "sync_local") is found
    assert unread([launch], "sync_local") == ["node 1 had not read it within 300 s"]
    assert unread([launch], "none") == []
