"""The trainer's step against the same model in a bare loop: what the experiment adds to what it measures."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
import yaml

from bench.config import Checkpoint, Model, Run
from bench.design import Segment
from bench.record import Recorder

torch = pytest.importorskip("torch")
dist = torch.distributed

BOUND_PERCENT = 1.0
PAIRS = 80
WARMUP_STEPS = 4
TINY = Path(__file__).resolve().parents[2] / "conf" / "model" / "tiny.yaml"
META = {"role": "worker", "launch": 0, "node": 0, "local_rank": 0, "rank": 0, "world_size": 1, "incarnation": 0}


@pytest.fixture
def trainer(tmp_path) -> Iterator:
    from bench.train.data import open_data
    from bench.train.instrument import Instrument
    from bench.train.loop import Trainer
    from bench.train.state import build_state
    from bench.train.worker import quiet_collector

    model = Model(**yaml.safe_load(TINY.read_text()))
    config = Run(ranks_per_node=1, model=model, checkpoint=Checkpoint(arms=["none"]))
    device, threads = torch.device("cpu"), torch.get_num_threads()
    torch.set_num_threads(config.train.threads)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    recorder = Recorder(tmp_path, **META, token="a5b3c1d7e9f00112")
    quiet_collector(collect=True)
    state, data = build_state(config, device), open_data(config.data, config.model.vocab_size, config.seed)
    yield Trainer(config, state, data, {}, Instrument(recorder, device))
    gc.unfreeze()
    gc.enable()
    recorder.close()
    dist.destroy_process_group()
    torch.set_num_threads(threads)


def bare_step(trainer) -> None:
    """What anybody would write: batch, forward, backward, clip, update. No spans, no status shared with other ranks."""
    from bench.train.model import loss
    from bench.train.state import clip_gradients

    state, train = trainer.state, trainer.config.train
    inputs, targets = trainer.data.batch(state.position, 0, 1, train.batch_size, train.seq_len)
    loss(state.model(inputs), targets).backward()
    clip_gradients(state.parameters.values(), train.clip_norm)
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)


def seconds(action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def test_the_trainers_step_takes_as_long_as_a_bare_one(trainer, bounds):
    segment = Segment("none", 0, True)
    timed = {
        "trainer": lambda: trainer.step("control", segment, 0),
        "bare": lambda: bare_step(trainer),
    }
    for action in [*timed.values()] * WARMUP_STEPS:
        action()
    excess, milliseconds = [], []
    for pair in range(PAIRS):
        order = ("trainer", "bare") if pair % 2 else ("bare", "trainer")  # whoever goes first, goes first half the time
        took = {name: seconds(timed[name]) for name in order}
        excess.append((took["trainer"] / took["bare"] - 1) * 100)
        milliseconds.append(took["bare"] * 1e3)
    bounds.hold(f"the trainer's step, above a bare one of {median(milliseconds):.0f} ms", excess, BOUND_PERCENT, "%")
