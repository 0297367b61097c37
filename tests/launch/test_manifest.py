"""The manifest: valid by the strict schemas of two Kubernetes versions, and right in what no schema knows."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.__main__ import compose, main
from bench.config import Run
from bench.errors import BadInput
from bench.launch.base import STOP_PATIENCE_S, Paths
from bench.launch.kube_names import CLAIM, NODE, Names
from bench.launch.kube_overlay import merge_patch, read_overlay
from bench.launch.kube_pods import reader
from bench.launch.manifest import RIGHTS, manifest_text, render, seconds_of

ROOT = Path(__file__).resolve().parents[2]
SIZES = ("ckpt_2node", "ckpt_4node", "ckpt_8node")
VARIANTS: dict[str, list[str]] = {
    "plain": [],
    "efa": ["cluster.efa=32"],
    "jobset": ["cluster.jobset=true"],
    "relaunched": ["cluster.jobset=true", "recovery.relaunch=engine"],
    "two_claims": ["cluster.checkpoint_pvc=fast", "storage.dir=/fsx"],
    "cpu": ["device=cpu", "ranks_per_node=2", "model=tiny", "data=source_text", "train.seq_len=64"],
    "placed": [
        "+cluster.selector={node.kubernetes.io/instance-type: p5.48xlarge}",
        "cluster.tolerations=[{key: reserved, operator: Exists, effect: NoExecute, tolerationSeconds: '60'}]",
        "cluster.cpu=180",
        "cluster.memory=1900Gi",
        "cluster.node_dir=null",
    ],
    "prepared": [
        "cluster.setup=['ulimit -l unlimited']",
        "+cluster.env={NCCL_DEBUG: INFO}",
        "cluster.python=python3.11",
    ],
    "overlaid": [f"cluster.overlay={ROOT}/scripts/eks_overlay.yaml"],
}
CASES = [(size, "plain") for size in SIZES] + [("ckpt_8node", variant) for variant in VARIANTS if variant != "plain"]
PATHS = Paths(
    Path("results/lab/ckpt/2026-01-01T00-00-00Z"), Path("anywhere/0123456789ab"), Path("elsewhere/0123456789ab")
)


@cache
def configured(scenario: str, variant: str = "plain", *more: str) -> Run:
    return compose([f"scenario={scenario}", "cluster=kubernetes", *VARIANTS[variant], *more])


def rendered(config: Run, run_json: str = "{}") -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in render(config, Names.of(config, PATHS), run_json)}


def job_of(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The Job's spec, also where a JobSet makes it."""
    if "JobSet" in objects:
        (replicated,) = objects["JobSet"]["spec"]["replicatedJobs"]
        assert replicated["replicas"] == 1
        spec: dict[str, Any] = replicated["template"]["spec"]
        return spec
    return dict(objects["Job"]["spec"])


