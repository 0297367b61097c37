from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.checkpoint import storage
from bench.checkpoint.storage import Target, shard_name, step_dir
from bench.errors import BadInput
from bench.record import Recorder


def target(directory: Path, step: int = 12, rank: int = 0, **changes) -> Target:
    values = {"arm": "arm", "save": 0, "world_size": 2, "incarnation": "this", "fsync": True, "keep": 2} | changes
    return Target(step=step, directory=directory, rank=rank, **values)


def put(directory: Path, step: int, ranks: list[int], world_size: int = 2) -> None:
    """Shards under their final names."""
    step_dir(directory, step).mkdir(exist_ok=True)
    for rank in ranks:
        (step_dir(directory, step) / shard_name(rank, world_size)).write_bytes(b"12345")


def left(directory: Path) -> dict[int, list[str]]:
    return {int(folder.name[5:]): sorted(os.listdir(folder)) for folder in sorted(directory.iterdir())}


@pytest.fixture
def recorder(tmp_path_factory):
    made = Recorder(tmp_path_factory.mktemp("events"), role="worker", node=0, local_rank=0)
    yield made
    made.close()


def events(recorder: Recorder) -> list[dict]:
    return [json.loads(line) for line in recorder.path.read_text().splitlines()][1:]


# --- names and completeness
def test_names_say_step_rank_and_world_size(tmp_path):
    where = target(tmp_path, step=12, rank=3, world_size=16)
    assert where.final == tmp_path / "step-00000012" / "shard-00003-of-00016.pt"
    assert where.temporary.parent == where.final.parent
    assert "this" in where.temporary.name


def test_a_checkpoint_is_complete_when_every_shard_has_its_final_name(tmp_path):
    put(tmp_path, 1, [0])
    assert not storage.complete(step_dir(tmp_path, 1))
    target(tmp_path, 1, rank=1).temporary.write_bytes(b"half")
    assert not storage.complete(step_dir(tmp_path, 1))
    put(tmp_path, 1, [1])
    assert storage.complete(step_dir(tmp_path, 1))


def test_a_folder_that_is_not_there_is_not_complete(tmp_path):
    assert not storage.complete(step_dir(tmp_path, 1))
    assert storage.newest_complete(tmp_path / "nowhere") is None


def test_shards_of_two_world_sizes_do_not_make_up_one_checkpoint(tmp_path):
    put(tmp_path, 1, [0], world_size=2)
    put(tmp_path, 1, [1, 2], world_size=3)
    assert storage.world_sizes(step_dir(tmp_path, 1)) == []


def test_the_newest_complete_one_is_chosen_by_number(tmp_path):
    for step in (9, 100_000_000, 10):
        put(tmp_path, step, [0, 1])
    put(tmp_path, 200_000_000, [1])
    (tmp_path / "step-elsewhere").mkdir()
    assert storage.newest_complete(tmp_path) == 100_000_000


# --- writing
def test_a_shard_is_synced_before_it_is_renamed_and_its_folders_afterwards(tmp_path, recorder, monkeypatch):
    order = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("rename"), replace(a, b)))
    where = target(tmp_path)
    storage.write_shard(where, lambda file: file.write(b"data"), recorder)
    assert order == [where.temporary.name, "rename", where.final.parent.name, tmp_path.name]


def test_nothing_is_synced_where_that_is_not_asked_for(tmp_path, recorder, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: pytest.fail("synced"))
    where = target(tmp_path, fsync=False)
    storage.write_shard(where, lambda file: file.write(b"data"), recorder)
    assert where.final.read_bytes() == b"data"


def test_the_moment_of_durability_is_on_record(tmp_path, recorder):
    storage.write_shard(target(tmp_path, save=7), lambda file: file.write(b"data"), recorder)
    (durable,) = events(recorder)
    assert durable["name"] == "durable"
    assert (durable["arm"], durable["save"], durable["step"], durable["bytes"]) == ("arm", 7, 12, 4)
    assert durable["t_begin"] < durable["t"]


def test_a_failed_write_leaves_no_file_and_its_reason_on_record(tmp_path, recorder):
    def full(file):
        file.write(b"some")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        storage.write_shard(target(tmp_path), full, recorder)
    assert left(tmp_path) == {12: []}
    (failed,) = events(recorder)
    assert failed["name"] == "failed"
    assert "No space left on device" in failed["reason"]


def test_a_checkpoint_directory_that_is_gone_is_not_made_anew(tmp_path, recorder):
    with pytest.raises(FileNotFoundError):
        storage.write_shard(target(tmp_path / "gone"), lambda file: None, recorder)
    assert not (tmp_path / "gone").exists()


# --- deleting
def test_retention_deletes_the_own_shards_of_what_is_older_than_the_newest_complete_ones(tmp_path, recorder):
    for step in (1, 2, 3, 4):
        put(tmp_path, step, [0, 1])
    storage.retire(target(tmp_path, rank=1), recorder)
    assert left(tmp_path)[1] == left(tmp_path)[2] == [shard_name(0, 2)]
    assert len(left(tmp_path)[3]) == len(left(tmp_path)[4]) == 2
    (deleted,) = events(recorder)
    assert (deleted["name"], deleted["bytes"]) == ("deleted", 10)
    storage.retire(target(tmp_path, rank=0), recorder)
    assert sorted(left(tmp_path)) == [3, 4]


