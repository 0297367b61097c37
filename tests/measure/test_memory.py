from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.measure.events import LaunchRecord, read_launch
from bench.measure.memory import peak_figures
from tests.measure.streams import ArmSpec, Scenario, simulate, write_files

FULL = Scenario(kind="full", interval=4, saves=4, nodes=2)
CONTROL = {"host_bytes": 1000, "shm_bytes": 0}


def launch(folder: Path, arm: str, index: int, block: int, *by_node: dict[str, int]) -> LaunchRecord:
    """A launch of one arm whose nodes show these peaks."""
    spec = ArmSpec() if arm == "none" else ArmSpec(0.05, 0.3)
    job = simulate(replace(FULL, arms={arm: spec}, index=index, block=block))
    for runner, peaks in zip(job.runners, by_node, strict=True):
        runner.instant("memory", job.scenario.begin + 1, **{name: size // 2 for name, size in peaks.items()})
        runner.instant("memory", job.t - 0.5, **peaks)
        runner.instant("memory", job.t + 0.5, **{name: 100 * size for name, size in peaks.items()})  # reading back
    write_files(folder / str(index), job.scenario.launch(), job.files)
    return read_launch(folder / str(index))


def test_the_peak_above_the_control_is_the_worst_nodes(tmp_path: Path) -> None:
    found = peak_figures(
        [
            launch(tmp_path, "none", 1, 0, CONTROL, {"host_bytes": 2000, "shm_bytes": 10}),
            launch(tmp_path, "a", 2, 0, {"host_bytes": 1500, "shm_bytes": 70}, {"host_bytes": 2100, "shm_bytes": 90}),
            launch(tmp_path, "none", 3, 1, CONTROL, CONTROL),
            launch(tmp_path, "a", 4, 1, {"host_bytes": 1300, "shm_bytes": 70}, {"host_bytes": 1200, "shm_bytes": 60}),
        ],
        "a",
    )
    host, shm = found["peak_host_bytes"], found["peak_shm_bytes"]
    assert host is not None
    assert shm is not None
    assert (host.median, host.low, host.high, host.n) == (400, 300, 500, 2)
    assert (shm.low, shm.high) == (70, 80)
    assert found["peak_device_bytes"] is None


def test_without_a_control_in_the_block_nothing_is_known(tmp_path: Path) -> None:
    lonely = [launch(tmp_path, "a", 1, 0, CONTROL, CONTROL), launch(tmp_path, "none", 2, 1, CONTROL, CONTROL)]
    assert set(peak_figures(lonely, "a").values()) == {None}


def test_a_node_without_readings_leaves_the_launch_out(tmp_path: Path) -> None:
    launches = [launch(tmp_path, "none", 1, 0, CONTROL, CONTROL), launch(tmp_path, "a", 2, 0, CONTROL, {})]
    assert set(peak_figures(launches, "a").values()) == {None}


def test_launches_of_several_arms_do_not_tell_them_apart(tmp_path: Path) -> None:
    quick = Scenario(memory_bytes=CONTROL)
    job = simulate(quick)
    write_files(tmp_path, quick.launch(), job.files)
    assert set(peak_figures([read_launch(tmp_path)], "sync_local").values()) == {None}
