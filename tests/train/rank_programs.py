"""What single ranks do in the tests of this folder; started by `run_ranks`, each program in processes of its own."""

from __future__ import annotations

import copy
import json
import os
import random
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

from bench.checkpoint.trees import flatten, localize, tree_digest
from bench.config import Model, Run, Train
from bench.train.base import TrainState
from bench.train.data import Source, open_data
from bench.train.fingerprint import state_sum
from bench.train.sharding import SHARDINGS
from bench.train.state import build_state, clip_gradients

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


CASES = {  # name of a case: the model and what it changes in the training
    "own": ("own", {}),
    "noisy": ("noisy", {}),
    "own local": ("own", {"sharding": "fsdp1_local"}),
    "noisy local": ("noisy", {"sharding": "fsdp1_local"}),
    "own sharded": ("own", {"sharding": "fsdp1_sharded"}),
    "noisy sharded by parameter": ("noisy", {"sharding": "fsdp1_sharded", "use_orig_params": True}),
}


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


def sums(models: list[str]) -> dict[str, Any]:
    """By model: this rank's part of the checksum of the initial state, and of one with a single changed element."""
    return {model: _sums(model) for model in models}


def _sums(model: str) -> dict[str, int]:
    state = build_state(configured(model), CPU)
    before, rank = state_sum(state.tree(), dist.get_rank()), dist.get_rank()
    with torch.no_grad():
        shard = next(iter(state.parameters.values())).to_local()
        if rank == 0:
            shard.view(-1)[0] += 1.0
    return {"before": before, "changed": state_sum(state.tree(), rank)}


def interrupted(trees: str) -> dict[str, Any]:
    """For every case: six steps, the tree kept in a file, four more steps. The whole of it done twice in a process."""
    return {case: {**_interrupted(case, trees), "again": _interrupted(case, trees)} for case in CASES}


def _interrupted(case: str, trees: str) -> dict[str, Any]:
    model, changes = CASES[case]
    config = configured(model, replace(TRAIN, **changes))
    state, data = build_state(config, CPU), data_of(config)
    before = steps(state, config, 6, data)
    torch.save(localize(state.tree()), Path(trees) / f"{case}-{dist.get_rank()}.pt")
    saved = tree_digest(state.tree())
    after = steps(state, config, 4, data)
    return {"before": before, "saved": saved, "after": after, "end": tree_digest(state.tree())}


def resumed(trees: str) -> dict[str, Any]:
    """For every case: the tree taken from the file into a state of another seed, then four steps."""
    return {case: _resumed(case, trees) for case in CASES}


def _resumed(case: str, trees: str) -> dict[str, Any]:
    model, changes = CASES[case]
    config = configured(model, replace(TRAIN, steps=99, lr=1.0, **changes))  # the schedule comes from the tree
    state, data = build_state(replace(config, seed=7), CPU), data_of(config)
    state.restore(torch.load(Path(trees) / f"{case}-{dist.get_rank()}.pt", weights_only=True))
    restored = tree_digest(state.tree())
    after = steps(state, config, 4, data)
    return {"restored": restored, "after": after, "end": tree_digest(state.tree())}


def compared() -> dict[str, Any]:
    """The same training in every sharding: weights at the start, losses, and a clipped gradient norm."""
    found = {}
    for name, changes in {
        "fsdp2": {},
        "fsdp1_local": {"sharding": "fsdp1_local"},
        "fsdp1_sharded": {"sharding": "fsdp1_sharded"},
        "by parameter": {"sharding": "fsdp1_sharded", "use_orig_params": True},
    }.items():
        # A flat vector cannot decay its matrices alone: without decay all four do the same.
        config = configured("own", replace(TRAIN, weight_decay=0.0, **changes))
        state = build_state(config, CPU)
        model = state.tree()["model"]
        whole = {key: leaf.full_tensor().clone() for key, leaf in model.items()}
        found[name] = {"whole": whole, "losses": steps(state, config, 6, data_of(config))}
    return found


