"""`python -m bench doctor`: all groups of checks over one case, and the exit code."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bench import driver, environment, places
from bench.config import Run
from bench.doctor import copies, cost, engine, gpus, host, network, software, store
from bench.doctor.base import Case, Check
from bench.errors import BadInput
from bench.launch.base import Paths
from bench.launch.kube_names import Names
from bench.report import doctor as report

FORMS = ("table", "json")


@dataclass(frozen=True)
class Group:
    """Checks that belong together. `where` they mean something: anywhere, on a node of the run, where the store is."""

    title: str
    examine: Callable[[Case], Iterator[Check]]
    where: Literal["anywhere", "node", "store"] = "node"


GROUPS = (
    Group("where", engine.examine, "anywhere"),
    Group("GPUs", gpus.examine),
    Group("software", software.examine),
    Group("host", host.examine),
    Group("checkpoint store", store.examine, "store"),
    Group("node-local folders", store.folders),
    Group("network", network.examine),
    Group("copies", copies.examine),
    Group("cost and timeouts", cost.examine, "anywhere"),
)


def run(config: Run, form: str = "table") -> int:
    """Examine and print; 1 if a check failed, else 0. Raises BadInput for a run that could not be meant anywhere."""
    if form not in FORMS:
        raise BadInput(f"format: must be {' or '.join(FORMS)}, got {form!r}")
    case = case_of(config)
    if form == "json":
        found = {group.title: list(examined(group, case)) for group in GROUPS}
        report.print_json(case.config, found)
    else:
        screen = report.Screen()
        screen.head(case.config)
        found = {group.title: screen.group(group.title, examined(group, case)) for group in GROUPS}
        screen.verdict([check for checks in found.values() for check in checks])
    return 1 if any(check.level == "fail" for checks in found.values() for check in checks) else 0


def case_of(config: Run) -> Case:
    there = environment.gpus()
    config = driver.resolved(config, len(there))
    case = Case(
        config,
        there,
        environment.versions(),
        work_dir=places.work_base(config),
        checkpoint_dir=places.checkpoint_base(config),
        results_dir=Path(config.results_dir),
    )
    return in_pod(case) if case.in_pod else case


def in_pod(case: Case) -> Case:
    """With the folders where the run's pods have their volumes, whatever the machine that submits calls its own."""
    names = Names.of(case.config, Paths(Path("MACHINE/SCENARIO/TIME"), Path("RUN"), Path("RUN")))
    return replace(
        case,
        work_dir=Path(names.work_dir.parent),
        checkpoint_dir=Path(names.checkpoint_dir.parent),
        results_dir=Path(names.result.parents[2]),
    )


def examined(group: Group, case: Case) -> Iterator[Check]:
    """The checks of a group, or why this machine is not the one to look at. A check that breaks ends its group only."""
    if (group.where == "node" and not case.on_node) or (group.where == "store" and not case.sees_store):
        yield Check(group.title, "skip", "not to be seen from this machine")
        return
    try:
        yield from group.examine(case)
    except (OSError, ValueError, LookupError, RuntimeError, subprocess.SubprocessError) as error:
        found = f"could not be looked at: {type(error).__name__}: {error}"
        yield Check(group.title, "warn", found, "a machine that the doctor does not know: please report it")
