from __future__ import annotations

import os

import pytest
import torch

from bench.checkpoint import nvrx, nvrx_manager
from bench.checkpoint.base import CheckpointError
from bench.checkpoint.nvrx_manager import LocalTree, Manager, Place, read_local, session, world_sizes
from bench.checkpoint.together import Later
from bench.checkpoint.trees import tree_digest

TREE = {"p": torch.arange(5.0), "pair": (torch.ones(2), "x"), "list": [torch.zeros(1)], "step": 3}


@pytest.fixture
def place(tmp_path):
    made = Place(str(tmp_path), session(2), 1, fsync=True)
    made.folder.mkdir(parents=True)
    return made


@pytest.fixture
def manager(place):
    return Manager(place, keep=2, events=Later(), arm="nvrx_local")


def save(manager, step):
    with nvrx.cuda_shim("cpu"):
        request = manager.save(LocalTree(dict(TREE), None), step, is_async=True)
    manager._save_fn(*request.async_fn_args)


def test_a_tree_on_the_cpu_is_copied_at_the_call_in_every_kind_of_container():
    live = {"p": torch.zeros(3), "pair": (torch.zeros(3),)}
    tree = LocalTree(live, None)
    tree.copy_tensors_to_cpu()
    for tensor in (live["p"], live["pair"][0]):
        tensor.fill_(1)
    assert tree.state_dict["p"].sum() == tree.state_dict["pair"][0].sum() == 0


def test_a_shard_is_written_and_read_without_the_manager(manager, place):
    save(manager, 3)
    assert tree_digest(read_local(place.file(3))) == tree_digest(TREE)
    assert [step for step, _ in place.present()] == [3]


def test_it_is_synced_before_and_after_it_gets_its_name_if_so_configured(manager, place, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    save(manager, 3)
    assert [os.path.basename(path) for path in synced] == ["iter_0000003_1_local.dirty.pt", "1"]
    manager.place = place._replace(fsync=False)
    save(manager, 4)
    assert len(synced) == 2


def test_the_newest_are_kept_and_what_is_freed_is_on_record(manager, place):
    for step in (1, 2, 3):
        save(manager, step)
    size = place.file(1).stat().st_size
    manager._cleanup(3)
    assert [step for step, _ in place.present()] == [2, 3]
    ((name, _, about),) = manager.events._noted
    assert (name, about["bytes"]) == ("deleted", size)


def test_a_folder_that_vanished_is_a_failure_and_stays_away(manager, place):
    place.folder.rmdir()
    with pytest.raises(FileNotFoundError):
        save(manager, 3)
    assert manager._my_ckpt_ids() == []
    assert not place.folder.exists()


def test_a_write_that_fails_leaves_no_unfinished_file(manager, place, monkeypatch):
    def full(tree, file):
        file.write(b"x" * 10)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nvrx_manager.torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        save(manager, 3)
    assert list(place.folder.iterdir()) == []


def test_the_world_size_is_told_by_the_folder(manager, place, tmp_path):
    save(manager, 3)
    assert world_sizes(tmp_path, 3) == [2]
    assert world_sizes(tmp_path, 4) == []


def test_a_damaged_shard_is_an_error_of_the_checkpoint(manager, place):
    save(manager, 3)
    place.file(3).write_bytes(place.file(3).read_bytes()[:200])
    with pytest.raises(CheckpointError, match="not readable"):
        read_local(place.file(3))
