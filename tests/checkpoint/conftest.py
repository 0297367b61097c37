from __future__ import annotations

import pytest
import torch.distributed as dist

from bench.checkpoint.base import Context
from bench.record import Recorder


@pytest.fixture
def alone():
    """A process group of this process alone, over gloo."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def context(tmp_path):
    """Of a rank that is alone, with an event file of its own."""
    meta = {"role": "worker", "node": 0, "local_rank": 0, "rank": 0}
    recorder = Recorder(tmp_path, **meta)
    yield Context(tmp_path / "checkpoints", 0, 1, 0, 0, "cpu", "this", recorder, tmp_path, meta)
    recorder.close()
