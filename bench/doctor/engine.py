"""Where the run is to take place: enough nodes, the engine's clients, an allocation of the right form."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from bench import launch
from bench.doctor.base import IN_JOB, Case, Check, judged
from bench.errors import BadInput
from bench.launch.kube_names import CHECKPOINTS, CLAIM, NODE

FROM_A_POD = "the machine that submits asks the cluster; a pod needs no right to, and no client"
MOUNTS = f"{CLAIM} and {CHECKPOINTS}, the host's folder at {NODE}"
SLURM_CLIENTS = ("sbatch", "srun", "squeue", "scontrol", "scancel")


def examine(case: Case) -> Iterator[Check]:
    if not case.on_node:
        yield Check("this machine", "skip", "submits the run and takes no part in it", on_a_node(case))
    yield nodes(case)
    yield Check("placement", "skip", FROM_A_POD) if case.in_pod else placement(case)
    if case.config.cluster.name == "slurm":
        missing = [name for name in SLURM_CLIENTS if shutil.which(name) is None]
        found = f"not on PATH: {', '.join(missing)}" if missing else "its clients are there"
        yield judged("Slurm", not missing, found, "run this on a login node, or load the cluster's Slurm module")
        if "SLURM_JOB_ID" in case.environ:
            yield allocation(case.environ, case.config.num_nodes, case.layers)
    if case.config.cluster.name == "kubernetes" and not case.in_pod:
        yield kubernetes()


def on_a_node(case: Case) -> str:
    if case.config.cluster.name == "slurm":
        return f"for its nodes: salloc --nodes={case.config.num_nodes} ..., then the same command there"
    return f"for its nodes: the same command in a pod of the same image, with the claims at {MOUNTS}"


def nodes(case: Case) -> Check:
    asked, kind = case.config.num_nodes, case.config.cluster.name
    if kind == "local":
        remedy = "cluster=slurm, cluster=kubernetes, or a rehearsal with cluster=emulated; for this machine num_nodes=1"
        return judged("nodes", asked == 1, f"{asked} needed, cluster=local is this one machine", remedy)
    where = {"emulated": "all of them emulated here: never cluster figures"}.get(kind, f"from {kind}")
    return Check("nodes", "ok", f"{asked} x {case.config.ranks_per_node} ranks, {where}")


def placement(case: Case) -> Check:
    """The rule that a run itself would apply."""
    try:
        launch.create(case.config.cluster.name).check(case.config, len(case.gpus))
    except BadInput as error:
        found, _, remedy = str(error).rpartition("; ")
        return Check("placement", "fail", f"`run` would refuse: {found}", remedy)
    return Check("placement", "ok", f"`run` accepts cluster={case.config.cluster.name}")


def allocation(environ: Mapping[str, str], num_nodes: int, layers: set[str]) -> Check:
    """NVRx's launcher refuses to start where an allocation does not say one task per node."""
    there, tasks = int(environ.get("SLURM_JOB_NUM_NODES", "1")), environ.get("SLURM_TASKS_PER_NODE")
    found = f"job {environ['SLURM_JOB_ID']}: {there} nodes, SLURM_TASKS_PER_NODE={tasks}"
    if there < num_nodes:
        return Check("allocation", "fail", found, f"an allocation of {num_nodes} nodes, or num_nodes={there}")
    single = tasks is not None and all(count == 1 for count in tasks_per_node(tasks))
    remedy = "allocate with --ntasks-per-node=1: ft_launcher (in_job, nested) refuses to start otherwise"
    return judged("allocation", single, found, remedy, "fail" if layers & IN_JOB else "warn")


def tasks_per_node(text: str) -> list[int]:
    """Tasks of each node by Slurm's short form: "2(x3),1" is [2, 2, 2, 1]."""
    counts = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", word.strip())
        if match is None:
            raise ValueError(f"SLURM_TASKS_PER_NODE={text} is not understood")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def kubernetes() -> Check:
    client = find_spec("kubernetes") is not None
    found = "the Python client is there" if client else "the Python client is not installed"
    remedy = "pip install kubernetes (dry_run=true prints the manifest without it)"
    return judged("Kubernetes", client, found, remedy)
