"""Several occasions in one result, and sessions that finish one: what they may be given, and what must be as it was.

A result has the configuration and the environment of its first occasion. `resume=` and `append=` take from the command
line what was not measured (the budget, the job at whose period the verdict is given, a price, how one waits); they
refuse everything else, so that nothing given is ignored, and every machine and software that is not the first one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import environment
from bench.config import Run
from bench.errors import BadInput
from bench.places import checkpoint_base
from bench.results import ResultFolder

if TYPE_CHECKING:
    from bench.design import Launch

WAITING = ("wait", "poll_s", "time")  # of cluster: how one waits for the engine
LIMITS = ("minutes", "gpu_hours")  # of budget
ANEW = ("budget", "job", "price_per_gpu_hour", *(f"cluster.{name}" for name in WAITING))
NAMING = ("resume", "append", "machine")  # which result, and that this is its machine
# Where results go and how one waits is no part of the work, nor is what it may cost and against what it is held.
NO_WORK = {"results_dir", "work_dir", "machine", "resume", "append", "dry_run", "budget", "price_per_gpu_hour", "job"}
SOFTWARE = ("torch", "nvidia_resiliency_ext", "nccl", "cuda", "driver", "python", "kernel")
PROVISIONAL = "provisional"  # an environment of the machine that submitted, until a node has described its own


def occasion(launches: Iterable[Launch]) -> dict[str, Any]:
    """Its record in run.json."""
    now = datetime.now(timezone.utc)
    return {
        "started": now.timestamp(),
        "date": now.isoformat(timespec="seconds"),
        "launches": [each.to_json() for each in launches],
    }


def settled_interval(folder: ResultFolder, content: Mapping[str, Any]) -> int | None:
    """Steps between saves as the first pilot settled checkpoint.interval=auto; None: given, or not settled yet.

    Another occasion keeps it: an interval of its own would be other work in the same figures.
    """
    config = content["config"]
    if config["checkpoint"]["interval"] != "auto" or config["design"]["name"] == "sweep":
        return None
    for each in content["occasions"]:
        for launch in each["launches"]:
            record = folder.read_launch(launch["index"]) or {}
            if launch["kind"] != "pilot" and isinstance(record.get("interval"), int):
                return int(record["interval"])
    return None


# --- what is given beside resume= and append=
def unlike(measured: Run, asked: Run) -> list[str]:
    """Fields in which two configurations describe other work."""
    waiting = {name: getattr(measured.cluster, name) for name in WAITING}
    asked = replace(asked, cluster=replace(asked.cluster, **waiting))
    differing = (f.name for f in fields(Run) if getattr(measured, f.name) != getattr(asked, f.name))
    return [name for name in differing if name not in NO_WORK]


def anew(measured: Run, asked: Run, given: Sequence[str]) -> Run:
    """The measured configuration with what was given anew. `given`: the keys of the command line.

    A limit that is not given again stays; a job is one statement, so a new one replaces the old one as a whole.
    """
    limits = {name: getattr(asked.budget, name) for name in LIMITS if {"budget", f"budget.{name}"} & set(given)}
    waiting = {name: getattr(asked.cluster, name) for name in WAITING if f"cluster.{name}" in given}
    return replace(
        measured,
        budget=replace(measured.budget, **limits),
        cluster=replace(measured.cluster, **waiting),
        job=asked.job if _among(given, "job") else measured.job,
        price_per_gpu_hour=asked.price_per_gpu_hour if "price_per_gpu_hour" in given else measured.price_per_gpu_hour,
    )


def _among(given: Iterable[str], name: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for key in given)


def refuse_beside_resume(given: Sequence[str]) -> None:
    """Raises BadInput for a key that would be ignored."""
    other = [key for key in given if not any(_among([key], name) for name in (*NAMING, *ANEW))]
    if other:
        raise BadInput(
            f"{other[0]}: resume= goes on with the configuration of the result; leave out {', '.join(other)} "
            f"(what can be given anew: {', '.join(ANEW)})"
        )


def refuse_anew_while_left(path: Path, given: Sequence[str]) -> None:
    """Raises BadInput for what runners that may still be at work would not hear of."""
    other = [key for key in given if key not in NAMING]
    if other:
        raise BadInput(
            f"{other[0]}: the runners of {path} may still be at work with what they were told; "
            f"collect them first by resume= alone, then give {', '.join(other)}"
        )


def refuse_other_work(path: Path, measured: Run, asked: Run, given: Sequence[str]) -> None:
    """Raises BadInput where append= asks for other work than was measured, or for another place."""
    places = [key for key in ("results_dir", "work_dir") if key in given]
    differing = unlike(measured, asked) + [key for key in places if getattr(measured, key) != getattr(asked, key)]
    if differing:
        raise BadInput(
            f"append: {path} was measured with another {', '.join(differing)}; give the same, or start a new run"
        )


# --- where it runs
def machine_of(measured: Run, asked: Run, given: Sequence[str]) -> str:
    """The name under which this machine is known: as given now, else as given then, else the host's."""
    return environment.machine_name(asked.machine if "machine" in given else measured.machine)


