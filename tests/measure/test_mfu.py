"""Utilisation by hand-checked arithmetic; unknown is None."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from bench.config import Model, Run, Train
from bench.measure.mfu import flops_per_token, peak_flops, throughput

H100 = "NVIDIA H100 80GB HBM3"
MODEL = Model(vocab_size=100, dim=8, layers=2, heads=4, kv_heads=2, ffn_dim=16)
RUN = Run(model=MODEL, train=Train(batch_size=4, seq_len=32), num_nodes=2, ranks_per_node=8, device="cuda")


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        (H100, 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA H200", 989),
        ("NVIDIA H200 NVL", 835),
        ("NVIDIA GH200 480GB", 989),
        ("NVIDIA B200", 2250),
        ("NVIDIA GB200", 2500),
        ("NVIDIA H20", 148),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA A10G", 70),
        ("NVIDIA A10", 125),
        ("NVIDIA L40S", 362),
        ("NVIDIA L4", 121),
    ],
)
def test_peaks_are_dense_and_go_by_whole_words_of_the_name(name, teraflops):
    assert peak_flops(name) == pytest.approx(teraflops * 1e12)


@pytest.mark.parametrize("name", ["Tesla V100-SXM2-32GB", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "NVIDIA A1000", ""])
def test_unknown_gpus_and_slices_of_known_ones_have_no_peak(name):
    assert peak_flops(name) is None


def test_flops_of_a_token_by_hand():
    # A block: q and out 2 x 64, k and v 2 x 8 x 4, feed-forward 3 x 8 x 16, two norms of 8; the head 800, the norm 8.
    parameters = 2 * (128 + 64 + 384 + 16) + 800 + 8
    assert flops_per_token(asdict(MODEL), 32) == 6 * parameters + 12 * 2 * 8 * 32
    assert flops_per_token(asdict(replace(MODEL, target="a.B")), 32) is None


def test_a_table_that_the_head_shares_multiplies_once():
    assert flops_per_token(asdict(replace(MODEL, tie_embeddings=True)), 32) == flops_per_token(asdict(MODEL), 32)


def test_throughput_of_the_job_and_of_a_rank_and_the_share_of_the_peak():
    found = throughput(asdict(RUN), [H100] * 16, step_s=0.5)
    assert found.tokens_per_s_per_rank == 4 * 32 / 0.5
    assert found.tokens_per_s == 16 * found.tokens_per_s_per_rank
    assert found.mfu == pytest.approx(flops_per_token(asdict(MODEL), 32) * 256 / 989e12)


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({}, []),
        ({}, [H100, "NVIDIA H200"]),
        ({}, ["Some Card"]),
        ({"device": "cpu"}, [H100]),
        ({"train": Train(batch_size=4, seq_len=32, compute_dtype="float32")}, [H100]),
        ({"model": replace(MODEL, target="a.B")}, [H100]),
    ],
)
def test_utilisation_is_none_where_its_peak_or_its_work_is_not_known(changes, gpus):
    found = throughput(asdict(replace(RUN, **changes)), gpus, step_s=0.5)
    assert found.mfu is None
    assert found.tokens_per_s > 0


def test_paced_steps_and_unmeasured_ones_have_no_throughput():
    paced = replace(RUN, train=Train(compute="paced", step_s=0.5))
    assert throughput(asdict(paced), [H100], 0.5) is None
    assert throughput(asdict(RUN), [H100], None) is None
