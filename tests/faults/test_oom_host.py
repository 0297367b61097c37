"""A real kill by the kernel for want of memory, told from any other kill by the counter of a cgroup, v1 and v2."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from bench.faults import cgroup, create
from bench.faults.cgroup import V1, V2, place_for
from bench.faults.runner import Injector, unavailable
from tests.faults.made import OWN_TOKEN, RANK, ended, planned, rank, record, site


@pytest.fixture
def place(tmp_path):
    """A node that can do it."""
    made = site(tmp_path)
    for reason in unavailable([planned("oom_host")], made).values():
        pytest.skip(f"oom_host: {reason}")
    return made


def cgroups_of_test() -> list[str]:
    folder = place_for("x").path.parent
    return [path.name for path in folder.glob("bench-*") if OWN_TOKEN[:8] in path.name]


def test_the_kernel_kills_the_process_and_its_counter_says_so(tmp_path, place):
    process = rank(tmp_path, [planned("oom_host")])
    assert ended(process)[:2] == (-signal.SIGKILL, "")
    injector = Injector(place)
    assert injector.finish() == {"0-oom_host": {"oom_kill": 1}}
    assert record(tmp_path, "0-oom_host")["details"]["oom_kill"] == 1
    assert injector.finish() == {}
    assert record(tmp_path, "0-oom_host")["details"]["oom_kill"] == 1
    assert cgroups_of_test() == []


def test_a_process_killed_in_another_way_is_not_counted(tmp_path, place):
    code = f"{RANK}\nimport os, signal\nfrom bench.faults import oom_host\n"
    code += "oom_host.BOUND = 0.1\n"
    code += "try:\n    reach()\nexcept RuntimeError:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    assert ended(rank(tmp_path, [planned("oom_host")], code))[0] == -signal.SIGKILL
    assert Injector(place).finish() == {"0-oom_host": {"oom_kill": 0}}
    assert cgroups_of_test() == []


def test_finding_out_leaves_no_cgroup(place):
    assert cgroups_of_test() == []


def test_a_cgroup_that_still_holds_a_process_is_told_and_can_be_removed_later(tmp_path, place, monkeypatch):
    monkeypatch.setattr(cgroup, "EMPTY_PATIENCE_S", 0.0)
    code = f"{RANK}\nfrom bench.faults import oom_host\noom_host.BOUND = 0.1\n"
    code += "try:\n    reach()\nexcept RuntimeError:\n    print('alive', flush=True)\nsys.stdin.read()\n"
    process = rank(tmp_path, [planned("oom_host")], code)
    assert process.stdout.readline() == "alive\n"
    left = Injector(place).finish()["0-oom_host"]["left"]
    assert "busy" in left
    assert "rmdir" in left
    ended(process)
    monkeypatch.setattr(cgroup, "EMPTY_PATIENCE_S", 5.0)
    assert Injector(place).finish() == {"0-oom_host": {"oom_kill": 0, "left": None}}
    assert cgroups_of_test() == []


def test_where_no_cgroup_can_be_made_the_fault_is_unavailable_with_the_kernels_words(tmp_path, monkeypatch):
    proc = fake_proc(tmp_path, "0::/\n", [("cgroup2", "rw", tmp_path / "missing", "/")])
    monkeypatch.setattr("bench.faults.oom_host.place_for", lambda name: place_for(name, proc))
    reason = create("oom_host").unavailable(planned("oom_host"), site(tmp_path))
    assert "No such file or directory" in reason


# --- both generations, on a tree of files


def fake_proc(folder: Path, own: str, mounts: list[tuple[str, str, Path, str]]) -> Path:
    proc = folder / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(own)
    lines = [f"30 20 0:2{n} {root} {at} rw - {kind} {kind} {opts}" for n, (kind, opts, at, root) in enumerate(mounts)]
    (proc / "mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/root rw\n" + "\n".join(lines) + "\n")
    return proc


def test_v1_is_chosen_where_the_memory_controller_is_mounted_by_itself(tmp_path):
    unified, memory = tmp_path / "unified", tmp_path / "memory"
    mounts = [
        ("cgroup2", "rw", unified, "/"),
        ("cgroup", "rw,cpu", tmp_path, "/"),
        ("cgroup", "rw,memory", memory, "/"),
    ]
    proc = fake_proc(tmp_path, "4:cpu:/a\n3:memory:/job/step\n0::/x\n", mounts)
    assert place_for("mine", proc) == V1(memory / "job" / "step" / "mine")


def test_in_a_container_that_sees_a_part_of_the_hierarchy_paths_begin_at_that_part(tmp_path):
    for root, own in (("/docker/abc", "/docker/abc/job"), ("/docker/abc", "/elsewhere")):
        proc = fake_proc(tmp_path, f"3:memory:{own}\n", [("cgroup", "rw,memory", tmp_path / "memory", root)])
        inner = Path("job/mine") if own.startswith(root) else Path("mine")
        assert place_for("mine", proc).path == tmp_path / "memory" / inner
        for path in (proc / "cgroup", proc / "mountinfo"):
            path.unlink()
        proc.rmdir()


def v2_tree(folder: Path, **handed_down: str) -> Path:
    """/job/step below a v2 mount; which controllers each hands down."""
    for path, key in ((folder, "root"), (folder / "job", "job"), (folder / "job" / "step", "step")):
        path.mkdir(parents=True, exist_ok=True)
        (path / "cgroup.subtree_control").write_text(handed_down.get(key, "") + "\n")
    return fake_proc(folder.parent, "0::/job/step\n", [("cgroup2", "rw", folder, "/")])


def test_v2_takes_the_nearest_cgroup_that_hands_the_memory_controller_down(tmp_path):
    proc = v2_tree(tmp_path / "unified", root="cpu memory", job="memory pids", step="pids")
    assert place_for("mine", proc) == V2(tmp_path / "unified" / "job" / "mine")


def test_v2_without_delegation_is_no_place(tmp_path):
    with pytest.raises(OSError, match="hands the memory controller down"):
        place_for("mine", v2_tree(tmp_path / "unified", root="cpu"))


def test_v2_is_limited_without_swap_and_for_the_process_alone(tmp_path):
    group = V2(tmp_path / "mine")
    group.create()
    (group.path / "memory.current").write_text("1000\n")
    group.limit(500)
    group.enter(77)
    written = {path.name: path.read_text().strip() for path in group.path.iterdir()}
    assert written == {
        "memory.current": "1000",
        "memory.max": "1500",
        "memory.swap.max": "0",
        "memory.oom.group": "0",
        "cgroup.procs": "77",
    }


@pytest.mark.parametrize("swap_is_accounted", [True, False])
def test_v1_is_limited_with_swap_where_that_is_accounted(tmp_path, swap_is_accounted):
    group = V1(tmp_path / "mine")
    group.create()
    (group.path / "memory.usage_in_bytes").write_text("1000\n")
    swap = group.path / "memory.memsw.limit_in_bytes"
    if swap_is_accounted:
        swap.write_text("max")
    group.limit(500)
    assert (group.path / "memory.limit_in_bytes").read_text() == "1500\n"
    assert (swap.read_text() == "1500\n") if swap_is_accounted else not swap.exists()


def test_the_counter_is_read_from_each_generations_file(tmp_path):
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n")
    assert V1(tmp_path).kills() == 2
    assert V2(tmp_path).kills() == 3


def test_a_kernel_that_does_not_count_is_not_guessed_at(tmp_path):
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\n")
    assert V1(tmp_path).kills() is None
