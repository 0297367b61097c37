"""From a configuration to the seeded, static list of launches, and what each launch does.

A launch is a set of fresh processes; it runs segments; a segment belongs to one arm. The list is fixed before anything
starts and is written into the result, so that a run can be resumed, and read, launch by launch.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from typing import Any

from bench.config import Run
from bench.faults.base import Planned, planned_from_json
from bench.faults.schedule import saves_needed, schedule, settle
from bench.schema import ENDURING, STRUCK, TWIN

PILOT_STEPS = 3  # before each of the pilot's saves
AUTO_PERIODS = 4  # of a full launch at least, where the pilot settles the interval: in 3 blocks enough for a verdict
STRETCH = 3  # a quick launch's saves come once after so many times the compute: do they still take as long?
LEAST_FOR_STRETCH = 3  # measured cycles: two of them to hold the stretched one against


@dataclass(frozen=True)
class Segment:
    """A stretch of one arm: `saves` times (steps before the save, the save), then steps until nothing is in flight.

    Quick: control_steps, one save, at least after_steps until the write is durable everywhere, settle_steps. Of one
    measured cycle a launch control_steps are more, so that its saves come after three times the compute.
    Full: `saves` saves, each after `interval` plain steps (control_steps and after_steps unused).
    """

    arm: str
    cycle: int
    measured: bool
    saves: int = 1
    interval: int | None = None  # None: a quick segment; 0: "auto", filled in from the pilot
    control_steps: int = 0
    after_steps: int = 0
    settle_steps: int = 0


@dataclass(frozen=True)
class Launch:
    """One entry of the list.

    `kind`: pilot (sets intervals and timeouts, never measured) | quick | full | calibrate | recovery (one layer, struck
    by `faults`) | twin (the same steps without faults).
    """

    index: int
    kind: str
    occasion: int
    block: int
    seed: int
    arms: tuple[str, ...]
    segments: tuple[Segment, ...]
    verify: bool  # end with one more save per arm whose content a separate process compares
    layer: str = "none"  # the recovery layer that starts the ranks
    faults: tuple[Planned, ...] = ()  # in the order in which they strike

    @property
    def endures(self) -> bool:
        """It resumes from its newest checkpoint, however often it is started, and goes on to its last step."""
        return self.kind in ENDURING

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def launch_from_json(record: dict[str, Any]) -> Launch:
    segments = tuple(Segment(**segment) for segment in record["segments"])
    faults = tuple(planned_from_json(fault) for fault in record.get("faults", ()))
    return Launch(**{**record, "arms": tuple(record["arms"]), "segments": segments, "faults": faults})


def plan(config: Run, occasion: int = 0, first_index: int = 0) -> list[Launch]:
    """The launches of one occasion, the pilot first. The order of arms is random per cycle or block, by `seed`."""
    rng = random.Random(config.seed * 1_000_003 + occasion)
    launches = [_pilot(config, occasion, first_index)]
    if config.design.name == "recovery":
        return launches + _recovery(config, occasion, first_index + 1, rng)
    make = {"quick": _quick, "calibrate": _quick, "full": _full, "sweep": _sweep}[config.design.name]
    launches += make(config, occasion, first_index + 1, rng)
    return [replace(launch, layer=config.recovery.layer) for launch in launches]


def _pilot(config: Run, occasion: int, index: int) -> Launch:
    """Two saves of every arm, one at a time: the first shows the start of a writer, the second what a save takes."""
    design, arms = config.design, config.checkpoint.arms
    segment = Segment("", 0, False, 1, None, PILOT_STEPS, design.after_steps, design.settle_steps)
    segments = tuple(replace(segment, arm=arm, cycle=cycle) for cycle in range(2) for arm in arms)
    return Launch(index, "pilot", occasion, 0, config.seed, tuple(arms), segments, False)


def _quick(config: Run, occasion: int, first: int, rng: random.Random) -> list[Launch]:
    design, arms = config.design, config.checkpoint.arms
    kind = "calibrate" if design.name == "calibrate" else "quick"
    measured = range(design.warmup_saves, config.cycles)
    stretch = kind == "quick" and len(measured) >= LEAST_FOR_STRETCH
    launches = []
    for number in range(config.launches):
        long = rng.choice(measured) if stretch else None
        segments = tuple(
            _cycle_segment(config, arm, cycle, cycle == long)
            for cycle in range(config.cycles)
            for arm in rng.sample(arms, len(arms))
        )
        verify = config.checkpoint.verify_content and number == 0
        launches.append(Launch(first + number, kind, occasion, number, config.seed, tuple(arms), segments, verify))
    return launches


def _cycle_segment(config: Run, arm: str, cycle: int, long: bool) -> Segment:
    design, warm = config.design, cycle < config.design.warmup_saves
    control, after = (1, 1) if warm else (design.control_steps, design.after_steps)
    if long and arm != "none":
        control += (STRETCH - 1) * (after + design.settle_steps + control)  # what lies between two saves otherwise
    return Segment(arm, cycle, not warm, 1, None, control, after, design.settle_steps)


def _full(config: Run, occasion: int, first: int, rng: random.Random) -> list[Launch]:
    """Blocks of one launch per arm; with interval "auto" the number of saves is settled after the pilot."""
    interval = config.checkpoint.interval
    auto = interval == "auto"
    saves = 0 if auto else config.train.steps_after_warmup // interval
    launches: list[Launch] = []
    for block in range(config.blocks):
        verify = config.checkpoint.verify_content and block == 0
        launches += _block(config, occasion, first + len(launches), block, 0 if auto else interval, saves, verify, rng)
    return launches


def _sweep(config: Run, occasion: int, first: int, rng: random.Random) -> list[Launch]:
    """The full design at every interval, in random order; a block has one interval, so that its arms are comparable."""
    saves, intervals = config.design.saves_for(config.design.sweep_saves), config.checkpoint.intervals
    launches: list[Launch] = []
    for round_ in range(config.blocks):
        for interval in rng.sample(intervals, len(intervals)):
            block = round_ * len(intervals) + intervals.index(interval)
            verify = config.checkpoint.verify_content and round_ == 0 and interval == max(intervals)
            launches += _block(config, occasion, first + len(launches), block, interval, saves, verify, rng)
    return launches


def _block(
    config: Run, occasion: int, first: int, block: int, interval: int, saves: int, verify: bool, rng: random.Random
) -> list[Launch]:
    arms = rng.sample(config.checkpoint.arms, len(config.checkpoint.arms))
    settle = config.design.settle_steps
    return [
        Launch(
            first + number,
            "full",
            occasion,
            block,
            config.seed,
            (arm,),
            (Segment(arm, 0, True, saves, interval, 0, 0, settle),),
            verify,
        )
        for number, arm in enumerate(arms)
    ]


def _recovery(config: Run, occasion: int, first: int, rng: random.Random) -> list[Launch]:
    """Blocks of a twin (unless design.twins=false) and one launch per layer and group of faults, in random order.

    All launches run the same steps from the same seed, so that the end of each can be held against its block's twin:
    an interval per fault, each of which strikes after a save of its own, and a last one to catch up in.
    """
    (arm,) = config.checkpoint.arms
    interval = None if config.checkpoint.interval == "auto" else int(config.checkpoint.interval)
    groups = [tuple(faults) for faults in schedule(config)]
    saves = max(saves_needed(faults, interval) for faults in groups)
    segment = Segment(arm, 0, True, saves, interval or 0, 0, 0, config.design.settle_steps)
    cells = [(layer, faults) for faults in groups for layer in config.recovery.layers]
    cells = [cell for cell in cells if _wanted(config, *cell)]
    launches: list[Launch] = []
    for block in range(config.blocks):
        twin: list[tuple[str, tuple[Planned, ...]]] = [("none", ())] if config.design.twins else []
        for layer, faults in [*twin, *rng.sample(cells, len(cells))]:
            index, kind = first + len(launches), STRUCK if faults else TWIN
            launches.append(Launch(index, kind, occasion, block, config.seed, (arm,), (segment,), False, layer, faults))
    return launches


def _wanted(config: Run, layer: str, faults: tuple[Planned, ...]) -> bool:
    return not config.recovery.only or all(f"{fault.kind}/{layer}" in config.recovery.only for fault in faults)


def settle_auto(launch: Launch, interval: int, config: Run) -> Launch:
    """The launch with `interval` in place of "auto": as many saves as its steps have room for, and enough at least."""
    if launch.endures:
        segments = tuple(replace(s, interval=interval) if s.interval == 0 else s for s in launch.segments)
        return replace(launch, segments=segments, faults=tuple(settle(fault, interval) for fault in launch.faults))
    saves = max(config.train.steps_after_warmup // interval, config.design.saves_for(AUTO_PERIODS))
    segments = tuple(replace(s, interval=interval, saves=saves) if s.interval == 0 else s for s in launch.segments)
    return replace(launch, segments=segments)
