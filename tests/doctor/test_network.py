"""Interfaces and reductions: what the user's variables mean, and what a meeting's words are worth."""

from __future__ import annotations

import pytest

from bench.doctor import network
from tests.doctor.cases import TORCH, VERSIONS, case, gpu, run

THERE = ["lo", "eth0", "eth1", "ens5", "docker0"]
GOOD = {"correct": True, "latency_s": 5e-5, "bytes_per_s": 2e9, "ranks": 2}


@pytest.mark.parametrize(
    ("value", "level"), [("eth0", "ok"), ("eth0,ens5", "ok"), ("^lo,docker0", "fail"), ("eth", "fail")]
)
def test_gloo_takes_concrete_names_only(value, level):
    (check,) = network.names({"GLOO_SOCKET_IFNAME": value}, THERE)
    assert check.level == level


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        ("eth", ["eth0", "eth1"]),
        ("=eth0", ["eth0"]),
        ("=eth", []),
        ("^lo,docker", ["eth0", "eth1", "ens5"]),
        ("^=docker0,lo", ["eth0", "eth1", "ens5"]),
        ("ib", []),
    ],
)
def test_nccl_takes_prefixes_exclusions_and_exact_names(value, chosen):
    assert network.chosen_by_nccl(value, THERE) == chosen
    (check,) = network.names({"NCCL_SOCKET_IFNAME": value}, THERE)
    assert check.level == ("ok" if chosen else "fail")


def test_what_the_user_left_open_is_no_finding():
    assert list(network.names({}, THERE)) == []


def test_the_derived_interface_is_named_with_its_reason():
    said = {"interface": [{"name": "ens5", "source": "route"}, {"name": "ens5", "source": "route"}]}
    assert network.interface(case(said=said)).found == "gloo on this machine: ens5 (by the route to node 0)"
    lost = network.interface(case(said={}, error="no answer within 150 s"))
    assert (lost.level, "no answer within 150 s" in lost.found) == ("fail", True)


def test_a_reduction_is_as_slow_as_its_slowest_rank():
    check = network.reduction(case(said={"gloo": [GOOD, GOOD | {"latency_s": 1e-3}]}), "gloo")
    assert check.level == "ok"
    assert check.found == "2 processes of this machine: 1000 us a number, 2.00 GB/s"


@pytest.mark.parametrize(
    ("said", "error", "found"),
    [
        ({"gloo": [GOOD, {"error": "connection refused", "ranks": 2}]}, None, "connection refused"),
        ({}, "no answer within 150 s", "no answer: no answer within 150 s"),
        ({"gloo": [GOOD | {"correct": False}]}, None, "the sum is wrong"),
    ],
)
def test_a_reduction_fails_with_its_reason(said, error, found):
    check = network.reduction(case(said=said, error=error), "gloo")
    assert (check.level, check.found) == ("fail", found)


def test_nccl_is_skipped_without_gpus_and_alone_it_proves_little():
    assert network.reduction(case(run(device="cuda")), "nccl").level == "skip"
    assert network.reduction(case(), "nccl").level == "skip"
    one = case(run(device="cuda"), gpus=[gpu()], said={"nccl": [GOOD | {"ranks": 1}]})
    assert "nothing was sent" in network.reduction(one, "nccl").found


def test_clocks_are_compared_between_nodes_only():
    offset = {"offset_s": 5.0, "uncertainty_s": 40e-6}
    assert network.clock(case(said={"clock": [offset]})).level == "skip"
    two = run(cluster="slurm", num_nodes=2)
    assert network.clock(case(two, said={"clock": [offset]}, across=True)).level == "ok"
    assert network.clock(case(two, said={"clock": [offset | {"uncertainty_s": 0.01}]}, across=True)).level == "warn"
    assert network.clock(case(two, said={}, error="refused", across=True)).level == "fail"
    assert "inside an allocation" in network.clock(case(two, said={})).found


def test_without_torch_nobody_meets():
    missing, broken = case(versions=VERSIONS | {"torch": None}, said={"torch": [TORCH]}), case(said={}, error="x")
    for found in (missing, broken):
        assert list(network.examine(found))[-1].found == "torch does not run here"
