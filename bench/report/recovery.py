"""Recoveries on the terminal: the plan, the matrix of faults and layers, where the time went, what a layer costs.

Tables fit 80 columns: a matrix of many layers is split, and parts stand in a table a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from bench.config import Run
from bench.design import Launch
from bench.faults.base import IN_RECOVERY, Planned
from bench.report.words import MISSING, percent, seconds, with_interval
from bench.schema import FaultFigures, Figure, LayerFigures, Recovery, Summary

LABEL_WIDTH, CELL_WIDTH = 22, 26  # columns of the matrix
PARTS = (
    ("detect", "detect_s"),
    ("stop", "stop_s"),
    ("queue", "queue_s"),
    ("restart", "restart_s"),
    ("load", "load_s"),
    ("step", "first_step_s"),
    ("catch up", "catch_up_s"),
)
OUTCOMES = {
    "recovered": "recovered",
    "tolerated": "tolerated",
    "not_recovered": "NOT RECOVERED",
    "not_fired": "did not strike",
    "unavailable": "unavailable",
}


# --- before -----------------------------------------------------------------------------------------------------------
def planned(config: Run, launches: Sequence[Launch]) -> str:
    """What a run of design=recovery compares, one line."""
    kinds = dict.fromkeys(fault.kind for launch in launches for fault in launch.faults)
    layers = [name for name in config.recovery.layers if any(each.faults and each.layer == name for each in launches)]
    blocks = f"{config.blocks} block{'s' * (config.blocks != 1)}"
    return f"layers: {', '.join(layers)}; faults: {', '.join(kinds) or 'none'}; {blocks}"


def launch_words(launch: Launch) -> str:
    """A launch of the list: who starts its ranks, and what strikes it."""
    if not launch.faults:
        return f"{', '.join(launch.arms)}, no fault"
    return f"{launch.layer}: {'; '.join(map(_planned_words, launch.faults))}"


def _planned_words(fault: Planned) -> str:
    victim = f"on node {fault.node} rank {fault.local_rank}"
    if fault.at in IN_RECOVERY:
        return f"{fault.kind} in the {fault.at} after it, {victim}"
    moment = "" if fault.at == "step" else f" in {fault.at}"
    when = f"after step {fault.step}" if fault.step else f"after save {fault.turn}"
    return f"{fault.kind}{moment} {when} {victim}"


# --- while it runs ----------------------------------------------------------------------------------------------------
def provisional(recoveries: Sequence[Recovery], launch: int) -> str:
    """What came of the faults of one launch, one line."""
    return "; ".join(_in_a_line(record) for record in recoveries if record.launch == launch)


def timeouts_words(values: Mapping[str, float]) -> list[str]:
    """The set that a run's launches with faults share, in groups; `values`: the fields of bench.recovery.timeouts."""
    groups = {
        "from": ("step_s", "save_s", "startup_s"),
        "in_job": ("rank_heartbeat_s", "initial_heartbeat_s", "check_interval_s"),
        "in_process": ("soft_s", "hard_s", "missing_rank_s", "barrier_s"),
        "nested": ("nested_heartbeat_s",),
        "collectives": ("collective_s", "collective_alone_s"),
        "agents": ("workers_stop_s", "rendezvous_s"),
    }
    return [
        f"{title}: {', '.join(f'{name[:-2]} {seconds(values[name])}' for name in names)}"
        for title, names in groups.items()
    ]


def _in_a_line(record: Recovery) -> str:
    text = f"{record.label} under {record.layer}: {OUTCOMES[record.outcome]}"
    if record.outcome == "recovered":
        by = f" by {record.layer_used}" if record.layer_used not in (None, record.layer) else ""
        caught_up = record.time_to_catch_up_s
        late = f", caught up after {seconds(caught_up)}" if caught_up is not None else ""
        return f"{text}{by} in {seconds(record.time_to_recover_s)}{late}"
    return f"{text} ({record.reason})" if record.reason else text


# --- the result -------------------------------------------------------------------------------------------------------
def matrix(layers: Sequence[LayerFigures], width: int) -> Iterator[Table]:
    """A row a fault, a column a layer: what came of it, by whom, time to recover and to catch up."""
    labels = sorted({fault.fault for layer in layers for fault in layer.faults})
    fitting = max((width - LABEL_WIDTH) // CELL_WIDTH, 1)
    for first in range(0, len(layers), fitting):
        shown = layers[first : first + fitting]
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, show_lines=False)
        table.add_column("fault", justify="left", max_width=LABEL_WIDTH - 2, overflow="fold")
        for layer in shown:
            table.add_column(layer.layer, justify="left", max_width=CELL_WIDTH - 2)
        for label in labels:
            cells = [_of(layer, label) for layer in shown]
            if any(cell is not None for cell in cells):
                names = [layer.layer for layer in shown]
                texts = ["" if cell is None else _cell(cell, name) for cell, name in zip(cells, names, strict=True)]
                table.add_row(label, *texts)
        yield table


