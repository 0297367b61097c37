"""What the strategies add to the bytes that they must move, held against plain writes and a plain copy, paired."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import pytest

from bench import checkpoint
from bench.checkpoint import throttled
from bench.checkpoint.probe import write_once
from bench.record import Recorder

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

TENSORS, ELEMENTS = 160, 110_000  # 70 MB in as many tensors as a small model has
CEILING_SHARE, COPY_RATIO = 0.9, 1.3
LIMIT_BYTES_PER_S = 60 << 20
META = {"launch": 0, "node": 0, "local_rank": 0, "rank": 0, "world_size": 1, "incarnation": 0, "token": "bench"}
unavailable = throttled.refusal()


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def context(directory: Path, events: Path):
    directory.mkdir(parents=True, exist_ok=True)
    events.mkdir(parents=True, exist_ok=True)
    meta = {"role": "worker", **META}
    from bench.checkpoint.base import Context

    return Context(directory, 0, 1, 0, 0, "cpu", "bench", Recorder(events, **meta), events, meta)


def tree() -> dict:
    return {"model": {f"layer.{i}": torch.randn(ELEMENTS) for i in range(TENSORS)}, "step": 1}


@pytest.mark.skipif(unavailable is not None, reason=f"a limited store {unavailable}")
@pytest.mark.parametrize("name", ["sync_local", "sync_dcp"])
def test_a_synchronous_save_reaches_the_ceiling_of_the_store(name, group, bounds, tmp_path):
    state, size = tree(), TENSORS * ELEMENTS * 4
    with throttled.throttled(tmp_path / "store", 8 * size, LIMIT_BYTES_PER_S) as store:
        strategy = checkpoint.create(name, context(store / name, tmp_path / "events"))
        lost = []
        for number in range(6):
            begin = perf_counter()
            strategy.save(number + 1, state, number)
            saved_s = perf_counter() - begin
            t0, t1 = write_once(store / "plain", size, True)
            lost.append(1 - (t1 - t0) / saved_s)
        strategy.close()
    bounds.hold(f"{name}: share of the ceiling that is lost", lost[1:], 1 - CEILING_SHARE, "")


def test_an_asynchronous_save_blocks_little_longer_than_a_plain_copy_takes(group, bounds, tmp_path):
    torch.set_num_threads(1)  # as a rank on CPUs has: with more, the flat copy alone would be spread over them
    state = tree()
    flat = torch.cat(list(state["model"].values()))
    target = torch.empty_like(flat)
    strategy = checkpoint.create("nvrx_async", context(tmp_path / "store", tmp_path / "events"))
    ratios = []
    for number in range(24):
        begin = perf_counter()
        target.copy_(flat)
        copied_s = perf_counter() - begin
        begin = perf_counter()
        strategy.save(number + 1, state, number)
        ratios.append((perf_counter() - begin) / copied_s)
        strategy.drain()
    strategy.close()
    bounds.hold("nvrx_async: blocking over a plain copy", ratios[2:], COPY_RATIO, "x")
