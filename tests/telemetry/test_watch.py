"""Watching GPUs beside a launch: events at a rate, complete at the end, and nothing at all without GPUs."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pynvml
import pytest

from bench.measure.events import read_stream
from bench.record import Recorder
from bench.telemetry import watch as watching
from bench.telemetry.watch import Nothing, Watch, watch
from tests.telemetry.fake_nvml import FakeNvml, PartOfANode, Sliced

META = {"role": "runner", "launch": 1, "node": 0, "local_rank": -1, "rank": -1, "world_size": 2, "incarnation": 0}


@pytest.fixture
def recorder(tmp_path):
    made = Recorder(tmp_path, token="t", **META)
    yield made
    made.close()


def events(recorder: Recorder, name: str) -> list[dict]:
    lines = [json.loads(line) for line in Path(recorder.path).read_text().splitlines()]
    return [line for line in lines if line.get("name") == name]


def test_what_is_watched_and_how_often_is_said_once(recorder, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    watched = Watch(recorder, FakeNvml(), period_s=60)
    watched.close()
    (head,) = events(recorder, "telemetry")
    assert head["period_s"] == 60
    assert [(gpu["index"], gpu["uuid"], gpu["local_rank"]) for gpu in head["gpus"]] == [
        (0, "GPU-a0", None),
        (1, "GPU-b0", 0),
    ]
    assert head["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"


def test_gpus_of_other_jobs_are_left_out_and_the_rest_keeps_nvmls_numbers(recorder, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    Watch(recorder, PartOfANode(), period_s=60).close()
    (head,) = events(recorder, "telemetry")
    assert [(gpu["index"], gpu["local_rank"]) for gpu in head["gpus"]] == [(1, 0), (3, 1)]
    assert {(event["index"], event["local_rank"]) for event in events(recorder, "gpu")} == {(1, 0), (3, 1)}


def test_the_power_of_a_gpu_is_not_laid_to_the_rank_of_a_slice(recorder, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-x")
    Watch(recorder, Sliced(), period_s=60).close()
    assert {event["local_rank"] for event in events(recorder, "gpu")} == {None}


def test_every_gpu_is_looked_at_first_and_last_and_the_driver_is_let_go(recorder):
    library = FakeNvml()
    watched = Watch(recorder, library, period_s=60)
    watched.close()
    found = events(recorder, "gpu")
    assert [event["index"] for event in found] == [0, 1, 0, 1]
    assert found[0]["energy_j"] < found[2]["energy_j"]
    assert found[1]["energy_j"] is None
    assert found[0]["t"] <= found[2]["t"]
    assert not library.open


def test_samples_come_at_the_stated_rate_and_only_the_callers_thread_writes(recorder, monkeypatch):
    seen = threading.Event()

    class Counting(FakeNvml):
        def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
            if self.looks >= 5:
                seen.set()
            return super().nvmlDeviceGetPowerUsage(handle)

    watched = Watch(recorder, Counting(), period_s=0.005)
    assert seen.wait(20)
    assert events(recorder, "gpu") == []  # nobody has asked for them yet
    watched.look()
    assert len(events(recorder, "gpu")) >= 10
    watched.close()


def test_the_stream_of_a_runner_with_telemetry_is_read_without_problems(recorder):
    watched = Watch(recorder, FakeNvml(), period_s=0.005)
    recorder.instant("launch_begin")
    watched.look()
    recorder.instant("launch_end")
    watched.close()
    stream = read_stream(Path(recorder.path))
    assert stream.problems == {}
    assert len(stream.named("gpu")) >= 4


def test_a_run_on_cpus_and_a_machine_without_a_driver_watch_nothing(recorder, monkeypatch):
    def refuse():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    assert isinstance(watch(recorder, "cpu"), Nothing)
    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    nothing = watch(recorder, "cuda")
    assert isinstance(nothing, Nothing)
    nothing.look()
    nothing.close()
    assert events(recorder, "telemetry") == []


def test_a_driver_that_fails_at_once_is_noted_and_let_go(recorder, monkeypatch):
    closed = []

    def refuse():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: closed.append(True))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", refuse)
    assert isinstance(watching.watch(recorder, "cuda"), Nothing)
    assert closed == [True]
    assert events(recorder, "note")[0]["text"].startswith("no telemetry: ")
