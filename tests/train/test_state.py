"""The training state: exact resume, what a checkpoint holds, and what every step does to it."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bench.checkpoint.trees import flatten, localize, tree_digest
from bench.config import Model, Run, Train
from bench.train.base import StateMismatch, TrainState
from bench.train.data import open_data
from bench.train.state import Schedule, build_state, clip_gradients

CPU = torch.device("cpu")
CONF = Path(__file__).parents[2] / "conf"
MODEL = Model(name="test", vocab_size=256, dim=16, layers=2, heads=2, kv_heads=1, ffn_dim=24, max_seq_len=32)
TRAIN = Train(steps=12, seq_len=16)

CASES = ["own", "noisy", "own local", "noisy local", "own sharded", "noisy sharded by parameter"]

Ranks = Callable[..., list[dict[str, Any]]]


def built(train: Train = TRAIN, model: Model = MODEL) -> TrainState:
    return build_state(Run(model=model, train=train, ranks_per_node=1), CPU)


def make_steps(state: TrainState, count: int, batch_size: int = 2, seq_len: int = 16) -> list[float]:
    data = open_data(Run().data, 256, 42)
    return [state.train_step(*data.batch(state.position, 0, 1, batch_size, seq_len)).item() for _ in range(count)]


def copied(state: TrainState) -> dict[str, Any]:
    return copy.deepcopy(localize(state.tree()))


# --- exact resume, in real ranks
@pytest.fixture(scope="module")
def interrupted_and_resumed(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    trees = str(tmp_path_factory.mktemp("trees"))
    return ranks(2, "interrupted", trees=trees), ranks(2, "resumed", trees=trees)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("model", CASES)
def test_fresh_ranks_resume_to_the_same_losses_and_the_same_state_bit_by_bit(
    interrupted_and_resumed: tuple[Any, Any], model: str
) -> None:
    assert list(interrupted_and_resumed[0][0]) == CASES
    for unbroken, resumed in zip(*interrupted_and_resumed, strict=True):
        assert resumed[model]["restored"] == unbroken[model]["saved"]
        assert resumed[model]["after"] == unbroken[model]["after"]
        assert resumed[model]["end"] == unbroken[model]["end"]
        assert unbroken[model]["end"] != unbroken[model]["saved"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("model", CASES)
def test_two_builds_from_one_seed_train_alike_bit_by_bit(interrupted_and_resumed: tuple[Any, Any], model: str) -> None:
    for unbroken in interrupted_and_resumed[0]:
        again = unbroken[model].pop("again")
        assert again == unbroken[model]


@pytest.mark.timeout(600)
def test_weights_and_losses_do_not_depend_on_the_world_size(ranks: Ranks) -> None:
    (one,) = ranks(1, "whole_weights", model="narrow", batch_size=6)
    three = ranks(3, "whole_weights", model="narrow", batch_size=2)
    for rank in three:
        assert rank["whole"].keys() == one["whole"].keys()
        assert all(torch.equal(rank["whole"][name], one["whole"][name]) for name in one["whole"])
        assert rank["losses"] == pytest.approx(one["losses"], rel=1e-5)  # sums in another order, else the same
    assert three[2]["shard_rows"]["blocks.0.attention.k.weight"] == 0  # an empty shard trains along


# --- a user's own module
USERS_MODULE = """
from collections import namedtuple
from torch import nn

Output = namedtuple("Output", "logits")


class Bare(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Embedding(257, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 257)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x).tanh()
        return self.head(x)


class Wrapping(Bare):
    def forward(self, tokens):
        return Output(logits=super().forward(tokens))
