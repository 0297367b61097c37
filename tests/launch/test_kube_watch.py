"""What the cluster says about jobs and pods, in words. The shapes are those that an API server answers with."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bench.launch import kube_watch


def pod(index: int = 0, phase: str = "Pending", state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    statuses = [{"name": "runner", "ready": False, "restartCount": 0, "state": state}] if state else []
    return {
        "metadata": {
            "name": f"bench-{index}-abcde",
            "labels": {"batch.kubernetes.io/job-completion-index": str(index)},
        },
        "spec": {"nodeName": "machine-1"},
        "status": {"phase": phase, "containerStatuses": statuses, **status},
    }


def condition(kind: str, reason: str, message: str = "", status: str = "True") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def owner(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "bench"}, "status": {"conditions": list(conditions)} if conditions else {}}


TROUBLES = {
    "no room": (
        pod(
            conditions=[
                condition("PodScheduled", "Unschedulable", "0/9 nodes: 9 Insufficient nvidia.com/gpu.", "False")
            ]
        ),
        r"node 0: waits for a place \(Unschedulable: 0/9 nodes: 9 Insufficient nvidia.com/gpu.\)",
    ),
    "no image": (
        pod(3, state={"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x/y:z"'}}),
        r'node 3: cannot start \(ImagePullBackOff: Back-off pulling image "x/y:z"\)',
    ),
    "no configuration": (
        pod(state={"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "s" not found'}}),
        r"cannot start \(CreateContainerConfigError",
    ),
    "out of memory": (
        pod(phase="Failed", state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
        r"out of memory \(OOMKilled\): raise cluster.memory",
    ),
    "evicted": (
        pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory. "),
        r"taken away \(Evicted: The node was low on resource: memory.\)",
    ),
    "preempted": (
        pod(
            phase="Failed",
            state={"terminated": {"exitCode": 143, "reason": "Error"}},
            conditions=[condition("DisruptionTarget", "PreemptionByScheduler", "preempting for another")],
        ),
        r"taken away \(PreemptionByScheduler: preempting",
    ),
    "node gone": (
        pod(phase="Failed", conditions=[condition("DisruptionTarget", "DeletionByPodGC", "PodGC: node not found")]),
        r"taken away \(DeletionByPodGC: PodGC: node not found\)",
    ),
    "crash": (
        pod(phase="Failed", state={"terminated": {"exitCode": 139, "reason": "Error"}}),
        r"the runner crashed \(SIGSEGV\) \(exit code 139\)",
    ),
    "failure": (
        pod(phase="Failed", state={"terminated": {"exitCode": 1, "reason": "Error", "message": "no\nsuch thing"}}),
        r"the runner failed \(exit code 1\): no such thing$",
    ),
    "no interpreter": (
        pod(phase="Failed", state={"terminated": {"exitCode": 128, "reason": "StartError", "message": "exec: python"}}),
        r"the runner failed \(StartError, exit code 128\): exec: python",
    ),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_what_keeps_a_pod_from_its_work_is_one_line(name):
    found, words = TROUBLES[name]
    line = kube_watch.trouble(found)
    assert line is not None
    assert "\n" not in line
    assert re.search(words, line), line


@pytest.mark.parametrize(
    "well",
    [
        pod(),
        pod(state={"waiting": {"reason": "ContainerCreating"}}),
        pod(phase="Running", state={"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
        pod(phase="Succeeded", state={"terminated": {"exitCode": 0, "reason": "Completed"}}),
        pod(conditions=[condition("PodScheduled", "", status="True")]),
    ],
)
def test_a_pod_that_is_made_runs_or_has_done_its_work_is_no_trouble(well):
    assert kube_watch.trouble(well) is None


def test_a_volume_that_does_not_mount_shows_in_the_events_of_a_pod_that_only_waits():
    waiting = pod(2, state={"waiting": {"reason": "ContainerCreating"}})
    events = [
        {"type": "Normal", "reason": "Scheduled", "message": "assigned"},
        {"type": "Warning", "reason": "FailedMount", "message": "MountVolume.SetUp failed: timed out"},
        {"type": "Normal", "reason": "Pulled", "message": "there"},
    ]
    assert kube_watch.stuck(waiting)
    line = "node 2: cannot start (FailedMount: MountVolume.SetUp failed: timed out)"
    assert kube_watch.trouble(waiting, events) == line
    running = pod(2, "Running", {"running": {}})
    assert not kube_watch.stuck(running)
    assert kube_watch.trouble(running, events) is None


ENDINGS = {
    "just begun": (owner(), None, ""),
    "queued": (owner(condition("Suspended", "JobSuspended")), None, ""),
    "not failed": (owner(condition("Failed", "X", status="False")), None, ""),
    "complete": (
        owner(condition("SuccessCriteriaMet", "Met"), condition("Complete", "Reached")),
        "complete",
        "Reached",
    ),
    "a JobSet": (owner(condition("Completed", "AllJobsCompleted", "done")), "complete", "AllJobsCompleted: done"),
    "late": (owner(condition("Failed", "DeadlineExceeded", "a\nb")), "failed", "DeadlineExceeded: a b"),
    "failed": (owner(condition("FailureTarget", "X"), condition("Failed", "FailedIndexes")), "failed", "FailedIndexes"),
    "deleted": (None, "failed", "the job is gone from the cluster: somebody else deleted it"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_job_goes_on_until_a_condition_says_otherwise(name):
    found, ended, reason = ENDINGS[name]
    assert kube_watch.ending(found) == (ended, reason)


def test_a_job_without_pods_says_what_it_waits_for():
    queued = kube_watch.state(owner(condition("Suspended", "JobSuspended")), [], {})
    assert queued.troubles == ("the job is suspended: a queue (Kueue) holds it until there is room",)
    refused = [{"type": "Warning", "reason": "FailedCreate", "message": 'pods "x" is forbidden: exceeded quota'}]
    denied = kube_watch.state(owner(), [], {"bench": refused})
    assert denied.troubles == ('no pod can be made: FailedCreate: pods "x" is forbidden: exceeded quota',)
    assert kube_watch.state(owner(), [], {}).troubles == ()


def test_pods_count_once_their_container_has_started_and_are_named_in_order():
    lost = pod(5, "Failed", reason="Evicted", message="low on memory")
    pods = [lost, pod(1, "Running", {"running": {}}), pod(0, "Succeeded", {"terminated": {"exitCode": 0}}), pod(2)]
    pods.append(pod(3, state={"waiting": {"reason": "ErrImagePull", "message": "denied"}}))
    found = kube_watch.state(owner(), pods, {})
    assert (found.started, found.ended) == (2, None)
    assert [line.split(":")[0] for line in found.troubles] == ["node 3", "node 5"]


def test_the_number_of_a_node_is_that_of_its_pod_by_label_or_annotation():
    annotated = {"metadata": {"name": "x", "annotations": {kube_watch.INDEX: "7"}}}
    assert [kube_watch.index(each) for each in (pod(4), annotated, {"metadata": {"name": "reader"}})] == [4, 7, -1]
