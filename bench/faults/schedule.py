"""Which faults strike whom, when, and in which launch: drawn by the run's seed, the same for every layer compared.

Pure: no process, file or clock is touched. The step of a drawn fault is relative to the checkpoint interval until that
is known: `schedule` draws the interval (`turn`) and the place in it (`share`), `settle` makes a step of them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from bench.config import Fault as Given
from bench.errors import BadInput, near
from bench.faults import create
from bench.faults.base import AT_SAVE, IN_BACKGROUND, IN_RECOVERY, Fault, Option, Planned
from bench.schema import strategy_of

if TYPE_CHECKING:
    from bench.config import Run

AGAIN = "again"  # option of every fault: so many more strikes at the same slot, while the job recovers


def schedule(config: Run) -> list[list[Planned]]:
    """The faults of each launch, in the order in which they strike. Raises BadInput.

    First those given, then those drawn, cut into launches of `faults.per_launch`. Copies (option `again`) do not count.
    """
    given, size = wanted(config), config.faults.per_launch
    launches = [given[start : start + size] for start in range(0, len(given), size)]
    return [_launch(config, faults, number * size) for number, faults in enumerate(launches)]


def settle(planned: Planned, interval: int) -> Planned:
    """With the step that it has at this checkpoint interval (in steps, 2 or more); a given step stays.

    At a save: the save that ends interval `turn`. Else 1 to interval - 1 steps after the one that began it.
    """
    if planned.turn is None:
        return planned
    begin, end = planned.turn * interval, (planned.turn + 1) * interval
    within = begin + 1 + int(planned.share * (interval - 1))
    return replace(planned, step=end if planned.at in AT_SAVE else within)


def saves_needed(faults: Sequence[Planned], interval: int | None) -> int:
    """Saves of a launch (each after `interval` steps) so that an interval follows the last fault's; 0 without faults.

    `interval` may be None as long as no step was given.
    """
    turns = [0 if fault.turn is None else fault.turn for fault in faults]
    if interval is not None:
        turns += [fault.step // interval for fault in faults if fault.turn is None]
    return max(turns, default=-2) + 2


# --- what is wanted ---------------------------------------------------------------------------------------------------


def wanted(config: Run) -> list[Given]:
    """The given faults, then the drawn ones, each at its kind's usual moment. Raises BadInput for unknown kinds."""
    faults = config.faults
    for index, fault in enumerate(faults.given):
        create(fault.kind, f"faults.given[{index}].kind")
    for kind in faults.weights:
        create(kind, "faults.weights")
    kinds = draw(faults.weights, faults.count, random.Random(f"{config.seed}/kinds"))
    return [*faults.given, *(Given(kind, at=_usual_moment(create(kind), config)) for kind in kinds)]


def _usual_moment(kind: Fault, config: Run) -> str:
    return next(moment for moment in kind.moments if moment != "write" or _in_background(config))


def _in_background(config: Run) -> bool:
    """Whether a write may be in flight while training goes on."""
    return any(strategy_of(arm) in IN_BACKGROUND for arm in config.checkpoint.arms)


def draw(weights: Mapping[str, float], count: int, rng: random.Random) -> list[str]:
    """`count` kinds in random order, in proportion to `weights`: each kind's number is its share, rounded up or down.

    Systematic sampling: points at distances of 1 from a random start. Exact where the shares are whole numbers, right
    on the average elsewhere, so that a short schedule has the mix that was asked for, and is no lottery.
    """
    if count == 0:
        return []
    kinds = sorted(weights)
    parts = [Fraction(str(weights[kind])) for kind in kinds]
    ends = [end * count / sum(parts) for end in accumulate(parts)]
    start = Fraction(rng.random())
    drawn = [next(kind for kind, end in zip(kinds, ends, strict=True) if start + i < end) for i in range(count)]
    rng.shuffle(drawn)
    return drawn


# --- one launch -------------------------------------------------------------------------------------------------------


def _launch(config: Run, faults: Sequence[Given], first: int) -> list[Planned]:
    planned: list[Planned] = []
    turn = 0
    for number, given in enumerate(faults):
        index = first + number
        field = f"faults.given[{index}]" if index < len(config.faults.given) else f"faults.weights.{given.kind}"
        kind = create(given.kind, f"{field}.kind")
        _check(given, kind, config, field)
        rng = random.Random(f"{config.seed}/{index}")  # its own: one fault more does not move the others
        within = given.at in IN_RECOVERY
        turn = turn if within else max(turn + 1, kind.saves_before)
        fault = _place(Planned(f"{number}-{given.kind}", given.kind, given.at, 0, 0, 0), given, kind, config, rng)
        fault = _within_recovery(fault, planned, field) if within else _at_turn(fault, given, turn, config)
        planned += [fault, *_copies(fault, kind, int(given.options.get(AGAIN, 0)))]
    return planned


