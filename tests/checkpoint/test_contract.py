"""What every strategy owes, shown in two real ranks with FSDP2-sharded state.

One pair of processes serves all variants, since starting processes is what costs: each variant's ranks note what they
see, and the tests below judge the notes. A strategy that is added to the registry is judged here without further ado.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard

from bench import checkpoint
from bench.checkpoint import storage
from bench.checkpoint.base import CheckpointError, Context, Strategy, WrongWorldSize
from bench.checkpoint.sharded import Sharded, dump_tree
from bench.checkpoint.trees import flatten, local_tensor, localize, tree_digest
from bench.record import Recorder
from bench.schema import PHASES

WORLD_SIZE = 2
KEEP = 2
DEADLINE_S = 60.0  # a writer's start on a busy machine must fit; the deadline itself is tested with a shorter one
NOTICE_S = 5.0  # a dead writer is noticed at once; this is for busy machines

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "nvrx_async": [{"api": "queue"}, {"api": "torch_async"}],
    "synthetic": [{"block_s": 0.001, "durable_s": 0.02}],
}


class Uncloned(Sharded):
    """Broken on purpose: keeps the live tensors and writes them later, as an asynchronous save without a copy does."""

    name = "uncloned"
    background = True

    def _save(self, step, tree, save):
        self._late = (self.target(step, save), localize(tree))

    def poll(self):
        target, tree = self._late
        storage.write_shard(target, lambda file: dump_tree(tree, file), self.context.recorder)
        return True


VARIANTS = {
    "-".join([name, *(str(v) for v in options.values() if isinstance(v, str))]): (name, options)
    for name in checkpoint.STRATEGIES
    for options in OPTIONS.get(name, [{}])
}
KEEPING = [variant for variant, (name, _) in VARIANTS.items() if name not in ("none", "synthetic")]
BACKGROUND = [variant for variant in KEEPING if variant.startswith("nvrx")]


# --- in the ranks -----------------------------------------------------------------------------------------------------


def sharded_tree(seed: int) -> dict[str, Any]:
    """Parameters and Adam state of a model whose shards are uneven, as DTensors, and leaves of other kinds."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 129), torch.nn.Linear(129, 7))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.randn(3, 64)).square().mean().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": {str(i): dict(state) for i, state in enumerate(optimizer.state.values())},
        "rng": torch.get_rng_state(),
        "half": [torch.randn(5).bfloat16(), torch.empty(0), torch.tensor(3.5)],
        "progress": {"step": seed, "position": [1, 2], "schedule": (0.1, "cosine"), "note": None},
    }


def mutate(tree: Any) -> None:
    """What the trainer does right after save() returned: every byte of every tensor changes."""
    for _, leaf in flatten(tree):
        if isinstance(leaf, torch.Tensor):
            with torch.no_grad():
                tensor = local_tensor(leaf)
                tensor.copy_(~tensor if tensor.dtype == torch.uint8 else tensor + 1)
    tree["progress"]["position"].append(99)


def agree_min(value: int) -> int:
    agreed = torch.tensor([value])
    dist.all_reduce(agreed, dist.ReduceOp.MIN)
    return int(agreed.item())


class Notes(dict[str, Any]):
    """What one rank saw of one variant."""

    def raised(self, key: str, call: Callable[[], Any]) -> None:
        """Notes the class and text of the CheckpointError that a call raises, and how long that took."""
        start = time.monotonic()
        try:
            call()
        except CheckpointError as error:
            self[key] = {"type": type(error).__name__, "text": str(error), "seconds": time.monotonic() - start}


def poll_until_done(strategy: Strategy) -> None:
    end = time.monotonic() + DEADLINE_S
    while not strategy.poll():
        assert time.monotonic() < end
        time.sleep(0.002)


