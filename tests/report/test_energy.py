"""Energy by what the slots did: from counters that the node runner read, over the spans that workers recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.measure.accounted import Accounted
from bench.report.data import read_result
from bench.report.energy import energy
from bench.report.figures import draw
from bench.report.trace import trace_events
from tests.measure.results import BASE
from tests.report.made import checkpoint_result

WATTS = {0: 400.0, 1: 300.0}  # steady power of the GPU of each local rank


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Accounted:
    """A result whose runner read two GPUs once a second."""
    folder = checkpoint_result(tmp_path_factory.mktemp("watched") / "result", BASE, launches=1)
    path = next((folder / "launches" / "1" / "events").glob("runner-*"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    begin, end = (next(e["t"] for e in lines if e.get("name") == name) for name in ("launch_begin", "launch_end"))
    lines += [reading(begin + second, rank) for second in range(int(end - begin) + 2) for rank in WATTS]
    ordered = [event | {"seq": number} for number, event in enumerate(lines)]
    path.write_text("".join(json.dumps(event) + "\n" for event in ordered))
    return read_result(folder, "run")


def reading(t: float, rank: int) -> dict[str, Any]:
    told = {"utilization_share": 0.9, "memory_bytes": 10**10, "power_w": WATTS[rank], "energy_j": WATTS[rank] * t}
    clocks = {"sm_clock_mhz": 1700, "memory_clock_mhz": 2600, "temperature_c": 50, "throttled_by": ["power_cap"]}
    return {"kind": "instant", "name": "gpu", "t": t, "index": rank, "local_rank": rank, **told, **clocks}


def test_a_steady_power_makes_energy_in_proportion_to_time(watched):
    found = energy(watched)
    assert found.gpus == 2
    assert set(found.joules) >= {"useful", "ckpt_stall", "load"}
    for category, joules in found.joules.items():
        if found.seconds[category] > 0.1:
            assert 300 <= joules / found.seconds[category] <= 400, category
    assert found.joules["useful"] == pytest.approx(350 * found.seconds["useful"], rel=0.01)
    assert 0 < found.stalled_share < 0.5


def test_the_figure_says_what_saves_cost_in_energy_and_what_held_the_clocks_down(watched):
    drawing = draw("gpus", watched)
    assert drawing.gap == ""
    assert "were used while training stood still for saves" in drawing.says
    assert "clocks were held down by power cap in 100.0 % of the readings" in drawing.says
    assert "n = 2 GPUs" in drawing.caption


def test_a_trace_shows_readings_as_counters(watched):
    counters = [event for event in trace_events(watched.launches[0]) if event["ph"] == "C"]
    assert {event["name"] for event in counters} == {"GPU 0", "GPU 1"}
    assert counters[0]["args"]["power_w"] in WATTS.values()


def test_without_gpus_there_is_no_energy_and_the_figure_says_why(checkpoints, tmp_path: Path):
    assert energy(checkpoints) is None
    assert "no GPU was watched" in draw("gpus", checkpoints).gap