def _place(fault: Planned, given: Given, kind: Fault, config: Run, rng: random.Random) -> Planned:
    """With a victim, a share of the interval, and all options. Draws the same numbers whatever is given."""
    drawn, share = rng.randrange(config.world_size), rng.random()
    rank = drawn if given.rank is None else given.rank % config.world_size  # -1: the last one
    node, local_rank = divmod(rank, config.ranks_per_node)
    local_rank = 0 if kind.actor == "runner" else local_rank  # a node is the victim: its first rank speaks for it
    options = kind.defaults() | {name: value for name, value in given.options.items() if name != AGAIN}
    return replace(fault, node=node, local_rank=local_rank, options=options, share=share)


def _at_turn(fault: Planned, given: Given, turn: int, config: Run) -> Planned:
    if given.step is not None:
        return replace(fault, step=given.step)
    fault = replace(fault, turn=turn)
    interval = config.checkpoint.interval
    return fault if interval == "auto" else settle(fault, interval)


def _within_recovery(fault: Planned, before: Sequence[Planned], field: str) -> Planned:
    if not before:
        raise BadInput(
            f"{field}.at: {fault.kind} at {fault.at} strikes while the job recovers, and its launch has no fault before"
            " it; give that one first, and raise faults.per_launch so that both are in one launch"
        )
    last = before[-1]
    return replace(fault, after=last.id, step=last.step, turn=last.turn)


def _copies(fault: Planned, kind: Fault, count: int) -> list[Planned]:
    """The same fault at the same slot, each in the attempt that the one before it brought about, before any step.

    Before the ranks have joined where the kind can strike there, else before the first step.
    """
    at = "recovery" if "recovery" in kind.moments else "step"
    copies, last = [], fault
    for number in range(1, count + 1):
        last = replace(fault, id=f"{fault.id}-again{number}", at=at, after=last.id)
        copies.append(last)
    return copies


# --- rules ------------------------------------------------------------------------------------------------------------


def _check(given: Given, kind: Fault, config: Run, field: str) -> None:
    if given.rank is not None and not -config.world_size <= given.rank < config.world_size:
        raise BadInput(
            f"{field}.rank: must be below the number of ranks ({config.world_size}), got {given.rank}; "
            "give a lower one, -1 for the last one, or null to have it drawn"
        )
    if given.step is not None and (config.checkpoint.interval == "auto" or given.at in IN_RECOVERY):
        what = "any step" if given.at in IN_RECOVERY else "a step that only checkpoint.interval=STEPS makes foreseeable"
        raise BadInput(f"{field}.step: a fault at {given.at} strikes at {what}; leave the step out")
    _check_moment(given.at, kind, config, field)
    for name, value in given.options.items():
        _check_option(name, value, kind, f"{field}.options.{name}")


def _check_moment(at: str, kind: Fault, config: Run, field: str) -> None:
    """That the moment comes, and finds the checkpoints that it needs."""
    if at not in kind.moments:
        raise BadInput(f"{field}.at: {kind.name} cannot strike at {at}; give one of {', '.join(kind.moments)}")
    if at == "write" and not _in_background(config):
        others = ", ".join(moment for moment in kind.moments if moment != "write")
        raise BadInput(
            f"{field}.at: no write of {', '.join(config.checkpoint.arms)} is in flight while training goes on; give "
            f"one of {others}, or checkpoint.arms=[nvrx_async]"
        )
    if kind.saves_before > config.checkpoint.keep:
        raise BadInput(
            f"checkpoint.keep: {kind.name} needs {kind.saves_before} checkpoints, and {config.checkpoint.keep} is "
            f"kept; give checkpoint.keep={kind.saves_before}"
        )
    if config.recovery.save_once and (kind.saves_before > 1 or at in AT_SAVE):
        raise BadInput(
            f"recovery.save_once: {kind.name} at {at} needs more than the first save; give recovery.save_once=false"
        )


def _check_option(name: str, value: Any, kind: Fault, field: str) -> None:
    if name == AGAIN:
        if kind.tolerated:
            raise BadInput(f"{field}: {kind.name} starts no recovery in which it could strike again; leave it out")
        _require(isinstance(value, int) and not isinstance(value, bool) and value >= 0, field, "a whole number", value)
    elif name not in kind.options:
        known = [*kind.options, AGAIN]
        raise BadInput(f"{field}: unknown option of {kind.name}; {near(name, known)}")
    else:
        _check_value(kind.options[name], value, field)


def _check_value(default: Option, value: Any, field: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, tuple):
        _require(value in default, field, f"one of {', '.join(default)}", value)
    elif isinstance(default, bool):
        _require(isinstance(value, bool), field, "true or false", value)
    elif isinstance(default, int):
        _require(isinstance(value, int) and number and value > 0, field, "a whole number greater than 0", value)
    else:
        _require(number and value > 0, field, "a number greater than 0", value)


def _require(rule: bool, field: str, what: str, value: Any) -> None:
    if not rule:
        raise BadInput(f"{field}: must be {what}, got {value!r}; give such a value or leave it out")
