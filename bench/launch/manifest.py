"""The Kubernetes objects of a run, rendered from its configuration. Pure: no cluster is asked.

An Indexed Job runs one pod, with one runner, per node. A headless Service gives the pod of index 0 a host name that all
others know beforehand. A ConfigMap carries run.json into the cluster, as the machine that submits need not see the
claim. With cluster.jobset a JobSet stands for Job and Service: it starts all pods again when one of them fails.

A pod's index stands for a node: it is never started again by itself, because a runner that comes back alone would find
the run elsewhere. The others see that it is gone, and end the launch; what is left is run again by resume=, or by the
JobSet (recovery.relaunch=engine).
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

import yaml

from bench.config import Run
from bench.design import plan
from bench.errors import BadInput
from bench.launch.base import device_of
from bench.launch.kube_names import RUN_JSON, Names
from bench.launch.kube_overlay import Overlay, merge_patch, read_overlay
from bench.launch.kube_pods import BOARD_PORT, pod_template
from bench.predict import predict

Object = dict[str, Any]  # in the API's own form

KEEP_FINISHED_S = 7 * 24 * 3600  # a finished job that nobody collected; its results stay on the claim
DEADLINE_FACTOR = 3  # a job may take so many times what was predicted
SPARE_S = 600  # and so much more: joining, ending

# What the account that submits must be allowed to do, as (API group, resource, verbs). Pods need no rights at all.
RIGHTS = (
    ("batch", "jobs", ("create", "delete", "get")),
    ("jobset.x-k8s.io", "jobsets", ("create", "delete", "get")),
    ("", "services", ("create", "delete", "patch")),
    ("", "configmaps", ("create", "delete", "patch")),
    ("", "pods", ("create", "delete", "get", "list")),
    ("", "pods/log", ("get",)),
    ("", "pods/exec", ("create", "get")),
    ("", "events", ("list",)),
    ("", "persistentvolumeclaims", ("get",)),
)


# --- the whole
def render(config: Run, names: Names, run_json: str) -> list[Object]:
    """The objects in the order in which they are created. Raises BadInput."""
    overlay = read_overlay(config.cluster.overlay)
    objects = [_config_map(names, run_json)]
    if names.jobset:
        objects.append(_jobset(config, names, overlay))
    else:
        objects += [_service(names), _job(config, names, overlay)]
    return [merge_patch(each, overlay.get(each["kind"], {})) for each in objects]


def manifest_text(config: Run, names: Names) -> str:
    """The manifest as YAML, with the rights it takes in comments: what dry_run=true prints."""
    objects = render(config, names, json.dumps({"config": asdict(config)}, indent=1) + "\n")
    head = [
        f"# {config.scenario} on {config.num_nodes} nodes; run.json is completed when the run is submitted.",
        f"# The account that submits needs, in namespace {config.cluster.namespace}:",
        *(f"#   {resource}{f' ({group})' if group else ''}: {', '.join(verbs)}" for group, resource, verbs in RIGHTS),
    ]
    for each in objects:
        each["metadata"] = {"namespace": config.cluster.namespace} | each["metadata"]
    return "\n".join(head) + "\n" + yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, explicit_start=True)


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, as a person would."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


# --- the objects
def _metadata(names: Names) -> Object:
    return {"name": names.run, "labels": names.labels | {"bench/scenario": names.scenario}}


def _config_map(names: Names, run_json: str) -> Object:
    data = {RUN_JSON.name: run_json}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(names), "data": data}


def _service(names: Names) -> Object:
    spec = {
        "clusterIP": "None",  # a DNS record for each pod
        "publishNotReadyAddresses": True,
        "selector": names.labels,
        "ports": [{"name": "board", "port": BOARD_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(names), "spec": spec}


def _job(config: Run, names: Names, overlay: Overlay) -> Object:
    spec = {"ttlSecondsAfterFinished": KEEP_FINISHED_S} | _job_spec(config, names, overlay)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(names), "spec": spec}


def _jobset(config: Run, names: Names, overlay: Overlay) -> Object:
    template = merge_patch({"spec": _job_spec(config, names, overlay)}, overlay.get("Job", {}))
    spec = {
        "ttlSecondsAfterFinished": KEEP_FINISHED_S,
        "network": {"enableDNSHostnames": True, "subdomain": names.run, "publishNotReadyAddresses": True},
        "failurePolicy": _failure_policy(config),
        "replicatedJobs": [{"name": "nodes", "replicas": 1, "template": template}],
    }
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": _metadata(names), "spec": spec}


def _failure_policy(config: Run) -> Object:
    """Restarts are counted over the whole run, and recovery.max_restarts is what one launch may use up."""
    if not _restarts(config):
        return {"maxRestarts": 0}
    relaunched = sum(launch.layer == "requeue" and bool(launch.faults) for launch in plan(config))
    late = {"name": "late", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
    return {"maxRestarts": config.recovery.max_restarts * max(relaunched, 1), "rules": [late]}


def _restarts(config: Run) -> bool:
    return config.cluster.jobset and config.recovery.relaunch == "engine"


def _job_spec(config: Run, names: Names, overlay: Overlay) -> Object:
    """One pod per index and never a second: a failed index leaves the others alone, or fails all for the JobSet."""
    failure = {"backoffLimit": 0} if _restarts(config) else {"backoffLimitPerIndex": 0}
    deadline_s = deadline(config)
    return {
        "completionMode": "Indexed",
        "completions": config.num_nodes,
        "parallelism": config.num_nodes,
        **failure,
        "podReplacementPolicy": "Failed",
        **({"activeDeadlineSeconds": deadline_s} if deadline_s is not None else {}),
        "template": pod_template(config, names, overlay),
    }


def deadline(config: Run) -> int | None:
    """Seconds after which the cluster ends the job, also when nobody watches it; None: the length is unknown."""
    if config.cluster.time is not None:
        return seconds_of(config.cluster.time)
    seconds = config.budget.minutes * 60 if config.budget.minutes is not None else None
    if seconds is None:
        predicted = predict(config, plan(config), device_of(config)).seconds
        seconds = predicted * DEADLINE_FACTOR if predicted is not None else None
    return None if seconds is None else round(seconds + config.cluster.start_patience_s + SPARE_S)


def seconds_of(time: str) -> int:
    """Seconds of [D-]HH:MM:SS. Raises BadInput."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)", time)
    if match is None:
        raise BadInput(f"cluster.time: must be [D-]HH:MM:SS, got {time!r}; for example 02:30:00")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
