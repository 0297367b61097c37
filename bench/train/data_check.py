"""What the data sources read, and whether they can serve a run. Imports no torch, for the driver asks first."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.config import Data, require

SCANNED_TOKENS = 1 << 24  # most that `check` reads of a token file (64 stretches over its length; about 0.05 s)
SCANNED_STRETCHES = 64
NO_SOURCE_FOLDERS = {"site-packages", "dist-packages", "__pycache__"}


def check(config: Data, vocab_size: int, seq_len: int) -> None:
    """Raise BadInput when the source cannot give a single sample or holds ids beyond the vocabulary.

    Large token files are sampled; every batch is checked in full when it is drawn.
    """
    if config.name == "tokens":
        tokens = token_file(config)
        require_samples(len(tokens), seq_len, "data.path", f"{config.path} holds {len(tokens)} tokens")
        if np.iinfo(tokens.dtype).max >= vocab_size:
            for stretch in stretches(tokens):
                require_in_vocabulary(stretch, vocab_size, config)
    elif config.name == "source_text":
        wrong = f"must be 256 or more for the bytes of data=source_text, got {vocab_size}; raise it"
        require(vocab_size >= 256, "model.vocab_size", wrong)
        size = min(sum(path.stat().st_size for path in source_files()), config.max_bytes)
        require_samples(size, seq_len, "data.max_bytes", f"the standard library gives {size} bytes of source text")


def require_samples(length: int, seq_len: int, field: str, found: str) -> None:
    need = seq_len + 1  # a sample is seq_len inputs, and the targets one token further on
    wrong = f"one sample needs train.seq_len + 1 = {need} tokens, but {found}; give more data or lower train.seq_len"
    require(length >= need, field, wrong)


def require_in_vocabulary(tokens: npt.NDArray[np.integer], vocab_size: int, config: Data) -> None:
    low, high = int(tokens.min()), int(tokens.max())
    worst = high if high >= vocab_size else low
    wrong = f"{config.path} holds the token id {worst}, outside of 0..{vocab_size - 1}"
    remedy = f"raise model.vocab_size, or check data.dtype={config.dtype}"
    require(0 <= worst < vocab_size, "data.path", f"{wrong}; {remedy}")


def token_file(config: Data) -> npt.NDArray[np.integer]:
    """The token file mapped into memory, read-only, [number of tokens]; BadInput when it cannot be."""
    path, dtype = Path(config.path or ""), np.dtype(config.dtype)
    require(path.is_file(), "data.path", f"{path} is not a file; give a flat binary file of token ids")
    require(os.access(path, os.R_OK), "data.path", f"{path} is not readable; change its permissions")
    size = path.stat().st_size
    require(size > 0, "data.path", f"{path} is empty; give a flat binary file of token ids")
    wrong = f"{path} has {size} bytes, no multiple of the {dtype.itemsize} of {dtype.name}"
    require(size % dtype.itemsize == 0, "data.dtype", f"{wrong}; give the type that the file was written with")
    return np.memmap(path, dtype=dtype, mode="r")


def stretches(tokens: npt.NDArray[np.integer]) -> list[npt.NDArray[np.integer]]:
    """All tokens of a small file, or stretches spread evenly from its first to its last token."""
    if len(tokens) <= SCANNED_TOKENS:
        return [tokens]
    length = SCANNED_TOKENS // SCANNED_STRETCHES
    starts = np.linspace(0, len(tokens) - length, SCANNED_STRETCHES).astype(np.int64)
    return [tokens[start : start + length] for start in starts]


def source_files() -> list[Path]:
    """The Python files of the running interpreter's standard library, sorted by their path within it."""
    library = sysconfig.get_path("stdlib")
    found: list[Path] = []
    for folder, subfolders, names in os.walk(library):
        subfolders[:] = set(subfolders) - NO_SOURCE_FOLDERS  # never walks the packages installed inside it
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(path for path in found if path.is_file())  # a broken link is no file


def source_text(max_bytes: int) -> npt.NDArray[np.uint8]:
    """At most `max_bytes` bytes of the standard library's source, file after file."""
    text = bytearray()
    for path in source_files():
        text += path.read_bytes()
        if len(text) >= max_bytes:
            break
    return np.frombuffer(bytes(text[:max_bytes]), dtype=np.uint8)