def _of(layer: LayerFigures, label: str) -> FaultFigures | None:
    return next((fault for fault in layer.faults if fault.fault == label), None)


def _cell(fault: FaultFigures, layer: str) -> str:
    lines = [outcome_words(fault)]
    if fault.layers_used and list(fault.layers_used) != [layer]:
        lines.append(f"by {', '.join(_counted(fault.layers_used))}")
    if (took := fault.time_to_recover_s) is not None:
        lines.append(seconds(took.median) if took.n == 1 else with_interval(took, seconds))
    if fault.time_to_catch_up_s is not None:
        lines.append(f"caught up {seconds(fault.time_to_catch_up_s.median)}")
    return "\n".join(lines)


def outcome_words(fault: FaultFigures) -> str:
    """ "recovered", "recovered 3", or of different outcomes each with its count."""
    if list(fault.outcomes.values()) == [1]:
        return OUTCOMES[next(iter(fault.outcomes))]
    return ", ".join(f"{OUTCOMES[outcome]} {count}" for outcome, count in fault.outcomes.items())


def _counted(counts: dict[str, int]) -> list[str]:
    """Names, with their counts where there are several."""
    return list(counts) if len(counts) == 1 else [f"{name} {count}" for name, count in counts.items()]


def parts(layers: Sequence[LayerFigures], time_unit: str) -> Iterator[tuple[str, Table]]:
    """For every fault that some layer recovered from, where the time went: medians, s; with its label."""
    labels = sorted({fault.fault for layer in layers for fault in layer.faults})
    queued = any(fault.parts.get("queue_s") is not None for layer in layers for fault in layer.faults)
    shown = [(title, part) for title, part in PARTS if queued or part != "queue_s"]
    for label in labels:
        recovered = [(layer.layer, found) for layer in layers if (found := _of(layer, label)) and _recovered(found)]
        if not recovered:
            continue
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        table.add_column("", justify="left", no_wrap=True, min_width=11)
        for title in (*(title for title, _ in shown), "steps lost", _short(time_unit), "exact"):
            table.add_column(title, justify="right", min_width=max(map(len, title.split())))
        for name, fault in recovered:
            figures = [_number(fault.parts[part]) for _, part in shown]
            table.add_row(name, *figures, _steps(fault.lost_steps), _number(fault.gpu_seconds_lost), _exact(fault))
        yield label, table


def _recovered(fault: FaultFigures) -> bool:
    return bool(fault.outcomes.get("recovered"))


def _short(time_unit: str) -> str:
    return "GPU-s lost" if time_unit == "GPU-seconds" else "slot-s lost"


def _number(figure: Figure | None) -> str:
    """To a hundredth: tables of many columns; summary.json has the rest."""
    return MISSING if figure is None else f"{figure.median:.2f}" if figure.median < 1000 else f"{figure.median:.0f}"


def _steps(figure: Figure | None) -> str:
    return MISSING if figure is None else f"{figure.median:g}"


def _exact(fault: FaultFigures) -> str:
    """ "3/3": so many of the recoveries that were compared with a twin; a dash if none was."""
    yes, no = fault.exact.get("yes", 0), fault.exact.get("no", 0)
    return MISSING if yes + no == 0 else f"{'NO ' * (no > 0)}{yes}/{yes + no}"


def prices(layers: Sequence[LayerFigures]) -> Table:
    """What each layer costs when nothing fails, what is left of its launches' time, and false alarms."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in ("layer", "launches", "price without faults", "goodput here", "false alarms"):
        table.add_column(title, justify="left", no_wrap=True)
    for layer in layers:
        price = MISSING if layer.overhead_share is None else with_interval(layer.overhead_share, percent)
        table.add_row(layer.layer, str(layer.launches), price, percent(layer.goodput), str(layer.false_alarms))
    return table


def left_out(recoveries: Sequence[Recovery]) -> list[str]:
    """Faults that this machine cannot do or did not carry out, and jobs that did not come back, each once and why."""
    found: dict[str, None] = {}
    for record in recoveries:
        if record.outcome == "unavailable":
            found[f"{record.label} was unavailable: {record.reason}"] = None
        elif record.outcome in ("not_recovered", "not_fired") and record.reason:
            what = "did not strike" if record.outcome == "not_fired" else "not recovered"
            found[f"{record.label} under {record.layer}: {what} ({record.reason})"] = None
    return list(found)


def legend(summary: Summary) -> str:
    episodes = sum(record.episode is not None for record in summary.recoveries)
    launches = len({record.launch for record in summary.recoveries})
    counted = f"{episodes} episode{'s' * (episodes != 1)} in {launches} launch{'es' * (launches != 1)}"
    text = f"{counted}; medians [range or 95 % interval]; time from the fault to the "
    return f"{text}first step of all ranks, the suite's own state checks taken out; definitions: METHOD.md"
