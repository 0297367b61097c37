from __future__ import annotations

import pytest
import torch

from bench.checkpoint.base import CheckpointError
from bench.checkpoint.sharded import dump_tree, read_shard
from bench.checkpoint.trees import tree_digest


class Custom:
    """Something beyond what torch.load takes with weights_only."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"Custom({self.value})"


def write(path, tree):
    with open(path, "wb") as file:
        dump_tree(tree, file)
    return path


def test_a_shard_is_read_without_a_strategy(tmp_path):
    tree = {"p": torch.randn(4).bfloat16(), "step": 3, "nested": [(1, torch.empty(0))]}
    assert tree_digest(read_shard(write(tmp_path / "shard", tree))) == tree_digest(tree)


def test_a_user_s_objects_are_read_as_well(tmp_path):
    tree = {"p": torch.ones(2), "custom": Custom(5)}
    assert read_shard(write(tmp_path / "shard", tree))["custom"].value == 5


@pytest.mark.parametrize("at_share", [0.5, 0.999])
def test_a_truncated_shard_is_an_error_that_names_the_file(tmp_path, at_share):
    path = write(tmp_path / "shard", {"p": torch.randn(1000)})
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * at_share)])
    with pytest.raises(CheckpointError, match=r"shard is not readable"):
        read_shard(path)


def test_a_missing_shard_is_an_error_of_the_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="FileNotFoundError"):
        read_shard(tmp_path / "shard")
