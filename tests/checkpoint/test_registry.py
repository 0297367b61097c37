"""Names, refusals, and that choosing a strategy needs no torch (bench/checkpoint/__init__.py)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import import_module, metadata

import pytest

from bench import checkpoint
from bench.checkpoint.base import Strategy
from bench.config import Checkpoint, Design, Run, Storage
from bench.errors import BadInput
from bench.schema import strategy_of, syncs


def strategy_class(name):
    module, attribute = checkpoint.STRATEGIES[name].split(":")
    return getattr(import_module(module), attribute)


@pytest.mark.parametrize("name", checkpoint.STRATEGIES)
def test_every_name_leads_to_a_strategy_that_bears_it(name):
    made = strategy_class(name)
    assert issubclass(made, Strategy)
    assert made.name == name


def test_an_unknown_name_is_refused_with_a_near_one():
    with pytest.raises(BadInput, match="did you mean sync_local"):
        checkpoint.create("sync_locl", None)
    assert "did you mean nvrx_async" in (checkpoint.refusal("nvrx_asyn", Run()) or "")


def test_the_default_arms_are_accepted():
    config = Run()
    assert [checkpoint.refusal(name, config) for name in config.checkpoint.arms] == [None] * len(config.checkpoint.arms)


def test_the_library_s_own_save_is_refused_beside_arms_that_sync():
    config = Run(checkpoint=Checkpoint(api="torch_async"))
    assert "storage.fsync=false" in (checkpoint.refusal("nvrx_async", config) or "")
    assert checkpoint.refusal("nvrx_async", replace(config, storage=Storage(fsync=False))) is None


def test_what_always_syncs_is_refused_beside_arms_that_do_not():
    unsynced = Run(storage=Storage(fsync=False))
    always = {name for name in checkpoint.STRATEGIES if strategy_class(name).always_fsyncs}
    assert always == {"nvrx_dcp"}
    for name in always:
        assert "storage.fsync: " in (checkpoint.refusal(name, unsynced) or "")
        assert checkpoint.refusal(name, Run()) is None


def local(**given):
    device, nodes, replication, directory = (
        given.get(name, default) for name, default in (("device", "cuda"), ("nodes", 4), ("copies", 0), ("dir", None))
    )
    config = Run(num_nodes=nodes, device=device, storage=Storage(dir=directory))
    return checkpoint.refusal("nvrx_local", replace(config, checkpoint=Checkpoint(replication=replication)))


def test_replication_needs_cuda_and_nodes_for_all_copies():
    assert local() is None
    assert local(copies=2) is None
    assert "between CUDA devices only" in (local(copies=2, device="cpu") or "")
    assert "must divide num_nodes=4" in (local(copies=3) or "")
    for wrong in (1, -1):
        with pytest.raises(BadInput, match=r"checkpoint\.replication: must be 0"):
            Checkpoint(replication=wrong)


def test_a_store_that_all_nodes_share_is_not_taken_for_a_local_one():
    assert "nvrx_local writes to each node's own storage" in (local(dir="/shared") or "")
    assert local(dir="/any", nodes=1) is None


@pytest.mark.parametrize(
    ("installed", "refused"), [("2.8.0a0+x", True), ("2.9.0", False), ("2.13.0+cpu", False), (None, False)]
)
def test_torch_s_asynchronous_saves_need_a_torch_that_has_their_stager(monkeypatch, installed, refused):
    def version(package):
        if installed is None:
            raise metadata.PackageNotFoundError(package)
        return installed

    monkeypatch.setattr(checkpoint.metadata, "version", version)
    for name in ("dcp_async_thread", "dcp_async_process"):
        assert ("torch>=2.9" in (checkpoint.refusal(name, Run()) or "")) is refused


def test_the_synthetic_strategy_serves_calibration_only_and_needs_its_durations():
    durations = Checkpoint(synthetic={"block_s": 0.1, "durable_s": 0.2})
    assert "design=calibrate" in (checkpoint.refusal("synthetic", Run(checkpoint=durations)) or "")
    calibrate = Run(checkpoint=durations, design=Design(name="calibrate"))
    assert checkpoint.refusal("synthetic", calibrate) is None
    for wrong in ({"block_s": 0.1}, {"block_s": 0.1, "durable_s": 0.2, "blocks": 3}):
        refused = checkpoint.refusal("synthetic", replace(calibrate, checkpoint=Checkpoint(synthetic=wrong)))
        assert "takes block_s, durable_s" in (refused or "")


def test_names_and_storage_checks_need_no_torch():
    code = (
        "import sys, bench.checkpoint.storage as s; from bench.checkpoint import STRATEGIES, refusal; "
        "from bench.config import Run; refusal('nvrx_async', Run()); print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


# --- an arm that syncs in a run that does not


def test_a_run_without_fsync_measures_one_pair_with_it() -> None:
    arms = ["none", "sync_local", "sync_dcp", "nvrx_async"]
    assert checkpoint.with_synced_pair(arms) == [*arms, "sync_local+fsync", "nvrx_async+fsync"]
    twice = checkpoint.with_synced_pair(checkpoint.with_synced_pair(arms))
    assert twice == checkpoint.with_synced_pair(arms)


@pytest.mark.parametrize(
    ("arms", "added"),
    [
        (["none", "sync_dcp", "dcp_async_thread"], ["sync_dcp+fsync", "dcp_async_thread+fsync"]),
        (["none", "sync_full"], ["sync_full+fsync"]),
        (["sync_local", "sync_dcp", "sync_dcp+fsync", "nvrx_async"], ["nvrx_async+fsync"]),
        (["none"], []),
    ],
)
def test_the_pair_that_syncs_is_chosen_from_the_arms_that_are_there(arms, added) -> None:
    assert checkpoint.with_synced_pair(arms) == [*arms, *added]


def test_the_kinds_of_which_a_pair_is_chosen_hold_every_strategy_that_may_leave_fsync_out() -> None:
    kinds = {True: checkpoint.ASYNCHRONOUS, False: checkpoint.SYNCHRONOUS}
    for name in set(checkpoint.STRATEGIES) - {"none", "synthetic", "nvrx_dcp"}:
        assert name in kinds[strategy_class(name).background]
    assert len(checkpoint.STRATEGIES) == len(kinds[True]) + len(kinds[False]) + 3


def test_a_synced_arm_has_its_strategy_and_is_judged_as_if_the_run_synced() -> None:
    unsynced = Run(storage=Storage(fsync=False), checkpoint=Checkpoint(api="torch_async"))
    assert strategy_of("nvrx_async+fsync") == "nvrx_async"
    assert [syncs(arm, unsynced.storage.fsync) for arm in ("nvrx_async", "nvrx_async+fsync")] == [
        False,
        True,
    ]
    assert syncs("nvrx_async", Run().storage.fsync)
    assert checkpoint.refusal("nvrx_async+fsync", unsynced) is None
    assert checkpoint.refusal("nvrx_dcp", unsynced) is not None
    assert checkpoint.refusal("nvrx_dcp+fsync", unsynced) is None
    assert "unknown strategy 'nothing'" in str(checkpoint.refusal("nothing+fsync", unsynced))