def test_an_incomplete_checkpoint_does_not_count_towards_those_to_keep(tmp_path, recorder):
    for step in (1, 2):
        put(tmp_path, step, [0, 1])
    put(tmp_path, 3, [0])
    storage.retire(target(tmp_path, keep=2), recorder)
    assert sorted(left(tmp_path)) == [1, 2, 3]
    storage.retire(target(tmp_path, keep=1), recorder)
    assert left(tmp_path)[1] == [shard_name(1, 2)]
    assert len(left(tmp_path)[2]) == 2


def test_no_rank_ever_has_more_than_one_shard_above_those_to_keep(tmp_path, recorder):
    most = 0

    def dump_of(rank):
        def dump(file):
            nonlocal most
            most = max(most, len(list(tmp_path.rglob(shard_name(rank, 2)))) + 1)  # and the one being written

        return dump

    for step in range(1, 7):
        for rank in (0, 1):  # when rank 0 has written, the checkpoint is not complete yet: it deletes one save later
            storage.write_shard(target(tmp_path, step, rank, keep=2), dump_of(rank), recorder)
    assert most == 3
    assert storage.complete_steps(tmp_path) == [5, 6]


def test_a_shard_of_a_rolled_back_attempt_is_withdrawn_before_the_step_is_saved_again(tmp_path):
    put(tmp_path, 12, [0, 1])
    storage.withdraw(target(tmp_path, rank=1))
    assert left(tmp_path)[12] == [shard_name(0, 2)]
    assert not storage.complete(step_dir(tmp_path, 12))


def test_a_start_clears_what_earlier_incarnations_left_of_this_rank(tmp_path):
    put(tmp_path, 1, [0, 1])
    put(tmp_path, 2, [0])  # never became complete
    for rank, incarnation in ((0, "earlier"), (1, "earlier"), (0, "this")):
        target(tmp_path, 3, rank, incarnation=incarnation).final.parent.mkdir(exist_ok=True)
        target(tmp_path, 3, rank, incarnation=incarnation).temporary.touch()
    storage.clear_leftovers(tmp_path, 0, 2, "this")
    names = left(tmp_path)
    assert len(names[1]) == 2
    assert 2 not in names
    assert sorted(names[3]) == [f".{shard_name(0, 2)}.this.tmp", f".{shard_name(1, 2)}.earlier.tmp"]


def test_what_a_larger_world_left_has_an_owner_in_a_smaller_one(tmp_path):
    put(tmp_path, 2, [0, 1, 2], world_size=4)
    for rank in range(2):
        storage.clear_leftovers(tmp_path, rank, 2, "this")
    assert left(tmp_path) == {}


# --- before anything starts
def test_a_directory_that_can_be_written_to_passes_and_keeps_no_trace(tmp_path):
    storage.check_directory(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_and_a_file_in_its_place_are_told_apart(tmp_path):
    with pytest.raises(BadInput, match=r"storage\.dir: .*does not exist"):
        storage.check_directory(tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="is not a directory"):
        storage.check_directory(tmp_path / "file")


def test_a_directory_that_refuses_a_file_is_refused(tmp_path, monkeypatch):
    def deny(self, data):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes", deny)
    with pytest.raises(BadInput, match="Read-only file system"):
        storage.check_directory(tmp_path)


def test_a_folder_is_made_with_those_above_it_and_one_that_cannot_be_made_is_refused(tmp_path):
    storage.make_directory(tmp_path / "a" / "b", "work_dir")
    storage.make_directory(tmp_path / "a" / "b", "work_dir")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"work_dir: .*/file/b cannot be made \(Not a directory\); give work_dir=PATH"):
        storage.make_directory(tmp_path / "file" / "b", "work_dir")


def test_space_must_hold_one_checkpoint_more_than_is_kept_of_every_arm(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=600))
    storage.check_space(tmp_path, 100, keep=2, arms=2)
    with pytest.raises(BadInput, match=r"checkpoint\.keep=2"):
        storage.check_space(tmp_path, 101, keep=2, arms=2)


# --- reasons


def failed_while_handling_a_full_disk():
    try:
        raise OSError(28, "No space left on device")
    finally:
        raise RuntimeError("[enforce fail] . unexpected pos 704 vs 598")


def test_an_error_is_told_on_one_line_by_what_the_system_said():
    with pytest.raises(RuntimeError) as caught:
        failed_while_handling_a_full_disk()
    assert storage.describe(caught.value) == "OSError: [Errno 28] No space left on device"
    assert storage.describe(ValueError("one\ntwo")) == "ValueError: one"
    assert storage.describe(ValueError()) == "ValueError"


def test_a_file_cut_short_without_the_system_s_word_is_told_as_that():
    told = storage.describe(RuntimeError("unexpected pos 704 vs 598"))
    assert told.endswith("unexpected pos 704 vs 598 (the file was cut short; is the store full?)")