def own_children() -> list[str]:
    children = psutil.Process().children(recursive=True)
    lines = [" ".join(child.cmdline()) for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return [line for line in lines if "resource_tracker" not in line]


def observe_content(strategy: Strategy, notes: Notes) -> None:
    tree = sharded_tree(seed=1)
    notes["digest"] = tree_digest(tree)
    phases = strategy.save(1, tree, 0)
    mutate(tree)
    strategy.drain()
    dist.barrier()
    notes["phases"] = [name for name, _, _ in phases]
    notes["ordered"] = all(t0 <= t1 for _, t0, t1 in phases)
    notes["newest_after_first"] = strategy.newest()
    if strategy.newest() is None:
        notes.raised("load_of_nothing", lambda: strategy.load(1))
        return
    notes["keeps"] = True
    loaded = strategy.load(1)
    notes["loaded_digest"] = tree_digest(loaded)
    notes["loaded_progress"] = loaded["progress"]
    notes["on_cpu"] = all(leaf.device.type == "cpu" for _, leaf in flatten(loaded) if isinstance(leaf, torch.Tensor))


def observe_life(strategy: Strategy, context: Context, notes: Notes) -> None:
    tree = sharded_tree(seed=2)
    for save, step in enumerate((2, 3, 4), start=1):
        strategy.save(step, tree, save)
        strategy.drain()
        dist.barrier()
    notes["kept"] = storage.complete_steps(context.directory)
    tear(context)
    notes["newest_beside_torn"] = strategy.newest()
    larger = type(strategy)(replace(context, rank=context.rank + 1, world_size=3))
    notes.raised("wrong_world_size", lambda: larger.load(4))
    if getattr(strategy, "writer_pid", None):
        observe_writer(strategy, tree, notes)
    dist.barrier()
    if context.rank == 0:
        shutil.rmtree(context.directory)
    dist.barrier()
    notes.raised("directory_gone", lambda: (strategy.save(8, tree, 9), strategy.drain()))
    dist.barrier()  # the directory is made again by what follows


def tear(context: Context) -> None:
    """Newer checkpoints that are not whole: one lacks a shard, of one there is but a truncated temporary file."""
    whole = storage.step_dir(context.directory, 4) / storage.shard_name(0, WORLD_SIZE)
    if context.rank == 0:
        for step in (20, 21):
            storage.step_dir(context.directory, step).mkdir()
        shutil.copy(whole, storage.step_dir(context.directory, 20) / whole.name)
        for rank in range(WORLD_SIZE):
            name = f".{storage.shard_name(rank, WORLD_SIZE)}.another.tmp"
            (storage.step_dir(context.directory, 21) / name).write_bytes(whole.read_bytes()[:1000])
    dist.barrier()


def observe_writer(strategy: Any, tree: Any, notes: Notes) -> None:
    os.kill(strategy.writer_pid, signal.SIGSTOP)  # so that it cannot finish before it is killed
    strategy.save(5, tree, 4)
    notes["idle_while_stopped"] = strategy.poll()
    os.kill(strategy.writer_pid, signal.SIGKILL)
    notes.raised("killed", lambda: poll_until_done(strategy))
    notes["newest_after_kill"] = strategy.newest()

    notes["digest_after_restart"] = tree_digest(tree)
    strategy.save(6, tree, 5)
    strategy.drain()
    dist.barrier()
    notes["loaded_after_restart"] = tree_digest(strategy.load(6))

    os.kill(strategy.writer_pid, signal.SIGKILL)  # with nothing in flight
    psutil.wait_procs([psutil.Process(strategy.writer_pid)], timeout=NOTICE_S)
    notes.raised("killed_between_saves", lambda: strategy.save(7, tree, 6))

    strategy.save(7, tree, 6)
    strategy._api.watch.deadline_s = 0.2
    os.kill(strategy.writer_pid, signal.SIGSTOP)
    notes.raised("hung", strategy.drain)


def observe_close(strategy: Any, context: Context, notes: Notes) -> None:
    context.directory.mkdir(exist_ok=True)
    if strategy.background:
        strategy.save(30, sharded_tree(seed=3), 20)  # in flight
    start = time.monotonic()
    strategy.close()
    strategy.close()
    notes["close_s"] = time.monotonic() - start
    gc.collect()
    notes["children"] = own_children()
    notes["temporaries"] = [str(path) for path in context.directory.rglob(".*.tmp")]
    notes["shm"] = [name for name in os.listdir("/dev/shm") if f"_{os.getpid()}_" in name]


def rank_main(rank: int, root: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{root}/store", WORLD_SIZE)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD_SIZE)
    everything: dict[str, Any] = {}
    for variant, (name, options) in {**VARIANTS, "uncloned": ("uncloned", {})}.items():
        everything[variant] = one_variant(Path(root), rank, variant, name, options)
    (Path(root) / f"notes-{rank}.json").write_text(json.dumps(everything))
    dist.destroy_process_group()


def one_variant(root: Path, rank: int, variant: str, name: str, options: dict[str, Any]) -> Notes:
    events = root / variant / "events"
    events.mkdir(parents=True, exist_ok=True)
    meta = {"role": "worker", "node": 0, "local_rank": rank, "rank": rank, "variant": variant, "arm": name}
    recorder = Recorder(events, **meta)
    context = Context(
        directory=root / variant / "checkpoints",
        rank=rank,
        world_size=WORLD_SIZE,
        node=0,
        local_rank=rank,
        device="cpu",
        incarnation="first",
        recorder=recorder,
        events_dir=events,
        meta=meta,
        keep=KEEP,
        deadline_s=DEADLINE_S,
        options=options,
        agree_min=agree_min,
    )
    notes = Notes()
    strategy = Uncloned(context) if name == "uncloned" else checkpoint.create(name, context)
    try:
        dist.barrier()
        observe_content(strategy, notes)
        if "keeps" in notes and name != "uncloned":
            observe_life(strategy, context, notes)
        if name != "uncloned":
            observe_close(strategy, context, notes)
    except Exception:  # noqa: BLE001 - a process boundary: the tests judge what is noted
        notes["crash"] = traceback.format_exc()
    finally:
        strategy.close()
        recorder.close()
    return notes


# --- the judgement ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    root = tmp_path_factory.mktemp("contract")
    mp.spawn(rank_main, args=(str(root),), nprocs=WORLD_SIZE)
    return root


@pytest.fixture(scope="module")
def notes(launch):
    """Per variant, the notes of every rank."""
    ranks = [json.loads((launch / f"notes-{rank}.json").read_text()) for rank in range(WORLD_SIZE)]
    return {variant: [rank[variant] for rank in ranks] for variant in ranks[0]}


def events(launch: Path, variant: str, name: str) -> list[dict[str, Any]]:
    lines = [line for path in (launch / variant / "events").iterdir() for line in path.read_text().splitlines()]
    return [event for event in map(json.loads, lines) if event.get("name") == name]


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_rank_crashed(notes, variant):
    assert [rank["crash"] for rank in notes[variant] if "crash" in rank] == []


@pytest.mark.parametrize("variant", KEEPING)
def test_what_is_written_is_the_state_at_the_call_although_the_trainer_went_on(notes, variant):
    for rank in notes[variant]:
        assert rank["loaded_digest"] == rank["digest"]
    assert notes[variant][0]["digest"] != notes[variant][1]["digest"], "each rank has its own shard"


def test_a_writer_that_does_not_copy_is_caught_by_the_check_of_content(notes):
    for rank in notes["uncloned"]:
        assert "crash" not in rank
        assert rank["loaded_digest"] != rank["digest"]


@pytest.mark.parametrize("variant", KEEPING)
def test_leaves_that_are_no_tensors_come_back_as_they_were(notes, variant):
    expected = {"step": 1, "position": [1, 2], "schedule": [0.1, "cosine"], "note": None}  # as JSON tells a tuple
    for rank in notes[variant]:
        assert rank["loaded_progress"] == expected
        assert rank["on_cpu"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_sub_phases_are_those_of_the_schema_and_run_forward(notes, variant):
    for rank in notes[variant]:
        assert set(rank["phases"]) <= set(PHASES)
        assert rank["ordered"]


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - set(KEEPING)))
def test_a_strategy_that_keeps_nothing_says_so(notes, variant):
    for rank in notes[variant]:
        assert rank["newest_after_first"] is None
        assert rank["load_of_nothing"]["type"] == "CheckpointError"


@pytest.mark.parametrize("variant", KEEPING)
def test_only_the_newest_checkpoints_are_kept(notes, launch, variant):
    for rank in notes[variant]:
        assert rank["newest_after_first"] == 1
        assert rank["kept"] == [3, 4]
    assert all(event["bytes"] > 0 and event["t_begin"] <= event["t"] for event in events(launch, variant, "deleted"))
    assert events(launch, variant, "deleted")


@pytest.mark.parametrize("variant", KEEPING)
def test_a_torn_checkpoint_is_never_chosen(notes, variant):
    for rank in notes[variant]:
        assert rank["newest_beside_torn"] == 4


@pytest.mark.parametrize("variant", KEEPING)
def test_another_world_size_is_refused_with_both_numbers(notes, variant):
    for rank in notes[variant]:
        assert rank["wrong_world_size"]["type"] == WrongWorldSize.__name__
        assert "2 ranks" in rank["wrong_world_size"]["text"]
        assert "3" in rank["wrong_world_size"]["text"]


@pytest.mark.parametrize("variant", KEEPING)
def test_every_durable_shard_is_on_record_once_with_its_bytes(notes, launch, variant):
    durable = events(launch, variant, "durable")
    first = [event for event in durable if event["save"] == 0]
    assert len(first) == WORLD_SIZE
    assert all(event["step"] == 1 and event["bytes"] > 30_000 and event["t_begin"] < event["t"] for event in first)
    assert all(event["arm"] == VARIANTS[variant][0] for event in durable)


def test_the_asynchronous_queue_writes_the_same_number_of_bytes_as_the_synchronous_save(launch):
    sizes = [
        sorted(event["bytes"] for event in events(launch, variant, "durable") if event["save"] == 0)
        for variant in ("sync_local", "nvrx_async-queue")
    ]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("variant", KEEPING)
def test_a_directory_that_vanished_is_a_failure_with_its_reason(notes, launch, variant):
    for rank in notes[variant]:
        assert rank["directory_gone"]["type"] == "CheckpointError"
        assert "No such file" in rank["directory_gone"]["text"] or "is dead" in rank["directory_gone"]["text"]
    failed = [event for event in events(launch, variant, "failed") if event["save"] == 9]
    assert len(failed) == WORLD_SIZE
    assert all(event["reason"] for event in failed)


@pytest.mark.parametrize("variant", BACKGROUND)
def test_a_killed_writer_is_noticed_at_once_and_the_older_checkpoint_stays(notes, launch, variant):
    for rank in notes[variant]:
        assert rank["idle_while_stopped"] is False
        assert "signal 9" in rank["killed"]["text"]
        assert rank["killed"]["seconds"] < NOTICE_S
        assert rank["newest_after_kill"] == 4
    assert [event["save"] for event in events(launch, variant, "failed")].count(4) == WORLD_SIZE


@pytest.mark.parametrize("variant", BACKGROUND)
def test_the_save_after_a_failure_starts_a_new_writer_and_is_whole(notes, variant):
    for rank in notes[variant]:
        assert rank["loaded_after_restart"] == rank["digest_after_restart"]


@pytest.mark.parametrize("variant", BACKGROUND)
def test_a_writer_that_died_between_saves_is_noticed_before_it_is_relied_on(notes, variant):
    for rank in notes[variant]:
        assert "between saves" in rank["killed_between_saves"]["text"]


@pytest.mark.parametrize("variant", BACKGROUND)
def test_a_writer_that_hangs_is_given_up_at_the_deadline(notes, variant):
    for rank in notes[variant]:
        assert "did not finish within 0.2 s" in rank["hung"]["text"]
        assert rank["hung"]["seconds"] < NOTICE_S + 5  # it must be killed, since a stopped process ignores SIGTERM


@pytest.mark.parametrize("variant", VARIANTS)
def test_close_ends_everything_also_with_a_write_in_flight(notes, variant):
    for rank in notes[variant]:
        assert rank["close_s"] < 10
        assert rank["children"] == []
        assert rank["temporaries"] == []
        assert rank["shm"] == []
