"""The line between a rank and its monitor, with the library's monitor at the other end."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

pytest.importorskip("nvidia_resiliency_ext.fault_tolerance")
from nvidia_resiliency_ext.fault_tolerance import FaultToleranceConfig
from nvidia_resiliency_ext.fault_tolerance.data import FT_RANK_MONITOR_IPC_SOCKET_ENV_VAR
from nvidia_resiliency_ext.fault_tolerance.rank_monitor_client import RankMonitorClientError
from nvidia_resiliency_ext.fault_tolerance.rank_monitor_server import RankMonitorServer

from bench.recovery.inside.in_job import RankMonitor

DEADLINE_S = 30.0


@pytest.fixture(autouse=True)
def monitor_process(tmp_path, monkeypatch) -> Iterator[None]:
    """One monitor process, forked as ft_launcher does it, for all the "ranks" of a test."""
    path = str(tmp_path / "monitor.socket")
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", FT_RANK_MONITOR_IPC_SOCKET_ENV_VAR: path}.items():
        monkeypatch.setenv(name, value)
    config = FaultToleranceConfig(rank_section_timeouts={"setup": 60.0}, enable_nic_monitor=False)
    process = RankMonitorServer.run_in_subprocess(config, path, mp_ctx=multiprocessing.get_context("fork"))
    yield
    process.terminate()
    process.join()


def greeted(sections: bool = False) -> RankMonitor:
    monitor = RankMonitor(sections)
    monitor.open()
    return monitor


def first_life() -> None:
    """A rank that has begun its work, and ended."""
    monitor = greeted()
    monitor.beat()
    monitor.close()


def beat_until_refused(monitor: RankMonitor) -> None:
    """From 0.7 on a heartbeat is not answered: the refusal of one shows at a later one."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        monitor.beat()


def test_a_monitor_serves_one_rank_after_the_other():
    for _ in range(3):
        first_life()


def test_the_library_refuses_all_ranks_after_a_restarted_one_that_ended_before_its_first_heartbeat():
    """Once this fails, the library is mended, and the words on it in RankMonitor are out of date."""
    first_life()
    greeted().close()
    for _ in range(2):
        monitor = greeted()
        with pytest.raises(RankMonitorClientError, match="could not send the heartbeat"):
            beat_until_refused(monitor)
        monitor.close()


def test_a_rank_that_ended_in_its_setup_section_is_followed_by_one_that_is_served():
    first_life()
    killed = greeted(sections=True)
    with suppress(RankMonitorClientError), killed.section("setup"):
        killed.close()  # what the monitor sees of a kill
    monitor = greeted(sections=True)
    with monitor.section("setup"):
        pass
    with monitor.section("setup"):
        assert monitor.is_open
    monitor.close()
