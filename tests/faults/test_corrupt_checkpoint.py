"""A damaged checkpoint: the newest complete one, whatever its layout, and no other file."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.checkpoint import STRATEGIES, create
from bench.checkpoint.base import CheckpointError, Context, Strategy
from bench.faults.corrupt_checkpoint import FLIPPED_BYTES, damage, newest_file
from bench.record import Recorder
from tests.faults.made import ended, places, planned, rank, record

if TYPE_CHECKING:
    from torch import Tensor

CONTENT = bytes(range(256)) * 16


def put(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def sharded(directory: Path) -> list[Path]:
    """Steps 10 and 20 are complete, 30 lacks a shard; rank 3's shards of 10, 20."""
    for step, ranks in ((10, range(4)), (20, range(4)), (30, range(3))):
        for number in ranks:
            put(directory / f"step-{step:08d}" / f"shard-{number:05d}-of-00004.pt", CONTENT * (1 + (number == 0)))
    return [directory / f"step-{step:08d}" / "shard-00003-of-00004.pt" for step in (10, 20)]


def dcp(directory: Path) -> list[Path]:
    """Steps 10 and 20 are complete, 30 is hidden; the largest files of 10, 20."""
    for name in ("step-00000010", "step-00000020", ".step-00000030.inc.tmp"):
        put(directory / name / ".metadata", b"m" * 100_000)
        put(directory / name / "__0_0.distcp")
        put(directory / name / "__1_0.distcp", CONTENT[:100])
    return [directory / f"step-{step:08d}" / "__0_0.distcp" for step in (10, 20)]


def local(directory: Path) -> list[Path]:
    """Ranks 2 and 3 of 4 on this host have 10 and 20; 30 is rank 3's alone; rank 3's files of 10, 20."""
    for number, steps in ((2, (10, 20)), (3, (10, 20, 30))):
        for step in steps:
            put(directory / "of-00004" / str(number) / f"iter_{step:07d}_{number}_local.pt")
    return [directory / "of-00004" / "3" / f"iter_{step:07d}_3_local.pt" for step in (10, 20)]


LAYOUTS = [sharded, dcp, local]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_newest_complete_checkpoint_is_found_in_every_layout(tmp_path, layout):
    newest = layout(tmp_path)[-1]
    assert newest_file(tmp_path, rank=3) == newest


def test_a_rank_whose_shard_is_elsewhere_takes_the_largest_file(tmp_path):
    sharded(tmp_path)
    assert newest_file(tmp_path, rank=9).name == "shard-00000-of-00004.pt"


def test_without_a_complete_checkpoint_there_is_nothing_to_damage(tmp_path):
    put(tmp_path / "step-00000030" / "shard-00000-of-00002.pt")
    assert newest_file(tmp_path, rank=0) is None
    assert ended(rank(tmp_path, [planned("corrupt_checkpoint")]))[:2] == (0, "went on\n")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("how", ["truncate", "flip"])
def test_one_file_is_damaged_and_then_the_rank_is_gone(tmp_path, layout, how):
    directory = places(tmp_path)["checkpoint_dir"]
    newest = layout(directory)[-1]
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    code, out, _ = ended(rank(tmp_path, [planned("corrupt_checkpoint", options={"how": how})]))
    assert (code, out) == (-signal.SIGKILL, "")
    after = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    assert {path for path in before if before[path] != after[path]} == {newest}
    if how == "truncate":
        assert after[newest] == before[newest][: len(before[newest]) // 2]
    else:
        changed = [i for i, (old, new) in enumerate(zip(before[newest], after[newest], strict=True)) if old != new]
        assert changed == list(range(changed[0], changed[0] + FLIPPED_BYTES))
    assert record(tmp_path, "0-corrupt_checkpoint")["details"] == {"file": str(newest), "how": how}


# --- what real strategies make of it


@pytest.fixture
def alone():
    """A process group of this process alone, over gloo."""
    torch = pytest.importorskip("torch")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield torch
    torch.distributed.destroy_process_group()


def saved_and_damaged(arm: str, how: str, tree: dict, folder: Path) -> Strategy:
    """A strategy that has saved `tree` at the steps 10 and 20, the latter of which is damaged."""
    meta = {"role": "worker", "node": 0, "local_rank": 0, "rank": 0}
    directory = places(folder, arm)["checkpoint_dir"]
    strategy = create(arm, Context(directory, 0, 1, 0, 0, "cpu", "this", Recorder(folder, **meta), folder, meta))
    for number, step in enumerate((10, 20)):
        strategy.save(step, tree, number)
        strategy.drain()
    damage(newest_file(directory, rank=0), how)
    return strategy


def weights(tree: dict) -> Tensor:
    weight = tree["weight"]
    return weight.to_local() if hasattr(weight, "to_local") else weight


ARMS = [
    pytest.param(arm, marks=() if arm in ("sync_local", "sync_dcp") else pytest.mark.slow)
    for arm in STRATEGIES
    if arm not in ("none", "synthetic")
]


@pytest.mark.parametrize("arm", ARMS)
def test_a_checkpoint_cut_short_is_noticed_when_it_is_loaded_and_the_one_before_it_is_whole(tmp_path, alone, arm):
    tree = {"weight": alone.arange(200_000.0)}
    strategy = saved_and_damaged(arm, "truncate", tree, tmp_path)
    with pytest.raises(CheckpointError, match="not readable"):
        strategy.load(20, tree)
    assert alone.equal(weights(strategy.load(10, tree)), tree["weight"])
    strategy.close()


@pytest.mark.parametrize("arm", ARMS)
def test_flipped_bits_are_not_noticed_by_loading(tmp_path, alone, arm):
    tree = {"weight": alone.arange(200_000.0)}
    strategy = saved_and_damaged(arm, "flip", tree, tmp_path)
    assert not alone.equal(weights(strategy.load(20, tree)), tree["weight"])
    assert alone.equal(weights(strategy.load(10, tree)), tree["weight"])
    strategy.close()
