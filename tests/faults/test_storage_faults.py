"""A full and a slow store: only where the file system is this run's alone, and as it was afterwards."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.checkpoint import folders, storage, throttled
from bench.checkpoint.probe import write_once
from bench.faults import create, filesystem
from bench.faults.base import Site
from bench.faults.filesystem import Mount, mount_of, shared_with_others
from bench.faults.runner import Injector, unavailable
from bench.faults.storage_slow import limits
from bench.faults.trigger import Trigger
from tests.faults.made import planned, scene, site

SPEED = 64 << 20
needs_store = pytest.mark.skipif(
    throttled.refusal() is not None, reason=f"a store of known speed {throttled.refusal()}"
)


@pytest.fixture
def small(tmp_path):
    """A tmpfs of 8 MiB made for the test."""
    point = tmp_path / "store"
    point.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", point], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted: {done.stderr.decode().strip()}")
    yield point
    subprocess.run(["umount", point], check=True)


@pytest.fixture
def store(tmp_path):
    """A throttled store as a run makes one."""
    with throttled.throttled(tmp_path / "store", 16 << 20, SPEED) as point:
        yield point


def strike(folder: Path, place: Site, kind: str, now: list[float], **options: float) -> Injector:
    injector = Injector(place, clock=lambda: now[0])
    Trigger([planned(kind, options=options)], scene(folder)).reach("step", 7)
    (struck,) = injector.poll()
    assert "failed" not in struck["details"]
    return injector


def is_full(folder: Path) -> bool:
    """Whether a save of 64 KiB fails for want of space, and for nothing else."""
    try:
        with open(folder / "one", "wb", buffering=0) as file:
            file.write(b"x" * (64 << 10))
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return True
    return False


@pytest.mark.parametrize("name", ["small", pytest.param("store", marks=needs_store)])
def test_a_store_is_full_for_its_time_and_then_as_before(tmp_path, name, request):
    request.getfixturevalue(name)
    place, now = site(tmp_path), [0.0]
    assert unavailable([planned("storage_full")], place) == {}
    free = shutil.disk_usage(place.checkpoint_dir).free
    injector = strike(tmp_path, place, "storage_full", now, seconds=3.0)
    assert is_full(place.checkpoint_dir)
    now[0] = 3.0
    injector.poll()
    assert not is_full(place.checkpoint_dir)
    (place.checkpoint_dir / "one").unlink()
    assert shutil.disk_usage(place.checkpoint_dir).free == free
    assert list(place.checkpoint_dir.iterdir()) == []
    assert injector.finish() == {}


def test_the_end_of_the_launch_empties_a_store_too(tmp_path, small):
    place = site(tmp_path)
    injector = strike(tmp_path, place, "storage_full", [0.0], seconds=3.0)
    assert injector.finish()["0-storage_full"]["filler_bytes"] > 7 << 20
    assert list(place.checkpoint_dir.iterdir()) == []


def test_a_store_that_is_filled_twice_at_a_time_is_full_until_the_second_is_lifted(tmp_path, small):
    place, now = site(tmp_path), [0.0]
    injector = strike(tmp_path, place, "storage_full", now, seconds=3.0)
    now[0] = 1.0
    Trigger([planned("storage_full", "1-storage_full", options={"seconds": 5.0})], scene(tmp_path)).reach("step", 7)
    injector.poll()
    now[0] = 3.0
    injector.poll()
    assert is_full(place.checkpoint_dir)
    now[0] = 6.0
    injector.poll()
    assert not is_full(place.checkpoint_dir)


def test_the_filler_is_no_checkpoint(tmp_path, small):
    place = site(tmp_path)
    injector = strike(tmp_path, place, "storage_full", [0.0])
    assert storage.steps_present(place.checkpoint_dir) == folders.complete_steps(place.checkpoint_dir) == []
    injector.finish()


def test_a_file_system_of_others_is_never_filled(tmp_path):
    place = site(tmp_path)
    assert "also holds events or results" in unavailable([planned("storage_full")], place)["0-storage_full"]
    free = shutil.disk_usage(tmp_path).free
    Trigger([planned("storage_full")], scene(tmp_path)).reach("step", 7)
    (struck,) = Injector(place).poll()
    assert "also holds events" in struck["details"]["failed"]
    assert list(place.checkpoint_dir.iterdir()) == []
    assert shutil.disk_usage(tmp_path).free > free // 2


@pytest.mark.parametrize(
    ("mount", "blocks", "reason"),
    [
        (Mount("/data", "ext4", "/dev/sda", "1:1"), 1 << 10, "may be used by others"),
        (Mount("/data", "tmpfs", "tmpfs", "1:1"), 1 << 20, "may be used by others"),
        (Mount("/dev/shm", "tmpfs", "tmpfs", "1:1"), 1 << 10, "everybody's"),
        (Mount("/tmp", "tmpfs", "tmpfs", "1:1"), 1 << 10, "everybody's"),
        (Mount("/run/user/1000", "tmpfs", "tmpfs", "1:1"), 1 << 10, "everybody's"),
        (Mount("/tmp/mine", "tmpfs", "tmpfs", "1:1"), (1 << 20) - 1, None),
    ],
    ids=lambda value: getattr(value, "point", None),
)
def test_a_file_system_is_ones_own_if_small_and_made_for_it(tmp_path, monkeypatch, mount, blocks, reason):
    monkeypatch.setattr(filesystem, "mount_of", lambda folder: mount)
    monkeypatch.setattr(os, "statvfs", lambda folder: os.statvfs_result((4096, 4096, blocks, *[0] * 7)))
    found = shared_with_others(tmp_path)
    assert found is None if reason is None else reason in found


def test_a_folder_that_is_not_made_yet_lies_where_the_one_above_it_does(tmp_path, small):
    assert mount_of(small / "not" / "yet").point == str(small)
    assert mount_of(tmp_path / "nor this").point != str(small)


def test_a_mount_point_with_a_blank_is_found(tmp_path):
    point = tmp_path / "my store"
    point.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", point], capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted")
    try:
        assert mount_of(point).point == str(point)
    finally:
        subprocess.run(["umount", point], check=True)


@needs_store
def test_a_store_is_slower_for_its_time_and_then_as_fast_as_before(tmp_path, store):
    place, now, size = site(tmp_path), [0.0], 8 << 20
    assert unavailable([planned("storage_slow")], place) == {}
    device = mount_of(place.checkpoint_dir).device
    before = limits(device)
    assert set(before.values()) == {SPEED}
    injector = strike(tmp_path, place, "storage_slow", now, times=4.0, seconds=3.0)
    assert limits(device) == dict.fromkeys(before, SPEED // 4)
    begin, end = write_once(place.checkpoint_dir / "file", size, True)
    assert end - begin > 0.5 * size / (SPEED / 4)
    now[0] = 3.0
    injector.poll()
    assert limits(device) == before
    assert injector.finish() == {}
    assert limits(device) == before


@needs_store
def test_a_store_that_is_slowed_twice_at_a_time_is_as_fast_as_before_once_both_are_lifted(tmp_path, store):
    place, now = site(tmp_path), [0.0]
    device = mount_of(place.checkpoint_dir).device
    before = limits(device)
    injector = strike(tmp_path, place, "storage_slow", now, times=4.0, seconds=3.0)
    now[0] = 1.0
    second = planned("storage_slow", "1-storage_slow", options={"times": 8.0, "seconds": 5.0})
    Trigger([second], scene(tmp_path)).reach("step", 7)
    injector.poll()
    assert limits(device) == dict.fromkeys(before, SPEED // 8), "of the speed before all faults"
    now[0] = 3.0
    injector.poll()
    assert limits(device) != before
    now[0] = 6.0
    injector.poll()
    assert limits(device) == before
    injector.finish()
    assert limits(device) == before


@needs_store
def test_a_store_that_has_been_taken_down_is_not_touched_by_a_late_undo(tmp_path):
    with throttled.throttled(tmp_path / "store", 16 << 20, SPEED):
        details = create("storage_slow").prepare(planned("storage_slow"), site(tmp_path))
    before = limits(details["device"])
    assert create("storage_slow").undo({"details": details}) == {}
    assert limits(details["device"]) == before


def test_only_a_store_made_for_the_run_is_slowed(tmp_path):
    place = site(tmp_path)
    assert "storage.throttle_bytes_per_s" in unavailable([planned("storage_slow")], place)["0-storage_slow"]
    with pytest.raises(OSError, match="not on a store made for this run"):
        create("storage_slow").strike(planned("storage_slow"), place, {"image": None})
