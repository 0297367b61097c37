from __future__ import annotations

import json

import pytest
import torch
from torch.distributed.checkpoint import CheckpointException

from bench.checkpoint import cuts, dcp_digest, folders, storage
from bench.checkpoint.base import CheckpointError
from bench.checkpoint.dcp import reasons
from bench.checkpoint.sync_dcp import SyncDcp
from bench.checkpoint.trees import map_leaves, tree_digest


def tree():
    return {
        "model": {"w": torch.arange(12.0).reshape(6, 2), "empty": torch.empty(0, 3), "scale": torch.tensor(2.0)},
        "rng": {"rank_0": {"torch": torch.arange(4), "next": None}},
        "half": [torch.ones(3).bfloat16(), torch.zeros(1)],
        "schedule": {"names": ["a", 1], "pair": (0.1, "cosine")},
        "buffers": {},
        "step": 7,
    }


def blank(of):
    return map_leaves(lambda leaf: torch.zeros_like(leaf) if isinstance(leaf, torch.Tensor) else None, of)


@pytest.fixture
def strategy(alone, context):
    made = SyncDcp(context)
    yield made
    made.close()


def test_a_tree_comes_back_with_its_containers_and_plain_values(strategy):
    strategy.save(7, tree(), 0)
    assert tree_digest(strategy.load(7, blank(tree()))) == tree_digest(tree())


def test_a_state_of_other_names_is_refused_by_name(strategy):
    strategy.save(7, tree(), 0)
    more, fewer = tree(), tree()
    more["model"]["v"] = torch.zeros(1)
    del fewer["model"]["w"]
    with pytest.raises(CheckpointError, match=r"names differ from those of this state: model\.v"):
        strategy.load(7, more)
    with pytest.raises(CheckpointError, match=r"names differ from those of this state: model\.w"):
        strategy.load(7, fewer)


def test_a_state_of_another_shape_is_refused(strategy):
    strategy.save(7, tree(), 0)
    other = tree()
    other["model"]["w"] = torch.zeros(5, 2)
    with pytest.raises(CheckpointError, match=r"not readable.*[Ss]ize"):
        strategy.load(7, other)


def test_random_states_that_are_not_there_are_left_out(strategy):
    strategy.save(7, tree(), 0)
    like = tree() | {"rng": {"rank_5": {"torch": torch.zeros(4), "next": None}}}
    assert strategy.load(7, like)["rng"] == {}


def test_a_damaged_file_is_an_error_of_the_checkpoint(strategy):
    strategy.save(7, tree(), 0)
    (data,) = (path for path in strategy.files(7) if path.suffix == ".distcp")
    data.write_bytes(data.read_bytes()[:500])
    with pytest.raises(CheckpointError, match="not readable"):
        strategy.load(7, tree())


def test_a_rolled_back_step_is_written_anew(strategy):
    for value in (1.0, 2.0):
        strategy.save(5, {"p": torch.full((3,), value)}, 0)
    assert torch.equal(strategy.load(5, {"p": torch.zeros(3)})["p"], torch.full((3,), 2.0))


def test_sub_phases_follow_each_other_without_a_gap(strategy):
    phases = strategy.save(7, tree(), 0)
    assert [name for name, _, _ in phases] == ["plan", "write", "commit"]
    assert [end for _, _, end in phases[:-1]] == [begin for _, begin, _ in phases[1:]]


def test_the_reasons_of_all_ranks_stand_on_one_line():
    failures = {1: (ValueError("one"), None), 0: (CheckpointException("write", {2: (OSError(28, "full"), None)}), None)}
    assert (
        reasons(CheckpointException("plan", failures))
        == "rank 0: rank 2: OSError: [Errno 28] full; rank 1: ValueError: one"
    )


# --- fingerprints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_bytes", [1, 40, 1 << 30])
def test_the_digests_of_all_ranks_are_found_in_whole_tensors_read_in_batches(strategy, monkeypatch, batch_bytes):
    """Written by one rank as if three had: which tensors were cut is told by the layout alone."""
    monkeypatch.setattr(dcp_digest, "BATCH_BYTES", batch_bytes)
    layout = cuts.Layout(3, {"model.w": 0, "model.scale": 0, "half.0": 0}, [["buffers"]])
    whole = tree() | {"rng": {f"rank_{rank}": {"torch": torch.full((rank,), rank)} for rank in range(3)}}
    whole["model"]["scale"] = torch.ones(1)  # of one row, which rank 0 alone has
    described = whole | {cuts.KEY: layout.to_json()}
    monkeypatch.setattr(strategy, "described", lambda tree: described)
    strategy.save(7, whole, 0)
    found = dcp_digest.digests_by_rank(storage.step_dir(strategy.context.directory, 7))
    assert found == {rank: tree_digest(cuts.own_part(described, rank, 3)) for rank in range(3)}
    assert len(set(found.values())) == 3


def test_for_the_digests_of_some_ranks_only_what_they_hold_is_read(strategy, monkeypatch):
    layout = cuts.Layout(4, {"model.w": 0, "model.t": 1}, [])
    whole = {
        "model": {"w": torch.arange(12.0).reshape(6, 2), "t": torch.arange(24.0).reshape(2, 12)},
        "own": {f"rank_{rank}": torch.full((5,), rank) for rank in range(4)},
        "scalar": torch.tensor(3.0),
    }
    described = whole | {cuts.KEY: layout.to_json()}
    monkeypatch.setattr(strategy, "described", lambda tree: described)
    strategy.save(7, whole, 0)
    folder, read = storage.step_dir(strategy.context.directory, 7), {}

    def fill(folder, flat, offsets):
        fill_stretches(folder, flat, offsets)
        read.update({name: (offsets[name], list(tensor.shape)) for name, tensor in flat.items()})

    fill_stretches = dcp_digest.fill_stretches
    monkeypatch.setattr(dcp_digest, "fill_stretches", fill)
    found = dcp_digest.digests_by_rank(folder, range(1, 3))
    assert found == {rank: tree_digest(cuts.own_part(described, rank, 4)) for rank in (1, 2)}
    assert read == {
        "model.w": ([2, 0], [4, 2]),  # six rows in pieces of two: the fourth rank has none
        "model.t": ([0, 3], [2, 6]),
        "own.rank_1": ([0], [5]),
        "own.rank_2": ([0], [5]),
        "scalar": ([], []),
    }
    assert dcp_digest.digests_by_rank(folder, range(3, 4)) == {3: tree_digest(cuts.own_part(described, 3, 4))}


def test_a_checkpoint_of_other_origin_is_said_to_lack_the_layout(strategy, monkeypatch):
    monkeypatch.setattr(strategy, "described", lambda tree: tree)
    strategy.save(7, {"p": torch.ones(3)}, 0)
    with pytest.raises(CheckpointError, match="does not say how its tensors were spread"):
        dcp_digest.digests_by_rank(storage.step_dir(strategy.context.directory, 7))


def test_a_failed_save_is_on_record_and_leaves_nothing_behind(strategy, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    strategy.save(1, tree(), 0)
    monkeypatch.setattr(folders, "fsync_folder", full)
    with pytest.raises(CheckpointError, match=r"sync_dcp: save 1 at step 2 failed: rank 0: OSError: .* No space left"):
        strategy.save(2, tree(), 1)
    assert [path.name for path in strategy.context.directory.iterdir()] == ["step-00000001"]
    lines = strategy.context.recorder.path.read_text().splitlines()
    assert [json.loads(line).get("name") for line in lines] == [None, "durable", "failed"]
