"""Which launchers there are, and what each refuses, with the ways on."""

from __future__ import annotations

import os

import pytest

from bench import launch
from bench.config import Recovery, Run
from bench.errors import BadInput
from bench.launch.emulated import RANKS_PER_CPU
from bench.launch.local import Local

WAYS_ON = ("cluster=slurm", "cluster=kubernetes", "cluster=emulated", "dry_run=true")


@pytest.mark.parametrize("name", launch.LAUNCHERS)
def test_every_launcher_can_be_made_and_knows_its_name(name):
    assert launch.create(name).name == name


def test_an_unknown_launcher_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match=r"cluster: unknown launcher 'slurn'; did you mean slurm\?"):
        launch.create("slurn")


def test_more_nodes_than_this_machine_is_are_refused_with_the_ways_on():
    with pytest.raises(BadInput, match=r"num_nodes: .* asks for 8 nodes") as caught:
        Local().check(Run(num_nodes=8), gpus=8)
    assert all(way in str(caught.value) for way in WAYS_ON)


def test_more_gpus_than_this_machine_has_are_refused_with_the_ways_on():
    with pytest.raises(BadInput, match=r"ranks_per_node: .* asks for 8 GPUs and this machine has 1") as caught:
        Local().check(Run(ranks_per_node=8, device="cuda"), gpus=1)
    assert all(way in str(caught.value) for way in WAYS_ON)


def test_spare_ranks_need_gpus_too():
    config = Run(ranks_per_node=8, device="cuda", recovery=Recovery(layer="in_process", reserve=1))
    with pytest.raises(BadInput, match=r"asks for 9 GPUs \(recovery\.reserve=1 among them\) and this machine has 8"):
        Local().check(config, gpus=8)
    assert Local().check(config, gpus=9) is None


def test_what_fits_is_not_refused():
    assert Local().check(Run(ranks_per_node=8, device="cuda"), gpus=8) is None
    assert Local().check(Run(ranks_per_node=64, device="cpu"), gpus=0) is None


def test_a_rehearsal_has_room_for_some_ranks_per_cpu_and_no_more():
    most = RANKS_PER_CPU * len(os.sched_getaffinity(0))
    emulated = launch.create("emulated")
    assert emulated.check(Run(num_nodes=most, ranks_per_node=1), gpus=0) is None
    with pytest.raises(BadInput, match=r"num_nodes: .* too many to rehearse .* ranks_per_node=1 or fewer num_nodes"):
        emulated.check(Run(num_nodes=most + 1, ranks_per_node=1), gpus=0)
