"""Starting real ranks for the tests of this folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DEADLINE_S = 240.0  # generous: starting torch takes a busy machine half a minute


def run_ranks(
    directory: Path, world_size: int, program: str, python_path: str = "", **arguments: Any
) -> list[dict[str, Any]]:
    """Run `program` of rank_programs.py in fresh processes, one a rank, and return what each rank's returned."""
    directory.mkdir()
    path = os.pathsep.join(filter(None, [str(ROOT), str(HERE), python_path]))
    script = [sys.executable, "-W", "ignore", str(HERE / "rank_programs.py")]
    command = [*script, program, str(directory), json.dumps(arguments)]
    ranks = []
    for rank in range(world_size):
        environment = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(world_size), "PYTHONPATH": path}
        environment["GLOO_SOCKET_IFNAME"] = "lo"  # does not depend on how this machine resolves its own name
        ranks.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    try:
        errors = [rank.communicate(timeout=DEADLINE_S)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0] * world_size, "\n".join(errors)
    return [torch.load(directory / f"rank{rank}.pt", weights_only=False) for rank in range(world_size)]


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[dict[str, Any]]]:
    def run(world_size: int, program: str, **arguments: Any) -> list[dict[str, Any]]:
        return run_ranks(tmp_path_factory.mktemp(program) / "run", world_size, program, **arguments)

    return run


@pytest.fixture
def group_of_one() -> Iterator[None]:
    """A process group with this process alone in it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch.set_num_threads(threads)
