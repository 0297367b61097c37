"""Recovery layers over their launches: their price without faults, their goodput, what they made of each fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bench.measure.points import PARTS
from bench.measure.recoveries import Pair, cadence
from bench.measure.statistics import clustered_figure, ratio_figure
from bench.schema import FaultFigures, Figure, LayerFigures, LedgerRow, Recovery

LEAST_STEPS = 3  # that a launch must have in common with its twin before its first fault
LEAST_BLOCKS = 3  # twins: a single one that ran while the machine was busy would make any layer look cheap or dear
ORDER = ("in_process", "nested", "in_job", "torchrun", "pod_restart", "requeue", "none")
EXACT = {True: "yes", False: "no", None: "unknown"}


def layer_figures(
    found: Sequence[Pair], recoveries: Sequence[Recovery], ledger: Sequence[LedgerRow]
) -> list[LayerFigures]:
    """The figures of every layer that a launch ran under, the innermost first; launches ran in random order."""
    names = sorted(
        {_layer(pair) for pair in found}, key=lambda name: (ORDER.index(name) if name in ORDER else -1, name)
    )
    return [_figures(name, [p for p in found if _layer(p) == name], recoveries, ledger) for name in names]


def _layer(pair: Pair) -> str:
    return str(pair.struck.launch.launch["layer"])


def _figures(
    name: str, found: Sequence[Pair], recoveries: Sequence[Recovery], ledger: Sequence[LedgerRow]
) -> LayerFigures:
    indices = {pair.struck.launch.index for pair in found}
    own = [record for record in recoveries if record.launch in indices]
    labels = sorted({record.label for record in own})
    return LayerFigures(
        layer=name,
        launches=len(indices),
        overhead_share=_overhead_share(found),
        goodput=_goodput([row for row in ledger if row.launch in indices]),
        false_alarms=sum(pair.struck.false_alarms for pair in found),
        faults=[_fault(label, [record for record in own if record.label == label]) for label in labels],
    )


def _overhead_share(found: Sequence[Pair]) -> Figure | None:
    """1 - t_twin / t: what a step takes longer than the same step of the block's twin, before the first fault.

    Mean seconds of the steps that both have, one pair a launch, in logs; launches of a block share their twin. None
    for fewer than 3 blocks.
    """
    ratios, blocks = [], []
    for pair in found:
        means = _paired_step_s(pair)
        if means is not None:
            ratios.append(means)
            blocks.append(pair.struck.launch.block)
    ratio = ratio_figure(ratios, blocks) if len(set(blocks)) >= LEAST_BLOCKS else None
    if ratio is None:
        return None
    return Figure(1 - 1 / ratio.median, 1 - 1 / ratio.low, 1 - 1 / ratio.high, ratio.n, ratio.interval)


def _paired_step_s(pair: Pair) -> tuple[float, float] | None:
    """Mean step of the launch and of its twin, s; None where they have too few in common."""
    if pair.twin is None:
        return None
    struck = pair.struck.episodes
    ours = cadence(pair.struck, struck[0].begin) if struck else cadence(pair.struck)
    theirs = cadence(pair.twin)
    shared = ours.keys() & theirs.keys()
    if len(shared) < LEAST_STEPS:
        return None
    return sum(ours[step] for step in shared) / len(shared), sum(theirs[step] for step in shared) / len(shared)


def _goodput(rows: Sequence[LedgerRow]) -> float | None:
    wall_s = sum(row.seconds for row in rows)
    useful_s = sum(row.seconds for row in rows if row.category == "useful")
    return useful_s / wall_s if wall_s > 0 else None


# --- one fault under one layer ----------------------------------------------------------------------------------------
def _fault(label: str, records: Sequence[Recovery]) -> FaultFigures:
    recovered = [record for record in records if record.outcome == "recovered"]
    return FaultFigures(
        fault=label,
        further_faults=max(record.further_faults for record in records),
        episodes=sum(record.episode is not None for record in records),
        outcomes=dict(Counter(record.outcome for record in records)),
        layers_used=dict(Counter(record.layer_used for record in recovered if record.layer_used is not None)),
        exact=dict(Counter(EXACT[record.resume_exact] for record in recovered)),
        time_to_recover_s=recovery_figure(recovered, "time_to_recover_s"),
        time_to_catch_up_s=recovery_figure(recovered, "time_to_catch_up_s"),
        parts={f"{part}_s": recovery_figure(recovered, f"{part}_s") for part in PARTS},
        lost_steps=recovery_figure(recovered, "lost_steps"),
        gpu_seconds_lost=recovery_figure(recovered, "gpu_seconds_lost"),
    )


def recovery_figure(records: Sequence[Recovery], name: str) -> Figure | None:
    """The figure of one field over episodes, which come in launches; None where no episode has it.

    Whoever states a time to recover takes it from here: of two values the median in logs is not the one of the values.
    """
    known: list[tuple[Any, int]] = [
        (value, record.launch) for record in records if (value := getattr(record, name)) is not None
    ]
    values, launches = [float(value) for value, _ in known], [launch for _, launch in known]
    return clustered_figure(values, launches, positive=name != "lost_steps")
