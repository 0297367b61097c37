"""The pods of a run: one with a runner per node, and the one that its result is read through. Pure rendering."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from bench.config import Run
from bench.errors import BadInput
from bench.launch.base import STOP_PATIENCE_S, device_of
from bench.launch.kube_names import CHECKPOINTS, CLAIM, NODE, READER, RUN_JSON, RUNNER, Names
from bench.launch.kube_overlay import Overlay, merge_patch

Object = dict[str, Any]

BOARD_PORT = 29411  # of node 0; a pod has its ports to itself. The next one is for the meeting before it
GRACE_S = int(STOP_PATIENCE_S) + 20  # for a runner to end its launch and ship what was measured
READER_LIFE_S = 3600


# --- a node's pod
def pod_template(config: Run, names: Names, overlay: Overlay) -> Object:
    container = merge_patch(_container(config, names), overlay.get("Container", {}))
    _require_volumes(config, names, container)
    spec = {
        "restartPolicy": "Never",
        "subdomain": names.run,
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,  # nothing in a pod talks to the API server
        "enableServiceLinks": False,
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_one_per_node(names)]}},
        **({"nodeSelector": dict(config.cluster.selector)} if config.cluster.selector else {}),
        "tolerations": tolerations(config),
        "containers": [container],
        "volumes": _volumes(config, names),
    }
    template = {"metadata": {"labels": names.labels}, "spec": spec}
    return dict(merge_patch(template, overlay.get("Pod", {})))


def _one_per_node(names: Names) -> Object:
    return {"labelSelector": {"matchLabels": names.labels}, "topologyKey": "kubernetes.io/hostname"}


def tolerations(config: Run) -> list[Object]:
    """Those given, and that of the taint which keeps others off GPU nodes."""
    given: list[Object] = [dict(each) for each in config.cluster.tolerations]
    for each in given:
        if "tolerationSeconds" in each:
            each["tolerationSeconds"] = int(each["tolerationSeconds"])
    usual = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    return given + ([usual] if config.device == "cuda" and usual not in given else [])


def command(config: Run, names: Names) -> list[str]:
    """What a pod runs; which node it is, it learns from JOB_COMPLETION_INDEX."""
    words = [config.cluster.python or "python", "-m", "bench.launch.kube_pod", "run", "--run-json", str(RUN_JSON)]
    words += ["--num-nodes", str(config.num_nodes), "--patience", f"{config.cluster.start_patience_s:g}"]
    words += ["--result", str(names.result), "--host", names.host, "--port", str(BOARD_PORT)]
    words += ["--work-dir", str(names.work_dir), "--checkpoint-dir", str(names.checkpoint_dir)]
    return [*words, "--device", device_of(config)]


def _container(config: Run, names: Names) -> Object:
    words = command(config, names)
    if config.cluster.setup:  # bash, as setup lines are written for it
        words = ["bash", "-ec", "\n".join([*config.cluster.setup, 'exec "$@"']), "bench", *words]
    container: Object = {
        "name": RUNNER,
        "image": given("cluster.image", config.cluster.image),
        "imagePullPolicy": "IfNotPresent",
        "command": words,
        "env": [{"name": key, "value": value} for key, value in variables(config).items()],
        "ports": [{"name": "board", "containerPort": BOARD_PORT}],
        "resources": resources(config),
        "volumeMounts": _mounts(config),
    }
    if config.device == "cuda" or config.cluster.efa:
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}  # RDMA pins memory
    return container


def variables(config: Run) -> dict[str, str]:
    """The environment of a runner; the user's own wins."""
    usual = {"PYTHONUNBUFFERED": "1"}
    if config.cluster.efa:
        # Huge pages cannot be shared with forked processes, and checkpoint writers are such.
        usual |= {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "FI_EFA_USE_HUGE_PAGE": "0"}
    return usual | dict(config.cluster.env)


def resources(config: Run) -> Object:
    """Limits, and the same as requests: devices allow nothing else, and a pod that is not squeezed measures better."""
    limits = {}
    if config.device == "cuda":
        limits["nvidia.com/gpu"] = str(config.ranks_of_last_node)
    if config.cluster.efa:
        limits["vpc.amazonaws.com/efa"] = str(config.cluster.efa)
    for name in ("cpu", "memory"):
        if (value := getattr(config.cluster, name)) is not None:
            limits[name] = value
    requests = dict(limits)
    if config.device == "cpu" and "cpu" not in requests:
        requests["cpu"] = str(config.ranks_of_last_node * config.train.threads)
    return {"limits": limits, "requests": requests} if limits else {"requests": requests}


def given(name: str, value: str | None) -> str:
    if value is None:
        raise BadInput(f"{name}: cluster=kubernetes needs it; give {name}=...")
    return value


# --- volumes
def _claims(config: Run) -> dict[str, tuple[str, PurePosixPath]]:
    """Volume -> (claim, where it is mounted)."""
    claims = {"claim": (given("cluster.pvc", config.cluster.pvc), CLAIM)}
    if config.cluster.checkpoint_pvc is not None:
        where = PurePosixPath(config.storage.dir) if config.storage.dir is not None else CHECKPOINTS
        claims["checkpoints"] = (config.cluster.checkpoint_pvc, where)
    return claims


def _claim_volumes(config: Run) -> list[Object]:
    return [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim}}
        for volume, (claim, _) in _claims(config).items()
    ]


def _claim_mounts(config: Run) -> list[Object]:
    return [{"name": volume, "mountPath": str(where)} for volume, (_, where) in _claims(config).items()]


def _volumes(config: Run, names: Names) -> list[Object]:
    node: Object = {"name": "node", "emptyDir": {}}
    if config.cluster.node_dir is not None:
        node = {"name": "node", "hostPath": {"path": config.cluster.node_dir, "type": "DirectoryOrCreate"}}
    return [
        *_claim_volumes(config),
        node,
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": config.cluster.shm}},
        {"name": "run", "configMap": {"name": names.run}},
    ]


def _mounts(config: Run) -> list[Object]:
    return [
        *_claim_mounts(config),
        {"name": "node", "mountPath": str(NODE)},
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "run", "mountPath": str(RUN_JSON.parent), "readOnly": True},
    ]


def _require_volumes(config: Run, names: Names, container: Object) -> None:
    """A checkpoint in the container's own layer would measure the container runtime, and be gone with the pod."""
    mounts = [PurePosixPath(mount["mountPath"]) for mount in container.get("volumeMounts", [])]
    if not any(names.checkpoint_dir.is_relative_to(mount) for mount in mounts):
        raise BadInput(
            f"storage.dir: {config.storage.dir} is on no volume of the pods; give cluster.checkpoint_pvc=CLAIM "
            f"(mounted there), or a path below {CLAIM} or {NODE}"
        )


# --- the pod that results are read through
def reader(config: Run, names: Names, overlay: Overlay, near: str | None) -> Object:
    """A pod that only waits; the claim is read by commands in it. `near`: a node that has the image."""
    container = {
        "name": READER,
        "image": given("cluster.image", config.cluster.image),
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", str(READER_LIFE_S)],
        "volumeMounts": _claim_mounts(config),
    }
    spec: Object = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": READER_LIFE_S,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": tolerations(config),
        "containers": [container],
        "volumes": _claim_volumes(config),
    }
    if near is not None:
        there = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [near]}]}
        preferred = [{"weight": 100, "preference": there}]
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    metadata = {"name": names.reader, "labels": names.labels | {"app.kubernetes.io/component": READER}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return dict(merge_patch(pod, overlay.get("Pod", {})))
