"""A result on its way out of a cluster: what is packed, what is taken over, and what a broken stream does."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bench.launch.kube_files import Broken, chosen, pack, unpack
from bench.results import ResultFolder


@pytest.fixture
def there(tmp_path) -> ResultFolder:
    """A result on the claim: launch 0 has ended, launch 1 runs."""
    folder = made(tmp_path / "there", environment={"cpu": "of a node"})
    for index, status in enumerate(("ok", "running")):
        folder.write_launch(index, {"index": index, "status": status})
        for name in ("worker-n0-r0-11-1", "worker-n0-r1-12-1", "runner-n0-r-1-10-1"):
            (folder.launch_dir(index) / "events" / f"{name}.jsonl").write_text(f'{{"launch": {index}}}\n' * 1000)
        (folder.launch_dir(index) / "logs" / "node0-rank-0.log").write_text("said\n")
        (folder.launch_dir(index) / "events" / ".half.123").write_text("temporary")
    return folder


@pytest.fixture
def here(tmp_path) -> ResultFolder:
    return made(tmp_path / "here", environment={"cpu": "of the machine that submits"})


def made(path: Path, environment: dict[str, Any], token: str = "t") -> ResultFolder:
    path.mkdir()
    folder = ResultFolder(path)
    folder.write_run({"token": token, "environment": environment, "occasions": [], "of": path.name})
    return folder


def packed(folder: ResultFolder, **how: Any) -> bytes:
    stream = io.BytesIO()
    pack(folder.path, stream, **how)
    return stream.getvalue()


def files(folder: ResultFolder) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder.path)): path.read_bytes()
        for path in sorted(folder.path.rglob("*"))
        if path.is_file() and path.name != "run.json" and not path.name.startswith(".")
    }


def test_a_whole_result_arrives_byte_by_byte(there, here):
    assert unpack(io.BytesIO(packed(there)), here.path) == {0}
    assert files(here) == files(there)
    assert len(files(there)) == 10
    assert not list(here.path.rglob(".*"))


def test_the_environment_is_taken_over_from_where_it_was_measured_and_nothing_else_of_the_record(there, here):
    unpack(io.BytesIO(packed(there)), here.path)
    assert here.read_run()["environment"] == {"cpu": "of a node"}
    assert here.read_run()["of"] == "here"


def test_the_environment_of_a_further_occasion_is_taken_over_beside_it(there, here):
    for folder, own in ((here, {}), (there, {"environment": {"cpu": "of another day"}})):
        folder.write_run(folder.read_run() | {"occasions": [{"started": 1.0}, {"started": 2.0} | own]})
    unpack(io.BytesIO(packed(there)), here.path)
    assert here.read_run()["occasions"] == [
        {"started": 1.0},
        {"started": 2.0, "environment": {"cpu": "of another day"}},
    ]


def test_the_record_of_another_run_is_not_taken_over(tmp_path, here):
    other = made(tmp_path / "other", {"cpu": "foreign"}, token="another")
    unpack(io.BytesIO(packed(other)), here.path)
    assert here.read_run()["environment"] == {"cpu": "of the machine that submits"}


def test_what_came_of_an_attempt_that_was_set_aside_over_there_since_is_forgotten_here(there, here):
    there.write_launch(1, {"index": 1, "status": "running"})
    unpack(io.BytesIO(packed(there)), here.path)
    there.set_aside(1)
    there.write_launch(1, {"index": 1, "status": "ok"})
    (there.launch_dir(1) / "events" / "worker-n0-r0-99-1.jsonl").write_text("{}\n")
    assert unpack(io.BytesIO(packed(there)), here.path) == {0, 1}
    assert files(here) == files(there)
    assert [path.name for path in (here.launch_dir(1) / "events").iterdir()] == ["worker-n0-r0-99-1.jsonl"]


def test_while_a_launch_runs_only_what_progress_is_read_from_is_brought(there, here):
    assert unpack(io.BytesIO(packed(there, live=True)), here.path) == {0}
    brought = [name for name in files(here) if name.startswith("launches/1/")]
    assert brought == ["launches/1/events/worker-n0-r0-11-1.jsonl", "launches/1/launch.json"]
    assert len([name for name in files(here) if name.startswith("launches/0/")]) == 5


def test_a_launch_that_is_here_already_is_left_out(there, here):
    assert unpack(io.BytesIO(packed(there, have={0}, live=True)), here.path) == set()
    assert all(name.startswith("launches/1/") for name in files(here))


def test_the_record_of_a_launch_comes_after_its_events_so_that_it_never_looks_finished_without_them(there):
    names = [
        path.name for path in chosen(there.path, (), live=False) if path.parent.name == "0" or "events" in path.parts
    ]
    assert names.index("launch.json") == 3


def test_a_file_that_grows_while_it_is_packed_is_cut_where_it_was(there, here, monkeypatch):
    events = there.launch_dir(1) / "events" / "worker-n0-r0-11-1.jsonl"
    before = events.read_bytes()
    add = tarfile.TarFile.addfile

    def grow(self, entry, file=None):
        with open(events, "ab") as more:
            more.write(b"later\n")
        return add(self, entry, file)

    monkeypatch.setattr(tarfile.TarFile, "addfile", grow)
    unpack(io.BytesIO(packed(there)), here.path)
    arrived = (here.launch_dir(1) / "events" / events.name).read_bytes()
    assert arrived.startswith(before)
    assert set(arrived[len(before) :].splitlines()) <= {b"later"}


def test_a_folder_that_is_not_there_yet_is_an_empty_archive(tmp_path, here):
    assert unpack(io.BytesIO(packed(ResultFolder(tmp_path / "nowhere"))), here.path) == set()
    assert files(here) == {}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_stream_that_broke_off_is_noticed_wherever_it_broke(there, here, share):
    whole = packed(there)
    with pytest.raises(Broken):
        unpack(io.BytesIO(whole[: int(len(whole) * share)]), here.path)


def test_a_damaged_stream_is_noticed(there, here):
    whole = bytearray(packed(there))
    whole[-6] ^= 0xFF  # in the checksum
    with pytest.raises(Broken):
        unpack(io.BytesIO(bytes(whole)), here.path)
    with pytest.raises(Broken):
        unpack(io.BytesIO(b"Traceback (most recent call last):\n"), here.path)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "launches/../../evil", "summary.json"])
def test_nothing_is_written_outside_of_the_launches(here, name):
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb") as zipped, tarfile.open(fileobj=zipped, mode="w|") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"evil"))
    with pytest.raises(Broken, match="does not belong"):
        unpack(io.BytesIO(stream.getvalue()), here.path)
    assert not list(here.path.parent.rglob("*evil*"))


def test_a_link_in_the_archive_is_refused(here):
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb") as zipped, tarfile.open(fileobj=zipped, mode="w|") as archive:
        entry = tarfile.TarInfo("launches/0/link")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry)
    with pytest.raises(Broken):
        unpack(io.BytesIO(stream.getvalue()), here.path)


def test_json_of_a_launch_in_an_attempt_that_was_set_aside_is_no_ended_launch(there, here):
    there.set_aside(1)
    there.write_launch(1, {"index": 1, "status": "running"})
    old = there.launch_dir(1) / "attempts" / "0" / "launch.json"
    old.write_text(json.dumps({"index": 1, "status": "failed"}))
    assert unpack(io.BytesIO(packed(there)), here.path) == {0}
    assert (here.launch_dir(1) / "attempts" / "0" / "launch.json").is_file()
