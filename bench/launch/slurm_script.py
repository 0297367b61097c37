"""The job script: one allocation, one runner per node by srun. Pure text; what it starts is bench.launch.slurm_task.

Slurm runs it from its beginning again when it requeues the job: the runners then go on with the launches that are not
finished. Inside an existing allocation bash runs the same script and its #SBATCH lines are comments.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
from pathlib import Path

from bench.config import Run
from bench.errors import BadInput
from bench.launch.base import RELAUNCH, Paths, work_folder

WARNING_S = 120  # before the time limit: runners end their launch and bring home what they measured
SHORTEST_S = 4 * WARNING_S  # a shorter job is warned when a quarter of its time is left
BUDGET_SLACK, BUDGET_SLACK_MINUTES = 1.2, 10  # a launch may take longer than foreseen, and nodes have to start up
PREDICTION_SLACK, PREDICTION_SLACK_MINUTES = 3.0, 15  # before a pilot has run, little is known
SCRIPT, STEP = "job.sh", "step"  # files in <result>/slurm

# srun answers SIGTERM by killing its tasks at once, so the way to an orderly end is a signal to the step.
BODY = """\
leave() {{  # runners end their launch and bring home what they measured; srun itself would kill them
    target=$(cat {step} 2>/dev/null)
    if [ -n "$target" ]; then
        timeout 30 scancel --ctld --signal=TERM "$target"
    else
        kill -TERM "$runners"
    fi
}}
trap leave USR1 TERM

rm -f {step}
{srun} &
runners=$!
# A signal that is trapped ends a wait, so that it is begun again until srun is gone.
until wait "$runners"; code=$?; ! kill -0 "$runners" 2>/dev/null; do :; done
{relaunch}exit "$code"
"""

# Slurm ends this script once it has taken the order: whatever comes first, the job is queued again.
REQUEUE = """\
if [ "$code" = {code} ]; then  # the runners ask for the whole job to be started again
    trap - USR1 TERM
    timeout 60 scontrol requeue "$SLURM_JOB_ID" && exec sleep 60
    echo "recovery.relaunch: Slurm does not requeue job $SLURM_JOB_ID; use recovery.relaunch=coordinator"
fi
"""


def folder(result: Path) -> Path:
    """Where a result keeps what concerns Slurm: job scripts, ids, outputs of jobs."""
    return result / "slurm"


def render(config: Run, paths: Paths, minutes: int | None, within: bool = False) -> str:
    """The script. `minutes`: the job's time limit (None: the partition's). `within`: a step of an allocation."""
    lines = ["#!/bin/bash", *(f"#SBATCH {word}" for word in directives(config, paths, minutes)), ""]
    lines += [*environment(config), *_setup(config), ""]
    relaunch = REQUEUE.format(code=RELAUNCH) if config.recovery.relaunch == "engine" and not within else ""
    step, srun = _quote(folder(paths.result) / STEP), _srun(config, paths, within)
    lines += [*_prepare(config), BODY.format(step=step, srun=srun, relaunch=relaunch)]
    return "\n".join(lines)


def time_limit_minutes(config: Run, predicted_s: float | None) -> int | None:
    """From the budget, else from the prediction; None: unknown. cluster.time, which goes before both, is not asked."""
    if config.budget.minutes is not None:
        return math.ceil(config.budget.minutes * BUDGET_SLACK) + BUDGET_SLACK_MINUTES
    if predicted_s is not None:
        return math.ceil(predicted_s / 60 * PREDICTION_SLACK) + PREDICTION_SLACK_MINUTES
    return None


def warning_s(config: Run, minutes: int | None) -> int:
    """How long before its time limit the job is warned."""
    limit_s = seconds_of(config.cluster.time) if config.cluster.time else None if minutes is None else minutes * 60
    return WARNING_S if limit_s is None or limit_s >= SHORTEST_S else limit_s // 4


def seconds_of(time: str) -> int:
    """A time limit as Slurm writes it: MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS. Raises BadInput."""
    found = re.fullmatch(r"(?:(\d+)-(?=\d))?(\d+)(?::(\d+))?(?::(\d+))?", time)
    if found is None:
        raise BadInput(f"cluster.time: must be [D-]HH:MM:SS or minutes, got {time!r}")
    days, parts = found[1], [int(part) for part in found.groups()[1:] if part is not None]
    if days is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, [*parts, 0][:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def directives(config: Run, paths: Paths, minutes: int | None) -> list[str]:
    """Options of sbatch. The user's own come last: of a repeated option the last one counts."""
    cluster = config.cluster
    output = str(folder(paths.result) / "job-%j.out")
    words = [
        f"--job-name=bench-{config.scenario}",
        f"--nodes={config.num_nodes}",
        "--ntasks-per-node=1",
        f'--output="{output}"' if re.search(r"\s", output) else f"--output={output}",
        "--open-mode=append",
        f"--signal=B:USR1@{warning_s(config, minutes)}",
        "--requeue" if may_be_requeued(config) else "--no-requeue",
    ]
    words += [] if cluster.requeue else ["--no-kill"]
    limit = cluster.time if cluster.time is not None else minutes
    given = {
        "time": limit,
        "partition": cluster.partition,
        "account": cluster.account,
        "constraint": cluster.constraint,
    }
    words += [f"--{name}={value}" for name, value in given.items() if value is not None]
    words += ["--exclusive", "--mem=0"] if cluster.exclusive else [f"--cpus-per-task={_cpus(config)}"]
    return [*words, *_gpus(config), *cluster.directives]


