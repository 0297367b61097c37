"""Training data: which samples a step sees depends on the seed and the position alone, never on the world size.

Samples are numbered 0, 1, 2 ... in the order in which training meets them; `position` is the number of samples that all
ranks together have consumed. It is all that a resume needs to go on with exactly the samples that follow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bench.config import Data
from bench.train.data_check import check, require_in_vocabulary, source_text, token_file

MASK_64 = (1 << 64) - 1
ROUNDS = 4  # of the Feistel network: enough for a permutation that looks random (Luby and Rackoff 1988)


class Source(ABC):
    """A numbered sequence of samples without end."""

    def batch(self, position: int, rank: int, world_size: int, batch_size: int, seq_len: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one rank and step, each [batch_size, seq_len] int64 on the CPU.

        The ranks take consecutive runs of batch_size samples from `position` on; the next step's position is
        position + world_size x batch_size.
        """
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is outside 0..{world_size - 1}")
        first = position + rank * batch_size
        rows = np.stack([self.sample(number, seq_len) for number in range(first, first + batch_size)])
        tokens = torch.from_numpy(rows.astype(np.int64))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    @abstractmethod
    def sample(self, number: int, seq_len: int) -> npt.NDArray[np.integer]:
        """Sample `number`, [seq_len + 1] token ids: all but the last are inputs, all but the first are targets."""


class Corpus(Source):
    """A long row of tokens, cut into samples; every epoch visits each sample once, in an order of its own."""

    def __init__(self, tokens: npt.NDArray[np.integer], seed: int) -> None:
        self.tokens = tokens
        self.seed = seed

    def sample(self, number: int, seq_len: int) -> npt.NDArray[np.integer]:
        samples = (len(self.tokens) - 1) // seq_len
        epoch, index = divmod(number, samples)
        start = permuted(index, samples, mix(self.seed + mix(epoch))) * seq_len
        return self.tokens[start : start + seq_len + 1]


class TokenFile(Corpus):
    """A memory-mapped file of token ids, too large to be checked in full before the run: each sample is checked."""

    def __init__(self, config: Data, vocab_size: int, seed: int) -> None:
        super().__init__(token_file(config), seed)
        self.config = config
        self.vocab_size = vocab_size

    def sample(self, number: int, seq_len: int) -> npt.NDArray[np.integer]:
        tokens = super().sample(number, seq_len)
        require_in_vocabulary(tokens, self.vocab_size, self.config)
        return tokens


class Synthetic(Source):
    """Uniformly random token ids: nothing to learn, nothing to read."""

    def __init__(self, vocab_size: int, seed: int) -> None:
        self.vocab_size = vocab_size
        self.seed = seed

    def sample(self, number: int, seq_len: int) -> npt.NDArray[np.integer]:
        return np.random.default_rng((self.seed, number)).integers(0, self.vocab_size, seq_len + 1)


def open_data(config: Data, vocab_size: int, seed: int, seq_len: int = 1) -> Source:
    """The configured source; BadInput, with the remedy, when it cannot serve samples of `seq_len` tokens."""
    check(config, vocab_size, seq_len)
    if config.name == "tokens":
        return TokenFile(config, vocab_size, seed)
    if config.name == "source_text":
        return Corpus(source_text(config.max_bytes), seed)
    return Synthetic(vocab_size, seed)


def permuted(index: int, size: int, key: int) -> int:
    """The image of `index` under a permutation of 0..size-1 chosen by `key`, in constant time and memory.

    A stored permutation of a large corpus takes gigabytes a rank, and its renewal would make the first step of an epoch
    a slow one. A Feistel network permutes the next power of four; what falls outside is permuted again until it is
    inside ("cycle walking", Black and Rogaway 2002), fewer than four times on average.
    """
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half_bits) - 1
    while True:
        left, right = index >> half_bits, index & mask
        for turn in range(ROUNDS):
            left, right = right, left ^ (mix(key ^ mix((right << 8) | turn)) & mask)
        index = (left << half_bits) | right
        if index < size:
            return index


def mix(value: int) -> int:
    """64 well-mixed bits of an integer (the finaliser of SplitMix64, Steele et al. 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & MASK_64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK_64
    return value ^ (value >> 31)