"""


@pytest.mark.timeout(600)
def test_a_users_module_trains_in_every_sharding_bare_or_with_its_logits_in_a_record(
    ranks: Ranks, tmp_path: Path
) -> None:
    (tmp_path / "users_module.py").write_text(USERS_MODULE)
    targets, kwargs = ["users_module.Bare", "users_module.Wrapping"], {"width": 8, "depth": 2}
    ranks_found = ranks(2, "users", python_path=str(tmp_path), targets=targets, kwargs=kwargs)
    assert ranks_found[0] == ranks_found[1]
    for found in ranks_found[0].values():
        losses = found["fsdp2"]["losses"]
        assert losses[-1] < losses[0] == pytest.approx(math.log(257), abs=0.5)
        for sharding in ("fsdp1_local", "fsdp1_sharded"):
            assert found[sharding]["losses"] == pytest.approx(losses, rel=1e-5)
        assert "layers.1.bias" in found["fsdp2"]["names"]
        assert "layers.1._flat_param" in found["fsdp1_local"]["names"]
        assert sorted(found["fsdp1_sharded"]["names"]) == sorted(found["fsdp2"]["names"])


# --- what a checkpoint holds
@pytest.mark.usefixtures("group_of_one")
class TestTree:
    def test_tensors_alias_the_live_ones_also_when_the_tree_was_taken_before_the_last_steps(self) -> None:
        state = built()
        make_steps(state, 1)
        early = localize(state.tree())
        digest = tree_digest(early["model"])
        make_steps(state, 2)
        assert tree_digest(early["model"]) != digest
        assert tree_digest(early["model"]) == tree_digest(state.tree()["model"])
        assert tree_digest(early["optimizer"]) == tree_digest(state.tree()["optimizer"])
        live = dict(state.model.named_parameters())["blocks.0.ffn.up.weight"]
        assert early["model"]["blocks.0.ffn.up.weight"].data_ptr() == live.to_local().data_ptr()

    def test_has_the_same_names_before_the_first_step_as_after_it(self) -> None:
        state = built()
        before = [path for path, _ in flatten(state.tree())]
        make_steps(state, 1)
        assert [path for path, _ in flatten(state.tree())] == before

    def test_counts_steps_and_samples_and_keeps_the_optimizers_own_counters(self) -> None:
        state = built()
        make_steps(state, 3, batch_size=4)
        tree = state.tree()
        assert (tree["step"], tree["position"]) == (3, 12)
        assert {float(moments["step"]) for moments in tree["optimizer"].values()} == {3.0}
        state.skip_step(8)
        assert (state.step, state.position) == (4, 20)

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_holds_the_bytes_that_the_configuration_predicts(self, dtype: str) -> None:
        config = Run(model=MODEL, train=Train(seq_len=16, param_dtype=dtype), ranks_per_node=1)
        state = build_state(config, CPU)
        make_steps(state, 2)
        tree = localize(state.tree())
        big = {name: tree[name] for name in ("model", "optimizer")}
        held = sum(leaf.nbytes for _, leaf in flatten(big) if leaf.ndim > 0)  # without the counters
        assert held == config.predicted_checkpoint_bytes

    def test_gives_out_dicts_that_a_caller_may_change(self) -> None:
        state = built()
        make_steps(state, 1)
        tree = state.tree()
        tree["model"].clear()
        for moments in tree["optimizer"].values():
            moments.clear()
        assert len(flatten(state.tree())) == len(flatten(built().tree()))


@pytest.mark.usefixtures("group_of_one")
class TestRestore:
    def test_rewinds_in_place_and_training_repeats_itself(self) -> None:
        state = built()
        make_steps(state, 2)
        tree, digest = copied(state), tree_digest(state.tree())
        first = make_steps(state, 3)
        state.restore(tree)
        assert tree_digest(state.tree()) == digest
        assert make_steps(state, 3) == first

    def test_brings_back_the_random_numbers(self) -> None:
        state = built()
        random.gauss(0.0, 1.0)  # leaves the second number of its pair behind
        tree = copied(state)
        expected = torch.rand(3), random.gauss(0.0, 1.0), random.random()
        state.restore(tree)
        got = torch.rand(3), random.gauss(0.0, 1.0), random.random()
        assert torch.equal(got[0], expected[0])
        assert got[1:] == expected[1:]

    def test_refuses_a_tree_that_does_not_fit_and_changes_nothing(self) -> None:
        state = built()
        make_steps(state, 1)
        digest = tree_digest(state.tree())
        last = "blocks.1.ffn.down.weight"
        for spoil, complaint in (
            (lambda tree: tree["model"].update({last: torch.zeros(3)}), last),
            (lambda tree: tree["model"].update({last: tree["model"][last].double()}), "float64"),
            (lambda tree: tree["optimizer"].pop(last), last),
            (lambda tree: tree.pop("rng"), "rng"),
        ):
            tree = map_to_zero(copied(state))
            spoil(tree)
            with pytest.raises(StateMismatch, match=complaint):
                state.restore(tree)
            assert tree_digest(state.tree()) == digest


def map_to_zero(tree: dict[str, Any]) -> dict[str, Any]:
    for _, leaf in flatten({name: tree[name] for name in ("model", "optimizer")}):
        leaf.zero_()
    return tree


# --- the step
@pytest.mark.usefixtures("group_of_one")
def test_the_small_model_learns_source_text() -> None:
    model = Model(**yaml.safe_load((CONF / "model" / "small.yaml").read_text()))
    state = built(Train(steps=48, lr=3e-3, batch_size=8), model)
    losses = make_steps(state, 48, batch_size=8, seq_len=64)
    assert losses[0] == pytest.approx(math.log(256), abs=0.2)  # knows nothing yet
    assert sum(losses[-8:]) / 8 < 3.2


@pytest.mark.usefixtures("group_of_one")
def test_the_first_update_moves_every_parameter_by_at_most_the_scheduled_rate() -> None:
    state = built(Train(steps=12, seq_len=16, lr=1e-2, lr_warmup_steps=10, weight_decay=0.0))
    before = {name: parameter.detach().to_local().clone() for name, parameter in state.parameters.items()}
    make_steps(state, 1)
    for name, parameter in state.parameters.items():
        moved = (parameter.detach().to_local() - before[name]).abs().max().item()
        assert 0.0 < moved <= 1e-3 * 1.001, name  # Adam's first update is lr x sign(gradient): a tenth of the peak


@pytest.mark.usefixtures("group_of_one")
def test_matrices_decay_and_vectors_do_not() -> None:
    state = built(Train(steps=12, seq_len=16, weight_decay=0.5))
    decay = {id(p): group["weight_decay"] for group in state.optimizer.param_groups for p in group["params"]}
    assert {decay[id(p)] for p in state.parameters.values() if p.ndim >= 2} == {0.5}
    assert {decay[id(p)] for p in state.parameters.values() if p.ndim < 2} == {0.0}


@pytest.mark.usefixtures("group_of_one")
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clipping_agrees_with_pytorchs(max_norm: float) -> None:
    state = built()
    parameters = list(state.parameters.values())
    for index, parameter in enumerate(parameters):
        torch.manual_seed(index)
        parameter.grad = torch.zeros_like(parameter)
        parameter.grad.to_local().normal_()
    plain = [torch.nn.Parameter(torch.zeros_like(p.to_local())) for p in parameters]
    for mine, theirs in zip(parameters, plain, strict=True):
        theirs.grad = mine.grad.to_local().clone()
    clip_gradients(parameters, max_norm)
    torch.nn.utils.clip_grad_norm_(plain, max_norm)
    for mine, theirs in zip(parameters, plain, strict=True):
        torch.testing.assert_close(mine.grad.to_local(), theirs.grad)


@pytest.mark.usefixtures("group_of_one")
def test_bfloat16_state_keeps_the_rotary_angles_exact() -> None:
    exact = built().model.turns
    rounded = built(Train(seq_len=16, param_dtype="bfloat16"))
    assert rounded.model.embed.weight.dtype == torch.bfloat16
    assert torch.equal(rounded.model.turns, exact)


# --- the schedule
def test_the_rate_warms_up_linearly_and_ends_at_a_tenth_of_the_peak() -> None:
    schedule = Schedule(peak_lr=1.0, warmup_steps=4, total_steps=24)
    assert [schedule.lr(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert schedule.lr(14) == pytest.approx(0.55)  # half way down the cosine
    assert schedule.lr(24) == pytest.approx(0.1)
    assert schedule.lr(10_000) == pytest.approx(0.1)


@given(warmup=st.integers(0, 50), total=st.integers(1, 200), step=st.integers(0, 400))
def test_the_rate_is_never_zero_and_falls_after_the_warm_up(warmup: int, total: int, step: int) -> None:
    schedule = Schedule(2.0, warmup, total)
    assert 0.0 < schedule.lr(step) <= 2.0
    if step >= warmup:
        assert schedule.lr(step + 1) <= schedule.lr(step)
