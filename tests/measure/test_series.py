from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.measure.accounted import Accounted
from bench.measure.events import read_launches
from bench.measure.series import series, unlike_in_series
from bench.schema import Verdict
from tests.measure.results import BASE, result
from tests.measure.streams import ArmSpec, Scenario, run_json, write_launch

TRAIN = {"compute": "real", "step_s": None, "batch_size": 2}


def sized(folder: Path, nodes: int, durable_s: float = 0.35, total_bytes: int = 8_000_000) -> Accounted:
    """A result on `nodes` x 2 ranks with the same bytes in all."""
    specs = {name: replace(spec, shard_bytes=total_bytes // (2 * nodes)) for name, spec in BASE.arms.items()}
    specs["nvrx_async"] = replace(specs["nvrx_async"], durable_s=durable_s)
    return result(folder / f"{nodes}-{total_bytes}-{durable_s}", replace(BASE, nodes=nodes, arms=specs), train=TRAIN)


def verdict(results: Sequence[Accounted], claim: str) -> Verdict:
    return next(each for each in series(results).verdicts if each.claim == claim)


# --- what may be joined
def test_results_that_differ_in_world_size_and_bytes_may_be_joined(tmp_path: Path) -> None:
    assert unlike_in_series([sized(tmp_path, 1), sized(tmp_path, 2), sized(tmp_path, 2, total_bytes=4_000_000)]) is None


def test_any_other_difference_is_named(tmp_path: Path) -> None:
    base = sized(tmp_path, 1)
    other = replace(base, run=base.run | {"config": base.config | {"train": TRAIN | {"batch_size": 4}}})
    assert unlike_in_series([base, sized(tmp_path, 2), other]) == "train.batch_size (2 against 4)"
    environment = base.run["environment"] | {"versions": {"torch": "3"}}
    assert unlike_in_series([base, replace(base, run=base.run | {"environment": environment})]) == (
        "versions.torch (2 against 3)"
    )
    rehearsed = replace(base, summary=replace(base.summary, rehearsal=True))
    assert str(unlike_in_series([base, rehearsed])).startswith("cluster")


def test_a_series_is_in_the_order_of_sizes_and_json(tmp_path: Path) -> None:
    small, large = sized(tmp_path, 1), sized(tmp_path, 2)
    content = json.loads(json.dumps(series([large, small]).to_json(), allow_nan=False))
    assert content["schema_version"] == 1
    assert [(entry["world_size"], entry["num_nodes"], entry["bytes"]) for entry in content["results"]] == [
        (2, 1, 8_000_000),
        (4, 2, 8_000_000),
    ]
    assert {arm["name"] for arm in content["results"][0]["arms"]} == set(BASE.arms)
    assert {each["claim"] for each in content["verdicts"]} == {"write_time_flat", "crossover"}


# --- write_time_flat
@pytest.mark.parametrize(
    ("durable_s", "outcome"), [(0.35, "holds"), (0.9, "does_not_hold"), (0.1, "does_not_hold"), (0.436, "not_decided")]
)
def test_the_write_time_of_the_largest_world_is_held_against_the_smallests(
    tmp_path: Path, durable_s: float, outcome: str
) -> None:
    found = verdict([sized(tmp_path, 1), sized(tmp_path, 2, 0.5), sized(tmp_path, 4, durable_s)], "write_time_flat")
    assert found.outcome == outcome
    assert "nvrx_async on 8 ranks (4 nodes)" in found.text
    assert "on 2 ranks (1 node)" in found.text


def test_other_bytes_or_one_size_decide_nothing_about_the_write_time(tmp_path: Path) -> None:
    small, other = sized(tmp_path, 1), sized(tmp_path, 2, total_bytes=4_000_000)
    assert verdict([small, other], "write_time_flat").outcome == "not_measured"
    assert verdict([small], "write_time_flat").outcome == "not_measured"


# --- crossover
def full(folder: Path, interval: int) -> Accounted:
    """A full-design result at one interval: an arm whose write takes 0.75 s, steps of 0.1 s."""
    specs = {"none": ArmSpec(), "nvrx_async": ArmSpec(0.05, 0.75)}
    base = Scenario(kind="full", saves=6, interval=interval)
    for index in range(6):
        arm = list(specs)[index % 2]
        each = replace(base, arms={arm: specs[arm]}, index=index, block=index // 2)
        write_launch(folder / str(interval) / str(index), each)
    return Accounted.of(run_json(replace(base, arms=specs), train=TRAIN), read_launches(folder / str(interval)))


def test_the_crossover_comes_from_results_at_several_intervals(tmp_path: Path) -> None:
    found = verdict([full(tmp_path, 6), full(tmp_path, 20), full(tmp_path, 9)], "crossover")
    assert (found.outcome, found.measured) == ("holds", "between 0.65 and 0.95 s")


def test_one_interval_or_quick_results_measure_no_crossover(tmp_path: Path) -> None:
    for results in ([full(tmp_path, 20)], [sized(tmp_path, 1), sized(tmp_path, 2)]):
        found = verdict(results, "crossover")
        assert found.outcome == "not_measured"
        assert "design=sweep" in found.text
