from __future__ import annotations

import pytest

from bench.checkpoint import folders
from bench.checkpoint.together import Later


class Noted(Later):
    def of(self, name):
        return [attributes for noted, _, attributes in self._noted if noted == name]


@pytest.fixture
def events():
    return Noted()


def target(directory, step, incarnation="this"):
    return folders.Target("arm", step, step, directory, incarnation, fsync=True, keep=2)


def write(directory, step, events, incarnation="this"):
    """A save as DCP makes it, on rank 0."""
    made = target(directory, step, incarnation)
    folders.begin(made, events)
    (made.hidden / "__0_0.distcp").write_bytes(b"d" * 100)
    (made.hidden / folders.METADATA).write_bytes(b"m" * 10)
    folders.publish(made, 1.0, events)
    return made


def test_a_checkpoint_shows_under_its_name_only_when_it_is_whole(tmp_path, events):
    made = target(tmp_path, 5)
    folders.begin(made, events)
    (made.hidden / folders.METADATA).touch()
    assert folders.complete_steps(tmp_path) == []
    folders.publish(made, 1.0, events)
    assert folders.complete_steps(tmp_path) == [5]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]


def test_all_bytes_are_on_record_once(tmp_path, events):
    write(tmp_path, 5, events)
    assert events.of("durable") == [{"arm": "arm", "save": 5, "step": 5, "bytes": 110, "t_begin": 1.0}]


def test_the_newest_are_kept_and_what_is_freed_is_on_record(tmp_path, events):
    for step in (1, 2, 3, 4):
        write(tmp_path, step, events)
    assert folders.complete_steps(tmp_path) == [3, 4]
    assert [event["bytes"] for event in events.of("deleted")] == [110, 110]


def test_a_directory_that_vanished_is_not_made_anew(tmp_path, events):
    with pytest.raises(FileNotFoundError):
        folders.begin(target(tmp_path / "gone", 1), events)
    assert not (tmp_path / "gone").exists()


def test_what_an_earlier_attempt_left_is_cleared_and_its_step_written_anew(tmp_path, events):
    write(tmp_path, 5, events, "earlier")
    left = target(tmp_path, 6, "earlier")
    left.hidden.mkdir()
    (left.hidden / "__0_0.distcp").touch()
    (tmp_path / "step-00000004").mkdir()  # its deletion was interrupted
    made = target(tmp_path, 5)
    folders.begin(made, events)
    assert {path.name for path in tmp_path.iterdir()} == {made.hidden.name}


def test_a_folder_without_metadata_is_no_checkpoint(tmp_path, events):
    made = write(tmp_path, 5, events)
    (made.final / folders.METADATA).unlink()
    assert folders.complete_steps(tmp_path) == []