def may_be_requeued(config: Run) -> bool:
    return config.cluster.requeue or config.recovery.relaunch == "engine"


def _gpus(config: Run) -> list[str]:
    if config.cluster.gres is not None:
        return [f"--gres={config.cluster.gres}"]
    return [f"--gpus-per-node={config.ranks_of_last_node}"] if config.device == "cuda" else []


def _cpus(config: Run) -> int:
    """Of a node that is shared with other jobs: each rank's threads and its background writer, and the runner."""
    return config.ranks_of_last_node * (config.train.threads + 1) + 1


def environment(config: Run) -> list[str]:
    """Lines that set variables of all runners. BENCH_PEERS: the addresses by which Slurm itself reaches the nodes."""
    root = _quote(root_of_code())
    lines = [f"export {name}={shlex.quote(value)}" for name, value in config.cluster.env.items()]
    return [
        f"export PYTHONPATH={root}${{PYTHONPATH:+:$PYTHONPATH}}",
        *lines,
        'nodes=$(timeout 30 scontrol -o show node "$SLURM_JOB_NODELIST" | sed -n "s/.* NodeAddr=\\([^ ]*\\).*/\\1/p")',
        "export BENCH_PEERS=$(echo $nodes)",
    ]


def _setup(config: Run) -> list[str]:
    """The user's lines. One that fails ends the job: what would be measured is not what was asked for."""
    ended = ["[ $? = 0 ] || { echo 'cluster.setup: the line above has failed'; exit 1; }"]
    return [line for given in config.cluster.setup for line in (f"echo {shlex.quote('+ ' + given)}", given, *ended)]


def root_of_code() -> Path:
    return Path(__file__).resolve().parents[2]


# --- the runners
def _srun(config: Run, paths: Paths, within: bool) -> str:
    n = config.num_nodes
    words = ["srun", f"--nodes={n}", f"--ntasks={n}", "--ntasks-per-node=1", "--cpu-bind=none", "--export=ALL"]
    # One runner's end is no reason to end the others: the coordinator knows what a launch can do without.
    words += ["--kill-on-bad-exit=0", "--wait=0", *([] if config.cluster.requeue else ["--no-kill"])]
    words += [f"--output={paths.result / 'logs' / 'runner-%t.log'}", "--open-mode=append"]
    words += ["--overlap"] if within else []
    words += [] if config.cluster.exclusive or within else [f"--cpus-per-task={_cpus(config)}"]
    words += [*_pyxis(config, paths), *config.cluster.srun_args]
    command = [*_apptainer(config, paths), *_task(config, paths, within)]
    return f"{shlex.join(words)} \\\n    {shlex.join(command)}"


