"""The experiment itself: steps, saves, and nothing else between them.

`run` reads as a launch is described: its segments one after the other, then, where asked, one more save per arm whose
content a separate process compares. `endure` is a launch that is struck by faults: load, step, save, until the last
step. What is timed stands inside `with self.instrument.span(...)`.
"""

from __future__ import annotations

import gc
import math
import os
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist

from bench.checkpoint.base import CheckpointError, Strategy, WrongWorldSize
from bench.checkpoint.page_cache import cached_share, evict, flush
from bench.checkpoint.trees import tree_digest
from bench.config import Run
from bench.design import Launch, Segment
from bench.record import clock, wait_until
from bench.train.base import Strikes, TrainState, Undisturbed, Watch
from bench.train.data import Source
from bench.train.fingerprint import state_sum
from bench.train.instrument import Instrument, dirty_bytes

UNDISTURBED = Undisturbed()
VERIFY_STEPS = 3  # steps that change the parameters while the verified save is being written


def run(trainer: Trainer, launch: Launch) -> None:
    if launch.endures:
        return endure(trainer, launch)
    first = Segment(launch.segments[0].arm, -1, False)
    for _ in range(trainer.config.train.warmup_steps):
        trainer.step("warm", first, -1)
    for index, segment in enumerate(launch.segments):
        if segment.interval is None:
            trainer.one_save(segment, index)
        else:
            trainer.saves_at_interval(segment, index)
    trainer.end_of_measurement(launch)
    for arm in [arm for arm in launch.arms if trainer.arms[arm].keeps_checkpoints]:
        if launch.verify:
            trainer.verify(arm)
        if launch.kind != "pilot":
            trainer.load_twice(arm)
    return None


def endure(trainer: Trainer, launch: Launch) -> None:
    """From the newest checkpoint to the last step, however often the layer calls it."""
    (segment,) = launch.segments
    interval, once = segment.interval or 1, trainer.config.recovery.save_once
    trainer.resume(segment.arm)
    while trainer.state.step < segment.saves * interval:
        trainer.step("plain", segment, 0)
        if trainer.state.step == interval or (trainer.state.step % interval == 0 and not once):
            trainer.fingerprint("saved")
            trainer.save(segment, 0)
    trainer.end_of_measurement(launch)
    trainer.fingerprint("end")


