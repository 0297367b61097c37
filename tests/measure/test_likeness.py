from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.measure.accounted import Accounted
from bench.measure.likeness import likeness, listed_below
from tests.measure.results import BASE, result

TRAIN = {"compute": "real", "step_s": None, "batch_size": 2, "seq_len": 64, "sharding": "fsdp2", "steps": 40}
MODEL = {"name": "tiny", "dim": 256, "layers": 4}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Accounted:
    return result(tmp_path_factory.mktemp("base"), launches=1, train=TRAIN, model=MODEL)


def changed(base: Accounted, **config: Any) -> Accounted:
    return replace(base, run=base.run | {"config": base.config | config})


WORK: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"model": MODEL | {"dim": 512}}, "model.dim (256 against 512)"),
    "batch": ({"train": TRAIN | {"batch_size": 4}}, "train.batch_size (2 against 4)"),
    "sequence": ({"train": TRAIN | {"seq_len": 128}}, "train.seq_len (64 against 128)"),
    "sharding": ({"train": TRAIN | {"sharding": "fsdp1_local"}}, "train.sharding (fsdp2 against fsdp1_local)"),
    "paced": ({"train": TRAIN | {"compute": "paced"}}, "train.compute (real against paced)"),
    "ranks": ({"ranks_per_node": 4}, "ranks_per_node (2 against 4)"),
    "nodes": ({"num_nodes": 2}, "num_nodes (1 against 2)"),
    "fsync": ({"storage": {"fsync": False, "provisioned_bytes_per_s": None}}, "storage.fsync (True against False)"),
}


@pytest.mark.parametrize("case", WORK)
def test_what_makes_other_work_is_named_with_both_values(case: str, base: Accounted) -> None:
    config, text = WORK[case]
    assert [str(difference) for difference in likeness(base, changed(base, **config)).work] == [text]


def test_device_and_rehearsal_make_other_work(base: Accounted) -> None:
    cuda = replace(base, summary=replace(base.summary, device="cuda", rehearsal=True))
    fields = [difference.field for difference in likeness(base, cuda).work]
    assert fields == ["cluster", "device"]


def test_bytes_are_those_that_were_written_whatever_the_configuration_says(base: Accounted, tmp_path: Path) -> None:
    specs = {name: replace(spec, shard_bytes=1_100_000) for name, spec in BASE.arms.items()}
    larger = result(tmp_path, replace(BASE, arms=specs), launches=1, train=TRAIN, model=MODEL)
    found = [str(difference) for difference in likeness(base, larger).work]
    assert "written bytes of sync_local (2000000 against 2200000)" in found


def test_settings_and_environment_are_told_apart_from_work(base: Accounted) -> None:
    other = changed(base, train=TRAIN | {"steps": 80}, cycles=9, job={"step_s": 1.0}, results_dir="elsewhere")
    environment = base.run["environment"] | {"machine": "n", "versions": {"torch": "3"}}
    found = likeness(base, replace(other, run=other.run | {"environment": environment}))
    assert found.work == []
    assert [difference.field for difference in found.settings] == ["train.steps"]  # base does not know `cycles`
    assert {str(d) for d in found.environment} == {"machine (m against n)", "versions.torch (2 against 3)"}


def test_a_result_is_like_itself(base: Accounted) -> None:
    found = likeness(base, base)
    assert (found.work, found.settings, found.environment) == ([], [], [])


def test_a_key_ending_in_a_dot_stands_for_all_below_it() -> None:
    assert listed_below("model.dim", ("model.",))
    assert not listed_below("modelling.dim", ("model.",))
    assert not listed_below("state_bytes", ("state",))
