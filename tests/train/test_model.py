"""The decoder: its size, what it computes, how it is initialised; and users' own modules."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
import yaml
from torch import Tensor, nn

from bench.config import Model
from bench.errors import BadInput
from bench.train.model import (
    INIT_BLOCK_ELEMENTS,
    Attention,
    Decoder,
    build_model,
    fill_normal,
    loss,
    rotate,
    rotation,
)

CONF = Path(__file__).parents[2] / "conf" / "model"
NAMES = ("tiny", "small", "gpt2_124m", "llama_1b", "llama3_8b")
SMALL = Model(name="test", vocab_size=50, dim=24, layers=2, heads=6, kv_heads=2, ffn_dim=32, max_seq_len=16)


def configured(name: str) -> Model:
    return Model(**yaml.safe_load((CONF / f"{name}.yaml").read_text()))


def initialised(config: Model = SMALL, seed: int = 1) -> Decoder:
    model = Decoder(config)
    model.init_weights(seed)
    return model


def tokens(length: int = 16) -> Tensor:
    return torch.randint(0, SMALL.vocab_size, (2, length), generator=torch.Generator().manual_seed(0))


# --- sizes
@pytest.mark.parametrize("name", NAMES)
def test_the_configuration_counts_the_parameters_that_are_built(name: str) -> None:
    config = configured(name)
    with torch.device("meta"):
        built = build_model(config)
    assert sum(parameter.numel() for parameter in built.parameters()) == config.parameters
    assert config.name == name


def test_every_configured_model_is_tested_and_gives_every_field() -> None:
    assert {path.stem for path in CONF.glob("*.yaml")} == set(NAMES)
    for name in NAMES:
        assert set(yaml.safe_load((CONF / f"{name}.yaml").read_text())) == {field.name for field in fields(Model)}


def test_the_published_sizes_are_met() -> None:
    assert configured("llama3_8b").parameters == 8_030_261_248  # 8.03 billion
    assert configured("llama_1b").parameters == 1_235_814_400  # 1.24 billion
    assert configured("gpt2_124m").parameters == pytest.approx(124e6, rel=0.005)
    assert 120e6 < 12 * configured("tiny").parameters < 160e6


# --- what it computes
def test_logits_depend_on_no_later_token() -> None:
    model, before = initialised(), tokens()
    after = before.clone()
    after[:, 9] = (after[:, 9] + 1) % SMALL.vocab_size
    first, second = model(before), model(after)
    assert first.shape == (2, 16, SMALL.vocab_size)
    torch.testing.assert_close(first[:, :9], second[:, :9])
    assert (first[:, 9:] - second[:, 9:]).abs().amax(dim=(0, 2)).min() > 1e-6  # every later position sees the change


def test_attention_agrees_with_its_formula_written_out() -> None:
    torch.manual_seed(0)
    attention, x, turns = Attention(SMALL), torch.randn(2, 16, 24), rotation(4, 16, 10000.0)
    q, k, v = (project(x).view(2, 16, -1, 4).transpose(1, 2) for project in (attention.q, attention.k, attention.v))
    q, k, v = rotate(q, turns), rotate(k, turns).repeat_interleave(3, dim=1), v.repeat_interleave(3, dim=1)
    scores = (q @ k.transpose(-2, -1) / math.sqrt(4)).masked_fill(torch.ones(16, 16).triu(1).bool(), -torch.inf)
    expected = attention.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 16, 24))
    torch.testing.assert_close(attention(x, turns), expected)


def test_rotated_products_depend_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(8), torch.randn(8)
    turns = rotation(8, 32, 10000.0)
    products = rotate(q.expand(1, 1, 32, 8), turns)[0, 0] @ rotate(k.expand(1, 1, 32, 8), turns)[0, 0].T
    for distance in (0, 1, 5):
        same = products.diagonal(distance)
        torch.testing.assert_close(same, same[:1].expand_as(same), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(products[0, 0], products[0, 5])


def test_a_tied_head_is_the_embedding() -> None:
    model = initialised(replace(SMALL, tie_embeddings=True))
    assert "head.weight" not in dict(model.named_parameters())
    loss(model(tokens()), tokens()).backward()
    unseen = sorted(set(range(SMALL.vocab_size)) - set(tokens().flatten().tolist()))
    assert model.embed.weight.grad[unseen].abs().sum(1).min() > 0  # only the head reaches rows that no token looked up


def test_the_loss_of_equal_logits_is_the_logarithm_of_the_vocabulary() -> None:
    value = loss(torch.zeros(2, 16, 50, dtype=torch.bfloat16), tokens())
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(math.log(50))


# --- initialisation
def test_weights_depend_on_the_seed_and_on_nothing_else() -> None:
    torch.manual_seed(1)
    one = initialised(seed=5).state_dict()
    torch.manual_seed(2)
    same, other = initialised(seed=5).state_dict(), initialised(seed=6).state_dict()
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["embed.weight"], other["embed.weight"])
    assert not torch.equal(one["embed.weight"], one["head.weight"])


def test_weights_have_the_intended_spread() -> None:
    weights = initialised(replace(SMALL, dim=96, ffn_dim=128, layers=8)).state_dict()
    assert weights["blocks.3.ffn.up.weight"].std().item() == pytest.approx(0.02, rel=0.03)
    assert weights["blocks.3.ffn.down.weight"].std().item() == pytest.approx(0.02 / 4, rel=0.03)
    assert weights["blocks.3.attention.out.weight"].std().item() == pytest.approx(0.02 / 4, rel=0.03)
    assert torch.equal(weights["norm.weight"], torch.ones(96))


def test_a_matrix_of_many_blocks_is_filled_to_its_last_row_without_repetition() -> None:
    columns = INIT_BLOCK_ELEMENTS // 8
    matrix = torch.zeros(20, columns)  # two blocks of 8 rows and one of 4
    fill_normal(matrix, 1.0, (1, 2))
    assert matrix.std(dim=1).sub(1.0).abs().max() < 0.02
    assert (matrix @ matrix.T / columns - torch.eye(20)).abs().max() < 0.02  # rows are unrelated, also across blocks


# --- users' own modules
class Users(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)


def target(name: str) -> str:
    return f"{__name__}.{name}"


def test_a_users_class_is_called_with_its_arguments() -> None:
    built = build_model(Model(target=target("Users"), kwargs={"width": 3}))
    assert isinstance(built, Users)
    assert built.layer.weight.shape == (3, 3)


@pytest.mark.parametrize(
    ("wrong", "kwargs", "complaint"),
    [
        ("Users", {}, "model.target: must be package.module.Class"),
        ("no_such_package.Net", {}, "model.target: cannot import no_such_package"),
        (target("NoSuchClass"), {}, "has no such name"),
        (target("configured"), {}, "is not a class derived from torch.nn.Module"),
        (target("Path"), {}, "is not a class derived from torch.nn.Module"),
        (target("Users"), {"depth": 3}, "model.kwargs: .* refused"),
    ],
)
def test_a_users_class_that_cannot_be_built_is_bad_input(wrong: str, kwargs: dict[str, int], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint) as caught:
        build_model(Model(target=wrong, kwargs=kwargs))
    assert "\n" not in str(caught.value)
