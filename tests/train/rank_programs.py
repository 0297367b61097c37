"""What single ranks do in the tests of this folder; started by `run_ranks`, each program in processes of its own."""

from __future__ import annotations

import json
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bench.checkpoint.trees import localize, tree_digest
from bench.config import Model, Run, Train
from bench.train.data import Source, open_data
from bench.train.state import TrainState, build_state

CPU = torch.device("cpu")
# 257 rows and 20 do not divide by three; of the 4 key rows of `narrow`, the last of three ranks gets none.
OWN = Model(name="own", vocab_size=257, dim=12, layers=2, heads=2, kv_heads=1, ffn_dim=20, max_seq_len=32)
NARROW = replace(OWN, name="narrow", dim=8, kv_heads=1, heads=2, ffn_dim=4)
NOISY = Model(name="noisy", target="rank_programs.Noisy", vocab_size=257)
MODELS = {"own": OWN, "narrow": NARROW, "noisy": NOISY}
TRAIN = Train(steps=12, seq_len=16, lr=1e-2, lr_warmup_steps=3)


class Noisy(nn.Module):
    """A user's model that draws from both of the generators that a resume has to bring back."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(257, 12)
        self.layers = nn.ModuleList([nn.Linear(12, 12), nn.Linear(12, 12)])
        self.head = nn.Linear(12, 257)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, tokens: Tensor) -> Tensor:
        self.seen += 1
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + nn.functional.dropout(layer(x), 0.3) * random.gauss(1.0, 0.1)
        return self.head(x)


def configured(model: str, train: Train = TRAIN) -> Run:
    return Run(model=MODELS[model], train=train, ranks_per_node=dist.get_world_size())


def data_of(config: Run) -> Source:
    return open_data(config.data, config.model.vocab_size, config.seed, config.train.seq_len)


def steps(state: TrainState, config: Run, count: int, data: Source) -> list[float]:
    """Train `count` steps; the loss of each, averaged over all ranks."""
    losses = []
    for _ in range(count):
        rank, world_size, train = dist.get_rank(), dist.get_world_size(), config.train
        batch = data.batch(state.position, rank, world_size, train.batch_size, train.seq_len)
        mean = state.train_step(*batch) / world_size
        dist.all_reduce(mean)
        losses.append(mean.item())
    return losses


def whole_weights(model: str, batch_size: int) -> dict[str, Any]:
    """The initial weights, put together from all shards, and the losses of three steps from them."""
    config = configured(model, replace(TRAIN, batch_size=batch_size))
    state = build_state(config, CPU)
    whole = {name: parameter.detach().full_tensor().clone() for name, parameter in state.parameters.items()}
    shard_rows = {name: parameter.to_local().shape[0] for name, parameter in state.parameters.items()}
    return {"whole": whole, "shard_rows": shard_rows, "losses": steps(state, config, 3, data_of(config))}


def interrupted(trees: str) -> dict[str, Any]:
    """For both models: six steps, the tree kept in a file, four more steps. The whole of it done twice in a process."""
    return {name: {**_interrupted(name, trees), "again": _interrupted(name, trees)} for name in ("own", "noisy")}


def _interrupted(model: str, trees: str) -> dict[str, Any]:
    config = configured(model)
    state, data = build_state(config, CPU), data_of(config)
    before = steps(state, config, 6, data)
    torch.save(localize(state.tree()), Path(trees) / f"{model}-{dist.get_rank()}.pt")
    saved = tree_digest(state.tree())
    after = steps(state, config, 4, data)
    return {"before": before, "saved": saved, "after": after, "end": tree_digest(state.tree())}


def resumed(trees: str) -> dict[str, Any]:
    """For both models: the tree taken from the file into a state of another seed, then four steps."""
    return {name: _resumed(name, trees) for name in ("own", "noisy")}


def _resumed(model: str, trees: str) -> dict[str, Any]:
    config = configured(model, replace(TRAIN, steps=99, lr=1.0))  # the schedule comes from the tree
    state, data = build_state(replace(config, seed=7), CPU), data_of(config)
    state.restore(torch.load(Path(trees) / f"{model}-{dist.get_rank()}.pt", weights_only=True))
    restored = tree_digest(state.tree())
    after = steps(state, config, 4, data)
    return {"restored": restored, "after": after, "end": tree_digest(state.tree())}


PROGRAMS = {"whole_weights": whole_weights, "interrupted": interrupted, "resumed": resumed}


def main() -> None:
    program, directory, arguments = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(directory / "store")), rank=rank, world_size=world_size)
    torch.save(PROGRAMS[program](**arguments), directory / f"rank{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