def _task(config: Run, paths: Paths, within: bool) -> list[str]:
    cluster = config.cluster
    python = cluster.python or ("python3" if cluster.container else sys.executable)
    words = [python, "-u", "-m", "bench.launch.slurm_task", "--result", str(paths.result)]
    words += ["--checkpoint-dir", str(paths.checkpoint_dir), "--device", config.device]
    words += ["--work-base", work] if (work := _work_base(config)) else []
    return words if within or may_be_requeued(config) else [*words, "--release"]


# --- containers
def _work_base(config: Run) -> str | None:
    """The node-local folder; None leaves it to the node's own temporary folder, which a container does not share."""
    if config.work_dir is not None:
        return config.work_dir
    return f"/tmp/{work_folder()}" if config.cluster.container else None


def _prepare(config: Run) -> list[str]:
    """A container mounts folders of its host, which must be there: made on every node before it starts."""
    work = _work_base(config)
    if config.cluster.container is None or work is None:
        return []
    n = config.num_nodes
    return [shlex.join(["srun", f"--nodes={n}", f"--ntasks={n}", "--ntasks-per-node=1", "mkdir", "-p", work]), ""]


def _mounts(config: Run, paths: Paths) -> str:
    """Of the code, the result, the checkpoints and the node-local folder, each under its own name; then the user's."""
    own = [root_of_code(), paths.result, paths.checkpoint_dir.parent, Path(_work_base(config) or "/tmp")]
    return ",".join([*(f"{path}:{path}" for path in own), *config.cluster.container_mounts])


def _pyxis(config: Run, paths: Paths) -> list[str]:
    cluster = config.cluster
    if cluster.container is None or cluster.container_runtime != "pyxis":
        return []
    return [f"--container-image={cluster.container}", f"--container-mounts={_mounts(config, paths)}"]


def _apptainer(config: Run, paths: Paths) -> list[str]:
    cluster = config.cluster
    if cluster.container is None or cluster.container_runtime != "apptainer":
        return []
    gpus = ["--nv"] if config.device == "cuda" else []
    return ["apptainer", "exec", *gpus, "--bind", _mounts(config, paths), cluster.container]


def _quote(path: Path) -> str:
    return shlex.quote(str(path))


def check(config: Run, paths: Paths) -> None:
    """Raise BadInput for what no script can be made of."""
    if config.cluster.time is not None:
        seconds_of(config.cluster.time)
    _require_gpus(config)
    for word in config.cluster.directives:
        if "\n" in word or not word.startswith("-"):
            raise BadInput(f"cluster.directives: must be options of sbatch without #SBATCH, got {word!r}")
    if re.search(r"[\n\"%]", str(paths.result)):
        raise BadInput(f"results_dir: {paths.result} has a character that Slurm reads as its own; give another path")


def _require_gpus(config: Run) -> None:
    """A rank without a GPU of its own would die at its start. What gres names without a number is left to Slurm."""
    found = re.search(r"\bgpu(?::[^:,]+)?:(\d+)\b", config.cluster.gres or "")
    if config.device == "cuda" and found and int(found[1]) < config.ranks_of_last_node:
        raise BadInput(
            f"cluster.gres: {config.cluster.gres} is too few for {config.ranks_of_last_node} ranks of a node "
            f"(ranks_per_node={config.ranks_per_node}, recovery.reserve={config.recovery.reserve}); "
            f"give fewer ranks_per_node, or more GPUs"
        )