def settle_environment(content: dict[str, Any], now: Mapping[str, Any]) -> None:
    """Put the environment in which the last occasion starts into the content of run.json.

    The run's is the first occasion's; each further one has its own beside its launches. Raises BadInput for one that
    is unlike the first. `now`: from environment.describe, with "machine" where its name says which machine it is.
    """
    first, last = content["environment"], content["occasions"][-1]
    kept = {name: first[name] for name in ("machine", "device")}
    if first.get(PROVISIONAL):
        content["environment"] = {**now, **kept}
        return
    differing = list(unlike_environment(first, now))
    if differing:
        renamed = f"; or give machine={first['machine']} if only its name changed" if "machine" in now else ""
        raise BadInput(
            f"environment: the result was begun with another {', '.join(differing)}; restore it, or measure a new "
            f"result and compare the two (python -m bench compare base=RESULT new=RESULT){renamed}"
        )
    if len(content["occasions"]) > 1 and "environment" not in last:
        last["environment"] = {**now, **kept}


def take_over_environments(content: dict[str, Any], there: Mapping[str, Any]) -> None:
    """Into one content of run.json from another of the same run, as nodes have described them."""
    content["environment"] = there["environment"]
    for ours, theirs in zip(content["occasions"], there["occasions"], strict=False):
        if "environment" in theirs:
            ours["environment"] = theirs["environment"]


def unlike_environment(first: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What differs, with both values. What one of the two did not record differs in nothing."""
    for name, (ours, theirs) in _compared(first, now).items():
        if ours != theirs:
            yield f"{name} ({_text(ours)}, now {_text(theirs)})"


def _compared(first: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    ours, theirs = first.get("versions") or {}, now.get("versions") or {}
    found = {name: (ours[name], theirs[name]) for name in SOFTWARE if name in ours and name in theirs}
    found |= {name: (first[name], now[name]) for name in ("machine", "cpu") if name in first and name in now}
    if first.get("device") == "cuda" and "gpus" in first and "gpus" in now:
        found["gpu"] = (_models(first["gpus"]), _models(now["gpus"]))
    return found


def _models(gpus: Iterable[Mapping[str, Any]]) -> str | None:
    return ", ".join(sorted({str(gpu["name"]) for gpu in gpus})) or None


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def described(config: Run, folder: ResultFolder, machine: str) -> dict[str, Any]:
    """The environment of this machine, under the name by which it is known."""
    return environment.describe(checkpoint_base(config, folder.path.parents[2]), folder.path) | {"machine": machine}


def begin(config: Run, folder: ResultFolder, content: dict[str, Any], machine: str) -> None:
    """Record what the last occasion starts with, once more or for the first time. Raises BadInput before it does."""
    if not config.cluster.engine:  # else the nodes describe theirs
        settle_environment(content, described(config, folder, machine))
    settled = settled_interval(folder, content)
    if settled is not None:
        content["occasions"][-1]["interval"] = settled
    content["config"] = asdict(config)
    content["budget"] |= asdict(config.budget)
    content["interrupted"] = False
    folder.write_run(content)
