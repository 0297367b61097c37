"""Where checkpoints and events go: what a place is, what it holds, how fast it takes plain writes."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from bench.config import Model, Storage
from bench.doctor import store
from bench.doctor.mounts import Mount
from bench.report import words
from tests.doctor.cases import SMALL, case, run

Usage = namedtuple("Usage", "total used free")
SIZE = SMALL.parameters * 12
LUSTRE, LOCAL, TMPFS, OVERLAY = (Mount("/m", "/", kind) for kind in ("lustre", "xfs", "tmpfs", "overlay"))
POD = Mount("/m", "/pods/1/kubernetes.io~empty-dir/x", "ext4")


@pytest.mark.parametrize(
    ("mount", "num_nodes", "cluster", "level"),
    [
        (LUSTRE, 8, "slurm", "ok"),
        (LOCAL, 8, "slurm", "fail"),
        (LOCAL, 1, "local", "ok"),
        (LOCAL, 8, "emulated", "ok"),
        (TMPFS, 1, "local", "warn"),
        (TMPFS, 2, "slurm", "fail"),
        (OVERLAY, 1, "local", "warn"),
        (POD, 2, "kubernetes", "fail"),
        (POD, 1, "kubernetes", "warn"),
    ],
)
def test_a_store_must_be_seen_by_all_nodes_and_be_storage(mount, num_nodes, cluster, level):
    check = store.store(case(run(num_nodes=num_nodes, cluster=cluster)), mount)
    assert check.level == level
    assert bool(check.remedy) == (level != "ok")


def test_local_checkpoints_need_no_shared_store():
    assert store.store(case(run(arms=("none", "nvrx_local"), num_nodes=2, cluster="slurm")), LOCAL).level == "ok"


@pytest.mark.parametrize(
    ("mount", "local", "lasting"),
    [
        (LOCAL, "ok", "ok"),
        (LUSTRE, "warn", "ok"),
        (TMPFS, "warn", "warn"),
        (OVERLAY, "ok", "warn"),
        (POD, "ok", "warn"),
    ],
)
def test_events_belong_on_a_disk_of_the_node_that_outlives_the_container(mount, local, lasting):
    assert store.local(Path("/m/x"), mount).level == local
    assert store.lasting(mount).level == lasting


@pytest.mark.parametrize(
    ("mount", "num_nodes", "level"), [(LUSTRE, 8, "ok"), (LOCAL, 8, "fail"), (LOCAL, 1, "ok"), (POD, 1, "warn")]
)
def test_results_must_be_seen_by_the_runners_of_all_nodes(mount, num_nodes, level):
    assert store.results(case(run(num_nodes=num_nodes, cluster="slurm")), mount).level == level


def test_a_file_system_of_an_unknown_kind_is_not_taken_for_lasting():
    check = store.lasting(Mount("/m", "/", "strangefs"))
    assert check.level == "warn"
    assert "strangefs" in check.found


def test_one_file_system_for_results_and_checkpoints_is_a_warning(tmp_path):
    one = case(checkpoint_dir=tmp_path / "a", results_dir=tmp_path / "b")
    assert store.apart(one).level == "warn"
    assert store.apart(case(checkpoint_dir=tmp_path, results_dir=Path("/proc"))).level == "ok"


def test_a_place_that_cannot_be_written_to_fails_and_nothing_is_left_in_one_that_can(tmp_path):
    assert store.writing(Path("/proc/x"), "work_dir").level == "fail"
    assert store.writing(tmp_path / "not" / "yet", "work_dir") is None
    assert list(tmp_path.iterdir()) == []


def test_space_is_held_against_the_checkpoints_that_stand_at_once(tmp_path, monkeypatch):
    there = case(run(arms=("none", "sync_local", "nvrx_async")), checkpoint_dir=tmp_path)
    needed = SIZE * 3 * 2
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, needed))
    assert store.space(there).level == "ok"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, needed - 1))
    check = store.space(there)
    assert check.level == "fail"
    assert "2 arm(s) x (checkpoint.keep=2 + 1)" in check.found
    assert check.remedy.startswith("free space")
    assert store.space(case(run(model=Model(target="a.B")), checkpoint_dir=tmp_path)).level == "skip"


LFS = "     /fsx  1048576  0  2097152       -      10       0       0       -\n"
NFS = """Disk quotas for user u (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
server:/home  1000* 900 1200 6days 10 0 0
"""


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (LFS, 1 << 30),
        (NFS, -100 * 1024),
        (LFS.replace("2097152", "0"), None),
        ("Disk quotas for user u (uid 0): none\n", None),
        ("", None),
    ],
)
def test_a_quota_is_what_is_left_to_the_tighter_limit(answer, left):
    assert store.quota_left(answer) == left


def test_a_quota_too_small_fails_and_an_absent_tool_is_said(tmp_path, monkeypatch):
    tool = tmp_path / "quota"
    tool.write_text(f"#!/bin/sh\necho '/dev/x {SIZE // 1024} 0 {SIZE // 1024 + 10} - 1 0 0'\n")
    tool.chmod(0o755)
    there = case(checkpoint_dir=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert store.quota(there, LOCAL).level == "fail"
    tool.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    check = store.quota(there, LOCAL)
    assert (check.level, check.found.startswith("quota is not installed")) == ("skip", True)


def test_the_probe_writes_as_many_files_as_ranks_and_removes_them(tmp_path):
    check = store.probe(case(), tmp_path)
    assert check.level == "ok"
    assert "(2 writers of " in check.found
    assert "fsync on" in check.found
    assert f"a save of {words.size(SIZE)} takes" in check.found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("speed", "num_nodes", "level", "word"),
    [
        (1e9, 1, "ok", ""),
        (2e9, 1, "warn", "bursts"),
        (0.4e9, 1, "warn", "40%"),
        (0.4e9, 2, "ok", ""),
        (1e9, 2, "warn", ""),
    ],
)
def test_a_speed_unlike_the_provisioned_one_is_a_warning(speed, num_nodes, level, word):
    config = run(num_nodes=num_nodes, storage=Storage(provisioned_bytes_per_s=1e9))
    check = store._against_provisioned(case(config), speed, "x")
    assert check.level == level
    assert word in check.found


def test_a_run_that_writes_nothing_is_not_held_against_space(tmp_path):
    there = case(run(arms=("none",)), checkpoint_dir=tmp_path, results_dir=tmp_path)
    names = [check.name for check in store.examine(there)]
    assert names == ["checkpoint store", "results", "separation", "space"]
