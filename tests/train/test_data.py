"""Training data: the order of samples, their content, and input that cannot serve a run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bench.config import Data, Train
from bench.errors import BadInput
from bench.train import data_check
from bench.train.data import Corpus, Source, open_data, permuted
from bench.train.data_check import check, source_text

ROOT = Path(__file__).parents[2]


def token_file(directory: Path, tokens: Any, dtype: str = "uint16") -> Data:
    path = directory / "tokens.bin"
    np.asarray(tokens, dtype=dtype).tofile(path)
    return Data(name="tokens", path=str(path), dtype=dtype)


@pytest.fixture(params=["source_text", "tokens", "synthetic"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    if request.param == "tokens":
        rng = np.random.default_rng(0)
        return open_data(token_file(tmp_path, rng.integers(0, 300, 50_000)), 300, 42, 16)
    return open_data(Data(name=request.param, max_bytes=100_000), 300, 42, 16)


# --- every source
def test_a_batch_holds_inputs_and_the_tokens_that_follow_them(source: Source) -> None:
    inputs, targets = source.batch(0, 0, 1, 4, 16)
    assert (inputs.dtype, targets.dtype) == (torch.int64, torch.int64)
    assert inputs.shape == targets.shape == (4, 16)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert 0 <= int(inputs.min()) <= int(inputs.max()) < 300


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6, 12])
def test_all_ranks_together_see_the_same_samples_at_any_world_size(source: Source, world_size: int) -> None:
    reference = source.batch(36, 0, 1, 12, 16)[0]
    share = 12 // world_size
    parts = [source.batch(36, rank, world_size, share, 16)[0] for rank in range(world_size)]
    assert torch.equal(torch.cat(parts), reference)


def test_a_resume_at_a_position_goes_on_with_the_samples_that_follow(source: Source) -> None:
    both = source.batch(0, 0, 1, 8, 16)[0]
    assert torch.equal(source.batch(4, 0, 1, 4, 16)[0], both[4:])


def test_a_rank_outside_of_the_world_is_refused(source: Source) -> None:
    with pytest.raises(ValueError, match="rank 2"):
        source.batch(0, 2, 2, 4, 16)


# --- the order
@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_the_order_is_a_permutation(size: int, key: int) -> None:
    assert sorted(permuted(index, size, key) for index in range(size)) == list(range(size))


def test_the_order_looks_random() -> None:
    order = np.array([permuted(index, 5000, 7) for index in range(5000)])
    assert abs(np.corrcoef(order, np.arange(5000))[0, 1]) < 0.05
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
    assert len(set(np.diff(order))) > 3000  # no constant stride


def test_a_corpus_of_a_trillion_samples_costs_no_table() -> None:
    assert 0 <= permuted(123_456_789_012, 10**12, 3) < 10**12


def test_every_epoch_visits_each_sample_once_in_an_order_of_its_own() -> None:
    corpus = Corpus(np.arange(1001), seed=5)  # 100 samples of 10 tokens; the last token is only a target
    epochs = [[int(corpus.sample(epoch * 100 + i, 10)[0]) for i in range(100)] for epoch in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(0, 1000, 10))
    assert epochs[0] != epochs[1]
    assert epochs[0] != [int(Corpus(np.arange(1001), seed=6).sample(i, 10)[0]) for i in range(100)]


# --- single sources
def test_source_text_is_python_code_and_the_same_on_every_reading() -> None:
    text = source_text(200_000)
    assert len(text) == 200_000
    assert b"import " in text.tobytes()
    assert np.array_equal(text, source_text(200_000))


def test_synthetic_tokens_depend_on_seed_and_sample_and_fill_the_vocabulary() -> None:
    one, same, other = (open_data(Data(name="synthetic"), 100, seed) for seed in (1, 1, 2))
    assert torch.equal(one.batch(8, 0, 1, 4, 64)[0], same.batch(8, 0, 1, 4, 64)[0])
    assert not torch.equal(one.batch(8, 0, 1, 4, 64)[0], other.batch(8, 0, 1, 4, 64)[0])
    assert set(one.batch(0, 0, 1, 64, 64)[0].flatten().tolist()) == set(range(100))


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int32", "int64"])
def test_token_files_of_every_type_read_back_what_was_written(tmp_path: Path, dtype: str) -> None:
    config = token_file(tmp_path, np.arange(1000) % 256, dtype)
    inputs, targets = open_data(config, 256, 42, 999).batch(0, 0, 1, 1, 999)
    assert inputs[0].tolist() == [token % 256 for token in range(999)]
    assert targets[0, -1] == 999 % 256


# --- input that cannot serve a run: field, rule, remedy
def test_a_good_configuration_passes_the_check(tmp_path: Path) -> None:
    check(token_file(tmp_path, np.arange(1000)), 1000, 999)
    check(Data(), 256, 64)
    check(Data(name="synthetic"), 10, 64)


def refusal(config: Data, vocab_size: int = 256, seq_len: int = 16) -> str:
    with pytest.raises(BadInput) as caught:
        check(config, vocab_size, seq_len)
    with pytest.raises(BadInput):
        open_data(config, vocab_size, 42, seq_len)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    assert "is not a file; give a flat binary file" in refusal(Data(name="tokens", path=str(tmp_path / "none")))
    assert refusal(Data(name="tokens", path=str(tmp_path))).startswith("data.path: ")


def test_an_empty_or_too_short_file_is_refused(tmp_path: Path) -> None:
    assert "is empty" in refusal(token_file(tmp_path, []))
    assert "train.seq_len + 1 = 17 tokens, but" in refusal(token_file(tmp_path, np.arange(16)))


def test_a_file_of_another_element_type_is_refused(tmp_path: Path) -> None:
    config = token_file(tmp_path, np.zeros(101), "uint16")
    assert refusal(Data(name="tokens", path=config.path, dtype="uint32")).startswith("data.dtype: ")


@pytest.mark.parametrize("wrong", [256, -1])
def test_a_token_outside_of_the_vocabulary_is_refused(tmp_path: Path, wrong: int) -> None:
    config = token_file(tmp_path, [0] * 50 + [wrong] + [0] * 50, "int32")
    text = refusal(config)
    assert f"token id {wrong}, outside of 0..255" in text
    assert "raise model.vocab_size" in text


def test_a_token_that_the_sampled_check_missed_is_refused_when_it_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_check, "SCANNED_TOKENS", 640)  # 64 stretches of 10 tokens
    tokens = np.zeros(64_000, dtype=np.int64)
    tokens[500] = 256
    source = open_data(token_file(tmp_path, tokens), 256, 42, 100)
    with pytest.raises(BadInput, match="token id 256"):
        source.batch(0, 0, 1, 639, 100)


def test_the_sampled_check_sees_both_ends_of_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_check, "SCANNED_TOKENS", 640)
    for place in (0, -1):
        tokens = np.zeros(64_000, dtype=np.int64)
        tokens[place] = 999
        assert "token id 999" in refusal(token_file(tmp_path, tokens))


def test_a_vocabulary_without_all_bytes_or_too_little_text_is_refused() -> None:
    assert refusal(Data(), vocab_size=255).startswith("model.vocab_size: must be 256 or more")
    assert refusal(Data(max_bytes=10)).startswith("data.max_bytes: ")


def test_the_check_needs_no_torch() -> None:
    program = (
        "import sys; from bench.config import Data; from bench.train.data_check import check; "
        "check(Data(), 256, 64); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)


# --- conf
def test_every_configured_source_gives_every_field() -> None:
    found = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "conf" / "data").glob("*.yaml")}
    assert set(found) == {"source_text", "tokens", "synthetic"}
    for name, keys in found.items():
        assert set(keys) == {field.name for field in fields(Data)}
        assert Data(**keys | ({"path": "some.bin"} if name == "tokens" else {})).name == name


def test_the_configured_training_step_is_the_default_one() -> None:
    assert Train(**yaml.safe_load((ROOT / "conf" / "train" / "default.yaml").read_text())) == Train()
