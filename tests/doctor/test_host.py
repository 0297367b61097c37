"""The host's limits against the run's needs; memory cgroups by attempt, on made hierarchies."""

from __future__ import annotations

import resource

import pytest

from bench.config import Checkpoint, Design, Model
from bench.doctor import host
from bench.doctor.host import RANK_BYTES, WRITER_BYTES, Staging
from tests.doctor.cases import SMALL, case, run

SIZE = SMALL.parameters * 12


@pytest.mark.parametrize(
    ("ranks", "soft", "hard", "level", "remedy"),
    [
        (64, 4096, 4096, "ok", ""),
        (64, 1024, 1024, "ok", ""),
        (512, 1024, 1 << 20, "warn", "ulimit -n 4608"),
        (512, 1024, 1024, "warn", "raise the hard limit of 1024"),
        (512, resource.RLIM_INFINITY, resource.RLIM_INFINITY, "ok", ""),
    ],
)
def test_file_descriptors_are_held_against_the_world_size(ranks, soft, hard, level, remedy):
    check = host.descriptors(ranks, soft, hard)
    assert check.level == level
    assert check.remedy.startswith(remedy)


def test_a_narrow_range_of_ports_is_a_warning():
    assert host.ports("32768\t60999\n").level == "ok"
    assert host.ports("60000 60500").level == "warn"


def test_this_machine_can_listen():
    assert host.listening().level == "ok"


def staging(*arms: str, design: str = "quick", **changes) -> Staging:
    config = run(arms=("none", *arms), design=Design(name=design), **changes)
    return Staging.of(case(config))


def test_copies_of_all_arms_of_a_quick_launch_add_up_and_those_of_a_full_one_do_not():
    assert staging("sync_local").shm_bytes == 0
    assert staging("nvrx_async", "nvrx_local").shm_bytes == 2 * SIZE
    assert staging("nvrx_async", "nvrx_local", design="full").shm_bytes == SIZE


def test_the_writer_of_nvrx_dcp_copies_into_its_own_memory_on_gpus():
    assert staging("nvrx_dcp").shm_bytes == SIZE
    assert staging("nvrx_dcp", device="cuda").shm_bytes == 0


def test_the_gathered_state_of_sync_full_is_whole_on_one_node_and_shards_are_not():
    whole, shard = (staging(arm, num_nodes=4, device="cuda") for arm in ("sync_full", "dcp_async_thread"))
    assert whole.host_bytes - shard.host_bytes == SIZE - SIZE // 4


def test_host_memory_counts_processes_writers_and_the_state_of_cpu_ranks():
    alone, with_writer = staging("sync_local"), staging("nvrx_async")
    assert alone.host_bytes == 2 * RANK_BYTES["cpu"] + int(SIZE * 4 / 3)
    assert with_writer.host_bytes == 2 * (RANK_BYTES["cpu"] + WRITER_BYTES) + int(SIZE * 4 / 3) + SIZE


def test_nothing_is_predicted_for_a_users_model():
    assert Staging.of(case(run(model=Model(target="package.Class")))) is None


def test_shm_and_memory_fail_below_what_is_staged_with_a_size_to_ask_for():
    needed = Staging(10 * 10**9, 30 * 10**9, "x")
    assert host.shm(needed, 12 * 10**9).level == "ok"
    small = host.shm(needed, 10 * 10**9)
    assert small.level == "fail"
    assert "size=11G" in small.remedy
    assert host.memory(needed, 40 * 10**9, None).level == "ok"
    limited = host.memory(needed, 40 * 10**9, 20 * 10**9)
    assert limited.level == "fail"
    assert limited.found.startswith("20.0 GB left by the cgroup, 33.0 GB predicted")


def test_the_room_of_a_memory_cgroup_is_its_limit_less_its_use(tmp_path):
    v2, v1 = tmp_path / "v2", tmp_path / "v1"
    (v2 / "job").mkdir(parents=True)
    (v2 / "job" / "memory.max").write_text("1000\n")
    (v2 / "job" / "memory.current").write_text("400\n")
    assert host.cgroup_room("0::/job\n", v2) == 600
    (v2 / "job" / "memory.max").write_text("max\n")
    assert host.cgroup_room("0::/job\n", v2) is None
    (v1 / "memory").mkdir(parents=True)
    (v1 / "memory" / "memory.limit_in_bytes").write_text("5000\n")
    (v1 / "memory" / "memory.usage_in_bytes").write_text("1000\n")
    of_the_host = "9:cpu:/x\n4:memory:/docker/abc\n0::/\n"
    assert host.cgroup_room(of_the_host, v1) == 4000
    (v1 / "memory" / "memory.limit_in_bytes").write_text(f"{(1 << 63) - 4096}\n")
    assert host.cgroup_room(of_the_host, v1) is None


def test_without_a_memory_controller_the_fault_is_unavailable_and_nothing_is_left(tmp_path):
    check = host.memory_cgroup(tmp_path, "0::/\n")
    assert (check.level, check.found) == ("warn", "no memory controller can be reached")
    (tmp_path / "memory").mkdir()
    assert host.memory_cgroup(tmp_path, "").level == "warn"  # a plain folder has no limit to set
    assert list((tmp_path / "memory").iterdir()) == []


def test_a_group_that_must_not_be_made_is_a_warning_with_the_systems_words(tmp_path):
    (tmp_path / "memory").mkdir()
    blocker = tmp_path / "memory" / f"bench-doctor-{host.os.getpid()}"
    blocker.mkdir()
    check = host.memory_cgroup(tmp_path, "")
    assert (check.level, check.found) == ("warn", "cannot be made: File exists")


def test_this_machines_cgroups_are_left_as_they_were():
    assert host.memory_cgroup().level in ("ok", "warn")
    assert host.memory_cgroup() == host.memory_cgroup()


def test_every_finding_of_the_group_has_a_name_and_words():
    checks = list(host.examine(case(run(arms=("none", "nvrx_async"), checkpoint=Checkpoint(arms=["nvrx_async"])))))
    assert [check.name for check in checks][:3] == ["file descriptors", "ports", "listening"]
    assert all(check.found for check in checks)
    assert {check.name for check in checks} >= {"/dev/shm", "memory", "memory cgroup"}
