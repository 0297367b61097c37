"""Names, refusals, and that choosing a strategy needs no torch (bench/checkpoint/__init__.py)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import import_module

import pytest

from bench import checkpoint
from bench.checkpoint.base import Strategy
from bench.config import Checkpoint, Design, Run, Storage
from bench.errors import BadInput


@pytest.mark.parametrize("name", checkpoint.STRATEGIES)
def test_every_name_leads_to_a_strategy_that_bears_it(name):
    module, attribute = checkpoint.STRATEGIES[name].split(":")
    made = getattr(import_module(module), attribute)
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
