"""Events on their way into the result folder: everything once, nothing twice, also across torn lines and failures."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.node import ship
from bench.node.ship import LOG_TAIL_BYTES, Shipper, last_words, ship_logs


@pytest.fixture
def shipper(tmp_path) -> Shipper:
    for name in ("node", "result"):
        (tmp_path / name).mkdir()
    return Shipper(tmp_path / "node", tmp_path / "result")


def write(shipper: Shipper, text: str, name: str = "worker.jsonl") -> None:
    with open(shipper.source / name, "a") as file:
        file.write(text)


def shipped(shipper: Shipper, name: str = "worker.jsonl") -> str:
    return (shipper.target / name).read_text()


def test_each_time_only_what_is_new_is_appended(shipper):
    write(shipper, "a\n")
    shipper.ship()
    (shipper.target / "worker.jsonl").write_text("A\n")  # what is there is not written again
    write(shipper, "b\n")
    shipper.ship()
    shipper.ship()
    assert shipped(shipper) == "A\nb\n"


def test_a_torn_line_is_completed_and_not_repeated(shipper):
    write(shipper, '{"seq":0}\n{"se')
    shipper.ship()
    write(shipper, 'q":1}\n')
    shipper.ship()
    assert shipped(shipper) == '{"seq":0}\n{"seq":1}\n'


def test_files_that_appear_later_are_shipped_and_other_files_are_not(shipper):
    shipper.ship()
    write(shipper, "a\n", "writer.jsonl")
    write(shipper, "no event\n", "settings.json")
    shipper.ship()
    assert [path.name for path in shipper.target.iterdir()] == ["writer.jsonl"]


def test_a_copy_that_broke_off_is_continued_where_it_ended(shipper, monkeypatch):
    write(shipper, "abcdef\n")

    def break_off(local, remote):
        remote.write(local.read(4))
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as full_disk:
        full_disk.setattr(ship.shutil, "copyfileobj", break_off)
        with pytest.raises(OSError, match="no space left"):
            shipper.ship()
    shipper.ship()
    assert shipped(shipper) == "abcdef\n"


def test_a_new_shipper_goes_on_where_an_earlier_one_ended(shipper):
    write(shipper, "a\n")
    shipper.ship()
    write(shipper, "b\n")
    Shipper(shipper.source, shipper.target).ship()
    assert shipped(shipper) == "a\nb\n"


@given(pieces=st.lists(st.text(alphabet="ab\n", max_size=8), max_size=6))
def test_whatever_the_pieces_the_copy_equals_the_source(pieces, tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("ship")
    for name in ("node", "result"):
        (folder / name).mkdir()
    shipper = Shipper(folder / "node", folder / "result")
    write(shipper, "{}")
    for piece in pieces:
        shipper.ship()
        write(shipper, piece)
    shipper.ship()
    assert shipped(shipper) == "{}" + "".join(pieces)
    shutil.rmtree(folder)


def test_logs_are_named_by_their_node_and_only_their_end_is_kept(shipper):
    (shipper.source / "rank-0.log").write_bytes(b"x" * 10 + b"y" * LOG_TAIL_BYTES)
    ship_logs(shipper.source, shipper.target, 3)
    assert (shipper.target / "node3-rank-0.log").read_bytes() == b"y" * LOG_TAIL_BYTES


def test_a_failed_launch_is_explained_by_the_last_error_in_its_logs(tmp_path):
    (tmp_path / "node0-rank-0.log").write_text("starting\n")
    (tmp_path / "node0-rank-1.log").write_text(
        'Traceback:\n  File "Error.py", line 3\nValueError: first\nOSError: [Errno 28] disk full\ndone\n'
    )
    assert last_words(tmp_path) == "OSError: [Errno 28] disk full"


def test_without_an_error_the_last_line_is_what_is_known(tmp_path):
    assert last_words(tmp_path) == ""
    (tmp_path / "a.log").write_text("one\n\nKilled\n\n")
    assert last_words(tmp_path) == "Killed"
