"""What a node has to read back of a checkpoint, by format: what lies on the disk says it."""

from __future__ import annotations

from pathlib import Path

from bench.checkpoint.to_read import bytes_to_read


def lay(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_of_a_file_a_rank_only_the_nodes_own_count(tmp_path: Path) -> None:
    for rank in range(4):
        lay(tmp_path / "step-00000012" / f"shard-{rank:05d}-of-00004.pt", 100 + rank)
    assert bytes_to_read(tmp_path, 12, range(2, 4), 4) == 102 + 103


def test_of_a_whole_file_and_of_a_folder_of_all_ranks_a_node_has_its_share(tmp_path: Path) -> None:
    lay(tmp_path / "full" / "step-00000012" / "shard-00000-of-00001.pt", 1000)
    assert bytes_to_read(tmp_path / "full", 12, range(2, 4), 4) == 500
    for number in range(4):
        lay(tmp_path / "dcp" / "step-00000012" / f"__{number}_0.distcp", 100)
    assert bytes_to_read(tmp_path / "dcp", 12, range(2, 3), 4) == 100


def test_of_local_shards_those_of_the_step_and_of_its_own_ranks_count(tmp_path: Path) -> None:
    for rank in range(2):
        for step in (11, 12):
            lay(tmp_path / "of-00002" / str(rank) / f"iter_{step:07d}_{rank}_local.pt", 10 * step + rank)
    assert bytes_to_read(tmp_path, 12, range(1, 2), 2) == 121


def test_what_is_not_there_has_no_bytes(tmp_path: Path) -> None:
    assert bytes_to_read(tmp_path, 12, range(2), 2) == 0