class Trainer:
    """One rank's part of a launch. Every method is collective: all ranks call the same ones in the same order."""

    def __init__(
        self,
        config: Run,
        state: TrainState,
        data: Source,
        arms: dict[str, Strategy],
        instrument: Instrument,
        watch: Watch = UNDISTURBED,
        strikes: Strikes = UNDISTURBED,
    ) -> None:
        self.config = config
        self.state = state
        self.data = data
        self.arms = arms
        self.instrument = instrument
        self.watch = watch
        self.strikes = strikes
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.first_of_node = int(os.environ.get("LOCAL_RANK", "0")) == 0  # reads what concerns the whole host
        self.saves: Counter[str] = Counter()
        self.in_flight: str | None = None  # the arm whose write may still run on this rank
        self._status = torch.zeros(2, device=instrument.device)

    # --- segments
    def one_save(self, segment: Segment, index: int) -> None:
        """Quick design: control steps, one save, steps until it is durable on all ranks, and the machine is calm."""
        for _ in range(segment.control_steps):
            self.step("control" if segment.measured else "warm", segment, index)
        self.save(segment, index)
        self.steps_until_durable(segment, index)

    def saves_at_interval(self, segment: Segment, index: int) -> None:
        """Full design and pilot: a save after every `interval` steps, as a job does it."""
        for _ in range(segment.saves):
            for _ in range(segment.interval or 1):
                self.step("plain", segment, index)
            self.save(segment, index)
        if segment.after_steps:
            self.steps_until_durable(segment, index)

    def steps_until_durable(self, segment: Segment, index: int) -> None:
        steps, busy = 0, True
        while busy or steps < segment.after_steps:
            busy = self.step("after", segment, index)
            steps += 1
        gc.collect(1)
        for _ in range(segment.settle_steps):
            self.step("settle", segment, index)

    def end_of_measurement(self, launch: Launch) -> None:
        for arm in launch.arms:
            if self.in_flight == arm:
                with self.instrument.span("drain", arm=arm):
                    self.arms[arm].drain()
                self.in_flight = None
        self.instrument.instant("measured_end")

    def verify(self, arm: str) -> None:
        """A save whose digest is taken at the call, while training goes on: the content must be that of the call."""
        self.instrument.instant("verify_save", arm=arm, step=self.state.step, digest=tree_digest(self.state.tree()))
        segment = Segment(arm, -1, False)
        self.save(segment, -1)
        for _ in range(VERIFY_STEPS):
            self.step("settle", segment, -1)
        self.arms[arm].drain()
        self.in_flight = None

    # --- recovery
    def resume(self, arm: str) -> None:
        """Go on from the newest checkpoint that every rank can load; without one, from the beginning.

        One that some rank finds damaged is discarded by all, so that the one before it becomes the newest.
        """
        strategy = self.arms[arm]
        while (step := strategy.newest()) is not None:
            failure = None
            about: dict[str, Any] = {"arm": arm, "step": step, "resume": True}
            with self.watch.section("checkpointing"), self.instrument.span("load", **about):
                self.strikes.reach("load", step)
                try:
                    self.state.restore(strategy.load(step, self.state.tree()))
                except CheckpointError as error:
                    failure = error
                loaded_everywhere = strategy.context.agree_min(0 if failure else 1)
            if loaded_everywhere:
                return self.fingerprint("restored")
            if isinstance(failure, WrongWorldSize):
                raise failure
            self.instrument.instant("discarded", step=step, reason=str(failure) if failure else "of another rank")
            strategy.discard(step)
            self.barrier()
        return None

    def fingerprint(self, at: str) -> None:
        """Record what the state is, exactly and independent of the world size; no part of the run's time."""
        if not self.config.recovery.check_state:
            return
        with self.instrument.span("check", at=at, step=self.state.step):
            tree = self.state.tree()
            total, exact = state_sum(tree, self.rank), tree_digest(tree)
        about = {"rank": self.rank, "world_size": self.world_size, "position": self.state.position}
        self.instrument.instant("state", at=at, step=self.state.step, sum=f"{total:016x}", digest=exact, **about)

    def load_twice(self, arm: str) -> None:
        """Load the newest checkpoint as a restarted job would: from storage, then again from the page cache."""
        newest = self.arms[arm].newest()
        if newest is None:
            return
        for cold in (True, False):
            share = self._evict(arm, newest) if cold else None
            like = self.state.tree()
            self.barrier()
            with self.instrument.span("load", arm=arm, cold=cold, cached_share=share):
                self.state.restore(self.arms[arm].load(newest, like))

    def _evict(self, arm: str, step: int) -> float | None:
        """Flush the checkpoint, timed, and drop it from this host's page cache; returns the share that stayed there."""
        if not self.first_of_node:
            return None
        files = self.arms[arm].files(step)
        begin = clock()
        size = flush(files)
        self.instrument.instant("flush", arm=arm, seconds=clock() - begin, bytes=size)
        evict(files)
        return cached_share(files)

    # --- what they are made of
    def step(self, use: str, segment: Segment, index: int) -> bool:
        """One optimizer step on all ranks. Returns whether some rank still had a write in flight when it began."""
        busy = self.poll()
        self.strikes.reach("step", self.state.step)
        config = self.config.train
        about: dict[str, Any] = {
            "step": self.state.step + 1,
            "arm": segment.arm,
            "cycle": segment.cycle,
            "use": use,
            "segment": index,
        }
        with self.watch.section("step"), self.instrument.span("step", **about) as record:
            start = clock()
            batch = self.data.batch(self.state.position, self.rank, self.world_size, config.batch_size, config.seq_len)
            self._status[0], self._status[1] = self.compute(*batch), float(busy)
            dist.all_reduce(self._status)  # the job's loss, and whether anybody is still writing, in one collective
            loss_sum, writers = self._status.tolist()
            mean = loss_sum / self.world_size
            record["loss"] = mean if math.isfinite(mean) else None
            if config.step_s is not None:
                wait_until(start + config.step_s * self._stretch())
        return bool(writers > 0)

    def compute(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The update of one step; paced, only its number counts, and the step waits for its length instead."""
        if self.config.train.compute == "real":
            return self.state.train_step(inputs, targets)
        self.state.skip_step(len(inputs) * self.world_size)
        return torch.zeros(())

    def _stretch(self) -> float:
        """How many times longer a paced step takes: a synthetic strategy may slow it down while it "writes"."""
        return self.arms[self.in_flight].slowdown if self.in_flight else 1.0

    def poll(self) -> bool:
        """Let the strategy look after its write; True while one is in flight on this rank."""
        if self.in_flight is None:
            return False
        self.strikes.reach("write", self.state.step)
        with self.instrument.span("poll", opened=False, arm=self.in_flight):
            done = self.arms[self.in_flight].poll()
        if done:
            self.in_flight = None
        return not done

    def save(self, segment: Segment, index: int) -> None:
        arm, number = segment.arm, self.saves[segment.arm]
        strategy = self.arms[arm]
        dirty_before = dirty_bytes() if self.first_of_node else None
        with self.instrument.span("arrive", arm=arm, save=number):
            self.barrier()
        about = self._about(segment, index, number)
        with self.watch.section("checkpointing"), self.instrument.span("save", **about) as record:
            start = clock()
            tree = self.state.tree()
            built = ["plan", start, clock()]
            record["phases"] = [built, *strategy.save(self.state.step, tree, number)]
        if self.first_of_node:  # what this save added; other programs' unwritten data are not its doing
            dirty_after = dirty_bytes()
            added = None if dirty_before is None or dirty_after is None else dirty_after - dirty_before
            self.instrument.instant("dirty", arm=arm, save=number, dirty_bytes=added)
        with self.instrument.span("peers", arm=arm, save=number):
            self.barrier()
        self.saves[arm] += 1
        self.in_flight = arm if strategy.background else None

    def _about(self, segment: Segment, index: int, number: int) -> dict[str, Any]:
        return {
            "arm": segment.arm,
            "save": number,
            "cycle": segment.cycle,
            "step": self.state.step,
            "segment": index,
            "measured": segment.measured and number >= self.config.design.warmup_saves,
        }

    def barrier(self) -> None:
        dist.barrier(device_ids=[self.instrument.device.index] if self.instrument.device.type == "cuda" else None)
