"""What the state of a run's objects means, in one line for the user. Pure: dicts of the API in, words out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bench.launch.base import RELAUNCH

Object = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
TROUBLED = ("ContainerCreating", "PodInitializing")  # waiting for these is usual, unless an event says otherwise
SIGNALS = {137: "killed (SIGKILL)", 143: "ended (SIGTERM)", 139: "crashed (SIGSEGV)", 134: "crashed (SIGABRT)"}
ENDS = SIGNALS | {RELAUNCH: "asks for another start of the job"}


@dataclass(frozen=True)
class State:
    """Where a run stands. `ended`: None while it goes on. `troubles`: one line for each thing that is in its way."""

    started: int  # pods whose container has started
    ended: Literal["complete", "failed"] | None
    reason: str  # of the end
    troubles: tuple[str, ...]


def state(owner: Object | None, pods: Sequence[Object], events: dict[str, list[Object]]) -> State:
    """`owner`: the Job or JobSet, None when it is gone. `events`: those of each object, by its name."""
    ended, reason = ending(owner)
    lines = [line for pod in sorted(pods, key=index) if (line := trouble(pod, events.get(name_of(pod), [])))]
    if owner is not None and ended is None and not pods:
        lines += no_pods(owner, events.get(name_of(owner), []))
    return State(sum(has_started(pod) for pod in pods), ended, reason, tuple(lines))


def name_of(entry: Object) -> str:
    return str(entry["metadata"]["name"])


def index(pod: Object) -> int:
    """Number of the node that the pod stands for; -1 for a pod without one."""
    metadata = pod["metadata"]
    found = (metadata.get("labels") or {}).get(INDEX, (metadata.get("annotations") or {}).get(INDEX, -1))
    return int(found)


# --- the job
def ending(owner: Object | None) -> tuple[Literal["complete", "failed"] | None, str]:
    if owner is None:
        return "failed", "the job is gone from the cluster: somebody else deleted it"
    ends: dict[str, Literal["complete", "failed"]] = {
        "Complete": "complete",
        "Completed": "complete",  # as a JobSet says it
        "Failed": "failed",
    }
    for condition in _conditions(owner):
        if condition["status"] == "True" and condition["type"] in ends:
            return ends[condition["type"]], _why(condition)
    return None, ""


def no_pods(owner: Object, events: Sequence[Object]) -> list[str]:
    """Why a job has no pods yet, as far as the cluster says."""
    if any(c["type"] == "Suspended" and c["status"] == "True" for c in _conditions(owner)):
        return ["the job is suspended: a queue (Kueue) holds it until there is room"]
    warnings = [event for event in events if event.get("type") == "Warning"]
    return [f"no pod can be made: {_why(warnings[-1])}"] if warnings else []


# --- a pod
def has_started(pod: Object) -> bool:
    return any("running" in s or "terminated" in s for s in _container_states(pod))


def trouble(pod: Object, events: Sequence[Object] = ()) -> str | None:
    """Why a pod does not run, or did not end well; None: it runs, is being made, or has done its work."""
    what = obstacle(pod, events)
    return None if what is None else f"node {index(pod)}: {what}"


def obstacle(pod: Object, events: Sequence[Object] = ()) -> str | None:
    return _lost(pod) or _unscheduled(pod) or _stopped(pod) or _waiting(pod, events)


def failed(pod: Object) -> bool:
    return any(found.get("terminated", {}).get("exitCode", 0) != 0 for found in _container_states(pod))


def stuck(pod: Object) -> bool:
    """Whether only the pod's events can tell what it waits for."""
    return _phase(pod) == "Pending" and not has_started(pod) and _unscheduled(pod) is None


def _lost(pod: Object) -> str | None:
    """Evicted, preempted, or on a node that is gone."""
    status = pod.get("status") or {}
    for condition in _conditions(pod):
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return f"taken away ({_why(condition)})"
    if _phase(pod) == "Failed" and status.get("reason"):
        return f"taken away ({_why(status)})"
    return None


def _unscheduled(pod: Object) -> str | None:
    for condition in _conditions(pod):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"waits for a place ({_why(condition)})"
    return None


def _stopped(pod: Object) -> str | None:
    for found in _container_states(pod):
        end = found.get("terminated")
        if end is None or end.get("exitCode") == 0:
            continue
        if end.get("reason") == "OOMKilled":
            return "out of memory (OOMKilled): raise cluster.memory, or take a smaller model"
        code = int(end.get("exitCode", -1))
        said = f": {end['message'].strip()}" if end.get("message") else ""
        name = "" if end.get("reason") in (None, "Error") else f"{end['reason']}, "
        return f"the runner {ENDS.get(code, 'failed')} ({name}exit code {code}){' '.join(said.split())[:200]}"
    return None


def _waiting(pod: Object, events: Sequence[Object]) -> str | None:
    for found in _container_states(pod):
        waiting = found.get("waiting")
        if waiting is not None and waiting.get("reason") not in (None, *TROUBLED):
            return f"cannot start ({_why(waiting)})"
    warnings = [
        event for event in events if event.get("type") == "Warning" and event.get("reason") != "FailedScheduling"
    ]
    return f"cannot start ({_why(warnings[-1])})" if warnings and stuck(pod) else None


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _conditions(entry: Object) -> list[Object]:
    return list((entry.get("status") or {}).get("conditions") or [])


def _container_states(pod: Object) -> list[Object]:
    status = pod.get("status") or {}
    both = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    return [each.get("state") or {} for each in both]


def _why(found: Object) -> str:
    """Reason and message of a condition, an event or a state, on one line."""
    parts = [str(found[key]) for key in ("reason", "message") if found.get(key)]
    return " ".join(": ".join(parts).split())[:300] or "no reason given"
