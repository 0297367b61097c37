"""What a plan promises before anything ran: arithmetic of named assumptions, or unknown."""

from __future__ import annotations

import pytest

from bench.config import Checkpoint, Design, Model, Run, Storage, Train
from bench.design import plan
from bench.predict import CPU_RANK_FLOPS, CPU_STORE_BYTES_PER_S, STARTUP_S, predict

MODEL = Model(vocab_size=256, dim=128, layers=2, heads=4, kv_heads=4, ffn_dim=256)


def made(**changes) -> Run:
    return Run(**({"model": MODEL, "launches": 1, "cycles": 3} | changes))


def predicted(config: Run, device: str = "cpu"):
    return predict(config, plan(config), device)


def test_steps_and_saves_follow_from_flops_and_bytes():
    config = made(checkpoint=Checkpoint(arms=["none", "sync_local"], verify_content=False))
    found, step_s = predicted(config), 6 * MODEL.parameters * 2 * 64 / CPU_RANK_FLOPS
    save_s = MODEL.parameters * 12 / CPU_STORE_BYTES_PER_S
    assert found.checkpoint_bytes == MODEL.parameters * 12
    assert found.save_s == pytest.approx(save_s)
    pilot_steps, quick_steps = 4 * (3 + 4 + 1), 2 * (1 + 1 + 1) * 2 + 2 * (4 + 4 + 1)
    around_s = STARTUP_S["cpu"] + 2 * save_s + 5
    expected_s = 2 * around_s + (pilot_steps + quick_steps) * step_s + (2 + 3) * save_s
    assert found.seconds == pytest.approx(expected_s)


def test_gpu_hours_count_every_rank_and_money_follows_from_the_price():
    config = made(num_nodes=2, ranks_per_node=4, price_per_gpu_hour=2.5)
    found = predicted(config)
    assert found.gpu_hours == pytest.approx(found.seconds * 8 / 3600)
    assert found.money == pytest.approx(found.gpu_hours * 2.5)
    assert predicted(made()).money is None


def test_a_provisioned_bandwidth_replaces_the_assumed_one_and_is_named():
    found = predicted(made(storage=Storage(provisioned_bytes_per_s=2e9)))
    assert found.save_s == pytest.approx(found.checkpoint_bytes / 2e9)
    assert "a store of 2.0 GB/s (as provisioned)" in found.assumptions


def test_a_limit_that_the_run_makes_counts_where_it_is_lower_than_the_store_s_own_speed():
    found = predicted(made(storage=Storage(throttle_bytes_per_s=60 << 20)))
    assert found.save_s == pytest.approx(found.checkpoint_bytes / (60 << 20))
    assert "a store of 62.9 MB/s (throttled)" in found.assumptions
    slower = predicted(made(storage=Storage(throttle_bytes_per_s=60 << 20, provisioned_bytes_per_s=1e7)))
    assert slower.save_s == pytest.approx(found.checkpoint_bytes / 1e7)


def test_an_assumed_store_grows_with_the_nodes_of_a_gpu_cluster():
    one, eight = (predicted(made(num_nodes=n), "cuda").save_s for n in (1, 8))
    assert one == pytest.approx(8 * eight)


def test_a_paced_step_is_taken_at_its_word():
    found = predicted(made(train=Train(compute="paced", step_s=0.5)))
    assert "a paced step of 0.5 s" in found.assumptions
    steps = 6 * (4 + 4 + 1) + 2 * 3 * (1 + 4 + 1) + 3 * (4 + 4 + 1)
    assert found.seconds > steps * 0.5


def test_an_automatic_interval_of_the_full_design_is_taken_as_some_and_costs_its_steps():
    automatic = predicted(made(design=Design(name="full"), train=Train(steps=83)))
    given = predicted(made(design=Design(name="full"), train=Train(steps=83), checkpoint=Checkpoint(interval=8)))
    assert "checkpoint.interval=auto taken as 8 steps" in automatic.assumptions
    assert automatic.seconds == pytest.approx(given.seconds)


def test_nothing_is_promised_for_a_model_whose_size_is_unknown():
    found = predicted(made(model=Model(target="package.Class")))
    assert (found.checkpoint_bytes, found.save_s, found.seconds, found.gpu_hours, found.money) == (None,) * 5
    assert found.assumptions


def test_every_assumption_is_named():
    texts = " | ".join(predicted(made(), "cuda").assumptions)
    for part in ("a step of", "H100", "a store of", "asynchronous arms as slow as synchronous", "60 s from launch"):
        assert part in texts