def local_form(model: str) -> dict[str, Any]:
    """What the tree of fsdp1_local holds, beside what torch itself calls LOCAL_STATE_DICT; and its clipping."""
    config = configured(model, replace(TRAIN, sharding="fsdp1_local"))
    state = build_state(config, CPU)
    early = localize(state.tree())
    steps(state, config, 3, data_of(config))
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        tree = state.tree()
        build_state(config, CPU)
    with FullyShardedDataParallel.state_dict_type(state.model, StateDictType.LOCAL_STATE_DICT):
        theirs = {name: (leaf.size(), leaf.local_shards()) for name, leaf in state.model.state_dict().items()}
    same = {}
    for name, (size, shards) in theirs.items():
        mine = tree["model"][name]
        part = shards[0].tensor if shards else torch.empty(0)
        pointers = {mine.to_local().data_ptr(), early["model"][name].data_ptr(), part.data_ptr()}
        same[name] = mine.shape == size and torch.equal(mine.to_local(), part) and (not shards or len(pointers) == 1)
    local = localize({name: tree[name] for name in ("model", "optimizer")})
    held = sum(leaf.nbytes for _, leaf in flatten(local) if leaf.ndim > 0)
    deprecations = [str(each.message) for each in raised if issubclass(each.category, FutureWarning)]
    predicted = config.predicted_checkpoint_bytes
    return {"same": same, "held": held, "predicted": predicted, "deprecations": deprecations, "clip": _clipped(state)}


def _clipped(state: Any) -> tuple[list[Tensor], list[Tensor]]:
    """The gradients after this suite's clipping and after FSDP1's own, from the same start."""
    clipped = []
    for clip in (lambda: clip_gradients(state.parameters.values(), 0.5), lambda: state.model.clip_grad_norm_(0.5)):
        for number, parameter in enumerate(state.parameters.values()):
            generator = torch.Generator().manual_seed(10 * number + dist.get_rank())
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        clip()
        clipped.append([parameter.grad.clone() for parameter in state.parameters.values()])
    return clipped[0], clipped[1]


def held(path: str) -> dict[str, Any]:
    """A state with the shapes of a checkpoint: its shards, two counted steps, and a restore into another one."""
    train = Train(compute="paced", step_s=0.1)
    config = Run(state=f"shapes_of:{path}", train=train, ranks_per_node=dist.get_world_size())
    state, other = build_state(config, CPU), build_state(replace(config, seed=1), CPU)
    local = copy.deepcopy(localize(state.tree()["state"]))
    shapes = {name: tuple(leaf.shape) for name, leaf in state.tensors.items()}
    start = tree_digest(state.tree())
    state.skip_step(8)
    state.skip_step(8)
    after = copy.deepcopy(localize(state.tree()))
    differing = tree_digest(other.tree()["state"]) != tree_digest(after["state"])
    other.restore(after)
    digests = [start, tree_digest(after), tree_digest(other.tree())]
    counted = (other.step, other.position)
    return {"local": local, "shapes": shapes, "digests": digests, "counted": counted, "differing": differing}


def users(targets: list[str], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Users' modules trained for four steps in every sharding: losses, and the names in the tree."""
    return {target: {sharding: _users(target, kwargs, sharding) for sharding in SHARDINGS} for target in targets}


def _users(target: str, kwargs: dict[str, Any], sharding: str) -> dict[str, Any]:
    train = replace(TRAIN, weight_decay=0.0, sharding=sharding)
    model = Model(target=target, kwargs=kwargs, vocab_size=257)
    config = Run(model=model, train=train, ranks_per_node=dist.get_world_size())
    state = build_state(config, CPU)
    return {"losses": steps(state, config, 4, data_of(config)), "names": list(state.tree()["model"])}


PROGRAMS = {
    "users": users,
    "whole_weights": whole_weights,
    "sums": sums,
    "interrupted": interrupted,
    "resumed": resumed,
    "compared": compared,
    "local_form": local_form,
    "held": held,
}


def main() -> None:
    program, directory, arguments = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(directory / "store")), rank=rank, world_size=world_size)
    torch.save(PROGRAMS[program](**arguments), directory / f"rank{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