def container_of(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (container,) = job_of(objects)["template"]["spec"]["containers"]
    return dict(container)


def reader_of(config: Run) -> dict[str, Any]:
    return reader(config, Names.of(config, PATHS), read_overlay(config.cluster.overlay), "machine-1")


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


@pytest.fixture(params=CASES, ids="-".join)
def case(request) -> tuple[Run, dict[str, dict[str, Any]]]:
    config = configured(*request.param)
    return config, rendered(config)


# --- schemas
def as_core_objects(objects: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A JobSet is not of the core API: its Job stands for it, and its own fields are tested below."""
    for each in objects.values():
        if each["kind"] == "JobSet":
            template = each["spec"]["replicatedJobs"][0]["template"]
            yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": each["metadata"], **template}
        else:
            yield each


def validate(each: dict[str, Any], version: str) -> None:
    import kubernetes_validate

    kubernetes_validate.validate(each, version, strict=True)


def versions() -> list[str]:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    return ["1.31", kubernetes_validate.latest_version()]


def test_the_validator_refuses_unknown_fields_and_wrong_types():
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    objects = rendered(configured("ckpt_2node"))
    for spoiled in ({"completionsMode": "Indexed"}, {"completions": "two"}):
        with pytest.raises(kubernetes_validate.ValidationError):
            validate(merge_patch(objects["Job"], {"spec": spoiled}), "1.31")


def test_every_object_is_valid_by_the_strict_schemas_of_two_versions(case):
    config, objects = case
    for version in versions():
        for each in [*as_core_objects(objects), reader_of(config)]:
            validate(each, version)


def test_what_scripts_hands_out_for_a_cluster_is_valid_too():
    for version in versions():
        for name in ("eks_claim.yaml", "eks_rbac.yaml"):
            documents = list(yaml.safe_load_all((ROOT / "scripts" / name).read_text()))
            assert documents
            for each in documents:
                validate(each, version)


# Fields of JobSetSpec and ReplicatedJob that every version of jobset.x-k8s.io/v1alpha2 since 0.5 has.
JOBSET_FIELDS = {"replicatedJobs", "network", "successPolicy", "failurePolicy", "suspend", "ttlSecondsAfterFinished"}


def test_a_jobset_has_no_field_that_its_api_does_not_know():
    jobset = rendered(configured("ckpt_8node", "relaunched"))["JobSet"]
    assert jobset["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert set(jobset["spec"]) <= JOBSET_FIELDS
    assert set(jobset["spec"]["network"]) == {"enableDNSHostnames", "subdomain", "publishNotReadyAddresses"}
    assert [set(each) for each in jobset["spec"]["replicatedJobs"]] == [{"name", "replicas", "template"}]


# --- meaning
def test_one_pod_with_one_runner_stands_for_each_node_and_is_never_started_twice(case):
    config, objects = case
    spec = job_of(objects)
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == config.num_nodes
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["podReplacementPolicy"] == "Failed"
    if config.recovery.relaunch == "engine":  # any failure fails the Job, so that the JobSet starts all pods again
        assert (spec["backoffLimit"], "backoffLimitPerIndex" in spec) == (0, False)
        policy = objects["JobSet"]["spec"]["failurePolicy"]
        assert policy["maxRestarts"] == config.recovery.max_restarts
        assert [rule["onJobFailureReasons"] for rule in policy["rules"]] == [["DeadlineExceeded"]]
    else:  # a lost node leaves the runners of the others alone
        assert (spec["backoffLimitPerIndex"], "backoffLimit" in spec) == (0, False)


def test_two_pods_never_share_a_node(case):
    _, objects = case
    template = job_of(objects)["template"]
    (rule,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert rule["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_the_host_that_every_pod_is_told_is_that_of_index_0_behind_the_service(case):
    _, objects = case
    host = option(container_of(objects)["command"], "--host")
    pod, subdomain = host.split(".")
    if "JobSet" in objects:
        spec, name = objects["JobSet"]["spec"], objects["JobSet"]["metadata"]["name"]
        assert pod == f"{name}-{spec['replicatedJobs'][0]['name']}-0-0"
        assert spec["network"]["enableDNSHostnames"]
        assert subdomain == spec["network"]["subdomain"]
        assert "Service" not in objects  # the JobSet makes it
    else:
        service = objects["Service"]
        assert pod == f"{objects['Job']['metadata']['name']}-0"
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"]
        assert service["spec"]["selector"].items() <= job_of(objects)["template"]["metadata"]["labels"].items()
        assert subdomain == service["metadata"]["name"]
    assert job_of(objects)["template"]["spec"]["subdomain"] == subdomain
    assert max(map(len, (pod, subdomain))) <= 63


def test_a_pod_has_the_gpus_and_interfaces_of_its_ranks_and_asks_for_what_it_is_limited_to(case):
    config, objects = case
    resources = container_of(objects)["resources"]
    limits, requests = resources.get("limits", {}), resources["requests"]
    assert limits.get("nvidia.com/gpu") == ("8" if config.device == "cuda" else None)
    assert limits.get("vpc.amazonaws.com/efa") == (str(config.cluster.efa) if config.cluster.efa else None)
    assert (limits.get("cpu"), limits.get("memory")) == (config.cluster.cpu, config.cluster.memory)
    assert limits.items() <= requests.items()
    assert set(requests) - set(limits) <= {"cpu"}
    assert all(re.fullmatch(r"\d+(\.\d+)?(m|k|[MGTPE]|[KMGTPE]i)?", value) for value in requests.values())


def test_every_pod_has_gpus_for_the_spare_ranks_as_pods_are_alike():
    config = configured("ckpt_8node", "plain", "recovery=in_process", "recovery.reserve=1")
    assert container_of(rendered(config))["resources"]["limits"]["nvidia.com/gpu"] == "9"


def test_volumes_resolve_and_lie_where_the_runner_looks_for_them(case):
    config, objects = case
    pod, container = job_of(objects)["template"]["spec"], container_of(objects)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    assert len(volumes) == len(pod["volumes"])
    assert len(mounts) == len(container["volumeMounts"]) == len(volumes)
    assert mounts["/dev/shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": config.cluster.shm}
    assert mounts["/mnt/bench"]["persistentVolumeClaim"]["claimName"] == config.cluster.pvc
    node = mounts["/mnt/node"]
    assert node.get("hostPath", {}).get("path") == config.cluster.node_dir  # it outlives the container
    words = container["command"]
    assert option(words, "--result") == "/mnt/bench/results/lab/ckpt/2026-01-01T00-00-00Z"
    assert Path(option(words, "--work-dir")).is_relative_to("/mnt/node")
    config_map = mounts[str(Path(option(words, "--run-json")).parent)]["configMap"]
    assert config_map["name"] == objects["ConfigMap"]["metadata"]["name"]
    assert Path(option(words, "--run-json")).name in objects["ConfigMap"]["data"]
    where = "/fsx" if config.storage.dir else "/mnt/bench/checkpoints"
    assert Path(option(words, "--checkpoint-dir")).parent == Path(where)
    if config.cluster.checkpoint_pvc:
        assert mounts["/fsx"]["persistentVolumeClaim"]["claimName"] == "fast"


def test_a_runner_has_time_to_ship_what_was_measured_before_it_is_killed(case):
    assert job_of(case[1])["template"]["spec"]["terminationGracePeriodSeconds"] > STOP_PATIENCE_S


def test_names_are_unique_by_kind_and_no_pod_gets_rights_in_the_cluster(case):
    config, objects = case
    assert len(objects) == len(render(config, Names.of(config, PATHS), "{}"))
    names = {each["metadata"]["name"] for each in objects.values()}
    assert names == {Names.of(config, PATHS).run}
    assert job_of(objects)["template"]["spec"]["automountServiceAccountToken"] is False


def test_memory_can_be_pinned_where_rdma_needs_it_and_nowhere_else():
    for variant, expected in (("plain", ["IPC_LOCK"]), ("efa", ["IPC_LOCK"]), ("cpu", None)):
        context = container_of(rendered(configured("ckpt_8node", variant))).get("securityContext")
        assert (context["capabilities"]["add"] if context else None) == expected


def test_efa_is_told_not_to_use_huge_pages_as_writers_are_forked_and_the_users_variables_win():
    def variables(*more: str) -> dict[str, str]:
        container = container_of(rendered(configured("ckpt_8node", "efa", *more)))
        return {each["name"]: each["value"] for each in container["env"]}

    assert {"FI_PROVIDER": "efa", "FI_EFA_USE_HUGE_PAGE": "0"}.items() <= variables().items()
    assert variables("+cluster.env={FI_PROVIDER: tcp, X: '1'}").items() >= {"FI_PROVIDER": "tcp", "X": "1"}.items()


def test_pods_go_to_the_nodes_that_were_asked_for_and_bear_the_taint_of_gpu_nodes():
    spec = job_of(rendered(configured("ckpt_8node", "placed")))["template"]["spec"]
    assert spec["nodeSelector"] == {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    given, usual = spec["tolerations"]
    assert given == {"key": "reserved", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    assert usual == {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert job_of(rendered(configured("ckpt_8node", "cpu")))["template"]["spec"]["tolerations"] == []


def test_setup_lines_run_before_the_runner_in_one_shell():
    words = container_of(rendered(configured("ckpt_8node", "prepared")))["command"]
    assert words[:2] == ["bash", "-ec"]
    assert words[2] == 'ulimit -l unlimited\nexec "$@"'
    assert words[4:7] == ["python3.11", "-m", "bench.launch.kube_pod"]


def test_run_json_reaches_the_pods_as_it_is():
    text = json.dumps({"token": "x", "text": "a\nb"}, indent=1)
    assert rendered(configured("ckpt_2node"), text)["ConfigMap"]["data"]["run.json"] == text


def test_the_cluster_ends_a_job_that_nobody_watches():
    assert job_of(rendered(configured("ckpt_8node")))["activeDeadlineSeconds"] == 55 * 60 + 1800 + 600
    given = configured("ckpt_8node", "plain", "cluster.time=1-02:03:04")
    assert job_of(rendered(given))["activeDeadlineSeconds"] == 86400 + 2 * 3600 + 3 * 60 + 4
    unlimited = configured("ckpt_8node", "plain", "budget.minutes=null")
    assert job_of(rendered(unlimited))["activeDeadlineSeconds"] > 1800 + 600  # from the prediction
    with pytest.raises(BadInput, match=r"cluster.time: must be \[D-\]HH:MM:SS"):
        seconds_of("90 minutes")


def test_a_store_that_no_volume_holds_is_refused_as_it_would_measure_the_container_runtime():
    with pytest.raises(BadInput, match=r"storage.dir: /scratch is on no volume .*cluster.checkpoint_pvc"):
        rendered(configured("ckpt_8node", "plain", "storage.dir=/scratch"))
    for inside in (CLAIM / "mine", NODE / "nvme"):
        assert rendered(configured("ckpt_8node", "plain", f"storage.dir={inside}"))


def test_image_and_claim_must_be_given_by_name():
    config = configured("ckpt_8node")
    for field in ("image", "pvc"):
        without = dataclasses.replace(config, cluster=dataclasses.replace(config.cluster, **{field: None}))
        with pytest.raises(BadInput, match=f"cluster.{field}: .*give cluster.{field}="):
            rendered(without)


@pytest.mark.parametrize("wrong", ["namespace=Lab", "shm=64GB", "memory=lots", "node_dir=tmp", "efa=-1"])
def test_what_the_api_server_would_refuse_is_refused_before(wrong):
    with pytest.raises(BadInput, match=f"cluster.{wrong.split('=')[0]}: must be"):
        configured("ckpt_8node", "plain", f"cluster.{wrong}")


# --- the user's overlay
# Test cases of RFC 7386, appendix A.
RFC_7386 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7386)
def test_a_merge_patch_does_what_the_rfc_says(target, patch, result):
    before = json.dumps([target, patch])
    assert merge_patch(target, patch) == result
    assert json.dumps([target, patch]) == before


@pytest.mark.parametrize("jobset", ["false", "true"])
def test_an_overlay_reaches_the_job_its_pods_their_container_and_the_reader(jobset):
    config = configured("ckpt_8node", "overlaid", f"cluster.jobset={jobset}")
    objects = rendered(config)
    job = objects["JobSet"]["spec"]["replicatedJobs"][0]["template"] if jobset == "true" else objects["Job"]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    for pod in (
        job["spec"]["template"],
        reader(config, Names.of(config, PATHS), read_overlay(config.cluster.overlay), None),
    ):
        assert pod["spec"]["serviceAccountName"] == "bench"
        assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["spec"]["priorityClassName"] == "high"
        assert pod["spec"]["securityContext"] == {"fsGroup": 1000}
    assert container_of(objects)["imagePullPolicy"] == "Always"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Deployment: {}", r"patches Deployment, .*known: ConfigMap"),
        ("Pods: {}", r"patches Pods, .*did you mean Pod"),
        ("[1, 2]", "must hold a patch for each kind"),
        ("Pod: 3", "must hold a patch for each kind"),
        ("a: [", "is not YAML"),
    ],
)
def test_an_overlay_that_cannot_be_meant_is_refused_in_one_line(tmp_path, text, complaint):
    (tmp_path / "overlay.yaml").write_text(text)
    with pytest.raises(BadInput, match=f"cluster.overlay: .*{complaint}") as caught:
        read_overlay(str(tmp_path / "overlay.yaml"))
    assert "\n" not in str(caught.value)


def test_an_overlay_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"cluster.overlay: .*cannot be read"):
        read_overlay(str(tmp_path / "none.yaml"))


# --- dry_run=true
def test_a_dry_run_prints_the_manifest_alone(capsys):
    assert main(["run", "scenario=ckpt_8node", "cluster=kubernetes", "dry_run=true"]) == 0
    printed = capsys.readouterr().out
    documents = list(yaml.safe_load_all(printed))
    assert [each["kind"] for each in documents] == ["ConfigMap", "Service", "Job"]
    assert {each["metadata"]["namespace"] for each in documents} == {"default"}
    assert json.loads(documents[0]["data"]["run.json"])["config"]["num_nodes"] == 8
    for version in versions():
        for each in documents:
            validate(each, version)
    comments = [line for line in printed.splitlines() if line.startswith("#")]
    assert printed.splitlines()[: len(comments)] == comments
    assert all(any(resource in line for line in comments) for _, resource, _ in RIGHTS)


def test_the_manifest_reads_back_as_it_was_rendered():
    config = configured("ckpt_8node", "overlaid")
    names = Names.of(config, PATHS)
    documents = list(yaml.safe_load_all(manifest_text(config, names)))
    for each, back in zip(render(config, names, "{}")[1:], documents[1:], strict=True):
        assert merge_patch(back, {"metadata": {"namespace": None}}) == each


def test_the_role_in_scripts_grants_exactly_the_rights_that_are_named():
    role, _ = yaml.safe_load_all((ROOT / "scripts" / "eks_rbac.yaml").read_text())
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {(group, resource, verb) for group, resource, verbs in RIGHTS for verb in verbs}
