from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from bench.checkpoint import storage, verify
from bench.checkpoint.sharded import dump_tree
from bench.checkpoint.trees import tree_digest

TREES = [{"p": torch.arange(1000.0) + rank, "rank": rank} for rank in range(2)]


@pytest.fixture
def checkpoints(tmp_path):
    folder = storage.step_dir(tmp_path, 12)
    folder.mkdir()
    for rank, tree in enumerate(TREES):
        with open(folder / storage.shard_name(rank, 2), "wb") as file:
            dump_tree(tree, file)
    return tmp_path


def test_a_separate_process_finds_the_digests_of_what_was_saved(checkpoints, tmp_path):
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "bench.checkpoint.verify", str(checkpoints), "12", str(out)]
    subprocess.run(command, check=True)
    found = json.loads(out.read_text())
    assert found["complete"] is True
    assert found["digests"] == {str(rank): tree_digest(tree) for rank, tree in enumerate(TREES)}
    assert found["errors"] == {}


def test_without_a_file_to_write_to_the_answer_is_printed(checkpoints, capsys):
    assert verify.main([str(checkpoints), "12"]) == 0
    assert json.loads(capsys.readouterr().out)["complete"] is True


def test_a_damaged_shard_has_a_null_digest_and_a_reason(checkpoints):
    shard = storage.step_dir(checkpoints, 12) / storage.shard_name(1, 2)
    shard.write_bytes(shard.read_bytes()[:500])
    found = verify.verify(checkpoints, 12)
    assert found["digests"]["0"] == tree_digest(TREES[0])
    assert found["digests"]["1"] is None
    assert "not readable" in found["errors"]["1"]


def test_a_flipped_byte_inside_a_tensor_shows_in_the_digest(checkpoints):
    shard = storage.step_dir(checkpoints, 12) / storage.shard_name(1, 2)
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shard.write_bytes(content)
    assert verify.verify(checkpoints, 12)["digests"]["1"] not in (None, tree_digest(TREES[1]))


def test_a_node_reads_the_shards_of_its_own_ranks_and_no_others(checkpoints, capsys):
    (storage.step_dir(checkpoints, 12) / storage.shard_name(1, 2)).write_bytes(b"not to be read")
    assert verify.verify(checkpoints, 12, range(1)) == {
        "step": 12,
        "complete": True,
        "digests": {"0": tree_digest(TREES[0])},
        "errors": {},
    }
    assert verify.main([str(checkpoints), "12", "--ranks", "1:2"]) == 0
    assert json.loads(capsys.readouterr().out)["digests"] == {"1": None}


def test_of_local_shards_on_a_store_that_nodes_share_a_node_reads_its_own(tmp_path, monkeypatch):
    for rank in range(3):
        path = tmp_path / "of-00003" / str(rank) / f"iter_0000012_{rank}_local.pt"
        path.parent.mkdir(parents=True)
        path.write_text(f"of rank {rank}")
    monkeypatch.setattr(verify, "_local_digest", lambda shard: shard.read_text())
    assert verify.verify(tmp_path, 12, range(1, 3))["digests"] == {"1": "of rank 1", "2": "of rank 2"}
    assert verify.verify(tmp_path, 12, range(1, 4)) == {"step": 12, "complete": False, "digests": {}, "errors": {}}


def test_a_checkpoint_that_lacks_a_shard_is_not_complete_and_has_no_digests(checkpoints):
    (storage.step_dir(checkpoints, 12) / storage.shard_name(1, 2)).unlink()
    found = verify.verify(checkpoints, 12)
    assert (found["complete"], found["digests"]) == (False, {})
