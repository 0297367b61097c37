"""Runs in a cluster, from submission to deletion, against a stand-in that speaks the API over HTTP and websockets."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import driver
from bench.__main__ import compose
from bench.config import Run
from bench.errors import BadInput
from bench.launch import kube_pods, kube_run
from bench.launch.base import Paths
from bench.launch.kube_api import Api, CommandFailed, Refused
from bench.launch.kubernetes import Kubernetes
from bench.launch.manifest import RIGHTS
from bench.results import ResultFolder
from tests.launch.fake_cluster import Denied, FakeCluster, until

pytest.importorskip("kubernetes")

# Stand for the runner: what it leaves in the result folder, and how it ends.
WRITES = """
import json, os, pathlib, sys
node = os.environ["JOB_COMPLETION_INDEX"]
folder = pathlib.Path(sys.argv[1]) / "launches" / "0"
(folder / "events").mkdir(parents=True, exist_ok=True)
(folder / "events" / f"worker-n{node}-r0-1-1.jsonl").write_text("{}\\n")
def record(status):
    if node == "0":
        (folder / "launch.json").write_text(json.dumps({"index": 0, "status": status}))
print("node", node, "was here", flush=True)
"""
ENDS = WRITES + "record('ok')"
FAILS = WRITES + "record('failed'); sys.exit('no such device' if node == '1' else 0)"
GOES_ON = (
    WRITES
    + """
import signal, time
def leave(*_):
    record("interrupted")
    sys.exit(130)
signal.signal(signal.SIGTERM, leave)
record("ok" if node == "0" and len(sys.argv) > 2 else "running")
time.sleep(300)
"""
)


@pytest.fixture
def cluster(tmp_path, free_port, monkeypatch) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path / "cluster", free_port) as running:
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig))
        yield running


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(kube_run, "LOOK_S", 0.05)


@pytest.fixture
def paths(tmp_path) -> Paths:
    result = tmp_path / "results" / "lab" / "smoke" / "2026-01-01T00-00-00Z"
    (result / "launches").mkdir(parents=True)
    environment = {"machine": "lab", "device": "cpu", "cpu": "here"}
    ResultFolder(result).write_run({"token": "t", "environment": environment, "occasions": [{"started": 1.0}]})
    return Paths(result, tmp_path / "work" / "0123456789ab", tmp_path / "checkpoints" / "0123456789ab")


@pytest.fixture
def runs(monkeypatch) -> Callable[..., None]:
    def take(code: str, *more: str) -> None:
        words = lambda config, names: ["python", "-c", code, str(names.result), *more]  # noqa: E731
        monkeypatch.setattr(kube_pods, "command", words)

    return take


def configured(*more: str) -> Run:
    words = ["scenario=ckpt_smoke", "cluster=kubernetes", "num_nodes=2", "ranks_per_node=1", "device=cpu"]
    return compose([*words, "cluster.image=lab/bench:1", "cluster.poll_s=0.05", *more])


def finish(launcher: Kubernetes) -> str:
    """Wait for the end of the run and tidy up, as the driver does; all news."""
    news: list[str] = []

    def over() -> bool:
        going = launcher.running()
        news.extend(launcher.news())
        return not going

    until(over)
    launcher.stop()
    return "\n".join(news + launcher.news())


def left(cluster: FakeCluster) -> list[str]:
    until(lambda: not cluster.of("Pod"))
    return [name for kind, name in cluster.objects if kind not in ("PersistentVolumeClaim", "Event")]


def on_claim(cluster: FakeCluster) -> Path:
    return cluster.claim("bench") / "results" / "lab" / "smoke" / "2026-01-01T00-00-00Z"


# --- a run that goes well
def test_a_run_is_submitted_watched_collected_and_deleted(cluster, paths, runs):
    runs(ENDS)
    launcher = Kubernetes()
    launcher.check(configured(), gpus=0)
    launcher.start(configured(), paths)
    (job,) = cluster.of("Job")
    for kind in ("ConfigMap", "Service"):
        (owned,) = cluster.of(kind)
        assert owned["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    (config_map,) = cluster.of("ConfigMap")
    assert config_map["data"]["run.json"] == (paths.result / "run.json").read_text()
    news = finish(launcher)
    assert "Job bench-ckpt-smoke-0123456789ab is submitted in namespace default of fake" in news
    assert f"python -m bench run resume={paths.result}" in news
    assert ResultFolder(paths.result).read_launch(0) == {"index": 0, "status": "ok"}
    assert len(list((paths.result / "launches" / "0" / "events").iterdir())) == 2
    assert (paths.result / "logs" / "runner-1.log").read_text() == "node 1 was here\n"
    assert left(cluster) == []
    assert not launcher.running()


def test_the_folder_of_checkpoints_goes_with_the_run_and_the_result_stays_on_the_claim(cluster, paths, runs):
    runs(ENDS)
    folder = cluster.claim("bench") / "checkpoints" / "bench-ckpt-smoke-0123456789ab"
    (folder / "launch-0").mkdir(parents=True)
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    finish(launcher)
    assert not folder.exists()
    assert folder.parent.exists()
    assert (on_claim(cluster) / "launches" / "0" / "launch.json").is_file()


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_no_more_rights_are_used_than_are_named(cluster, paths, runs, kind):
    runs(ENDS)
    launcher = Kubernetes()
    config = configured(f"cluster.jobset={kind == 'JobSet'}")
    launcher.check(config, gpus=0)
    cluster.starts = lambda pod: len(cluster.calls) > 25  # pods wait for a while: their events are asked for
    launcher.start(config, paths)
    finish(launcher)
    assert left(cluster) == []
    named = {(verb, resource) for _, resource, verbs in RIGHTS for verb in verbs}
    used = set(cluster.calls)
    assert used <= named
    other = {"Job": "jobsets", "JobSet": "jobs"}[kind]
    unused = {(verb, resource) for verb, resource in named - used if resource not in (other, "services")}
    assert unused == {("create", "pods/exec")}  # the verb of newer API servers for the same call


def test_finished_launches_are_here_while_the_run_goes_on(cluster, paths, runs):
    runs(GOES_ON, "launch 0 has ended")
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    until(lambda: launcher.running() and ResultFolder(paths.result).read_launch(0))
    assert len(list((paths.result / "launches" / "0" / "events").iterdir())) == 2
    assert len(cluster.runners()) == 2
    launcher.stop()
    assert left(cluster) == []


# --- ends that were not meant
def test_a_run_that_is_stopped_ends_in_order_and_what_was_measured_is_here(cluster, paths, runs):
    runs(GOES_ON)
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    until(lambda: launcher.running() and (on_claim(cluster) / "launches" / "0" / "launch.json").exists())
    launcher.stop()
    assert ResultFolder(paths.result).read_launch(0) == {"index": 0, "status": "interrupted"}
    assert {process.wait() for name, process in cluster.processes.items() if "reader" not in name} == {130}
    assert left(cluster) == []


def test_a_runner_that_fails_is_named_with_its_last_words_and_leaves_the_others_alone(cluster, paths, runs):
    runs(FAILS)
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    news = finish(launcher)
    assert "node 1: the runner failed (exit code 1)" in news
    assert "the job failed (FailedIndexes: Job has failed indexes)" in news
    assert "node 1 said last: no such device" in news
    assert "node 0 said last" not in news
    assert ResultFolder(paths.result).read_launch(0) == {"index": 0, "status": "failed"}
    assert left(cluster) == []


def test_pods_that_cannot_start_are_given_up_after_their_patience_with_the_reason(cluster, paths, runs, monkeypatch):
    monkeypatch.setattr(kube_run, "LATE_S", 0.5)
    runs(ENDS)
    cluster.starts = lambda pod: "reader" in pod["metadata"]["name"]
    launcher = Kubernetes()
    launcher.start(configured("cluster.start_patience_s=1"), paths)
    for pod in cluster.runners():
        waiting = {"reason": "ErrImagePull", "message": "lab/bench:1: not found"}
        pod["status"]["containerStatuses"][0]["state"] = {"waiting": waiting}
    news = finish(launcher)
    assert "node 1: cannot start (ErrImagePull: lab/bench:1: not found)" in news
    assert news.count("ErrImagePull") == 2  # each pod's once, however often it is looked at
    assert "only 0 of 2 pods have started within cluster.start_patience_s=1" in news
    assert left(cluster) == []


def test_what_a_waiting_pod_waits_for_is_asked_of_its_events(cluster, paths, runs):
    runs(ENDS)
    cluster.starts = lambda pod: False
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    pod = next(pod for pod in cluster.runners() if cluster.index(pod) == 1)
    cluster.add_event(pod["metadata"]["name"], "FailedMount", "MountVolume.SetUp failed for volume claim")
    said: list[str] = []
    until(lambda: launcher.running() and (said.extend(launcher.news()) or any("FailedMount" in line for line in said)))
    cluster.starts = lambda pod: True
    finish(launcher)


def test_a_job_that_somebody_else_deleted_ends_the_wait(cluster, paths, runs):
    runs(GOES_ON)
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    until(lambda: launcher.running() and len(cluster.processes) == 2)
    Api("default").delete("Job", "bench-ckpt-smoke-0123456789ab")
    assert "the job is gone from the cluster: somebody else deleted it" in finish(launcher)
    assert left(cluster) == []


# --- an API server with moods
def test_an_api_server_that_is_away_for_a_moment_does_not_end_a_run(cluster, paths, runs):
    runs(ENDS)
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    busy = Denied(503, "ServiceUnavailable", "etcd leader changed")
    cluster.denials["get", "jobs"] = [busy] * 5
    assert launcher.running()
    finish(launcher)
    assert cluster.denials["get", "jobs"] == []
    assert ResultFolder(paths.result).read_launch(0) == {"index": 0, "status": "ok"}


def test_a_run_whose_api_server_stays_away_is_left_to_itself_and_can_be_collected_later(
    cluster, paths, runs, monkeypatch
):
    monkeypatch.setattr(kube_run, "UNREACHABLE_S", 0.3)
    runs(GOES_ON)
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    cluster.denials["get", "jobs"] = [Denied(500, "InternalError", "out of order")] * 1000
    news = finish(launcher)
    assert "the API server has been of no use for" in news
    assert launcher.left_running()
    cluster.denials.clear()
    assert [pod["status"]["phase"] for pod in cluster.runners()] == ["Running", "Running"]
    later = Kubernetes()
    assert later.attach(configured(), paths)
    later.stop()
    assert not later.left_running()
    assert left(cluster) == []


def test_a_run_that_could_not_be_told_to_end_is_left_to_itself(cluster, paths, runs):
    runs(GOES_ON)
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    until(lambda: launcher.running() and len(cluster.processes) == 2)
    cluster.denials["delete", "jobs"] = [Denied(500, "InternalError", "out of order")]
    launcher.stop()
    assert launcher.left_running()
    launcher.stop()
    assert not launcher.left_running()
    assert left(cluster) == []


def test_a_token_that_ran_out_is_fetched_anew(cluster):
    api = Api("default")
    cluster.denials["get", "jobs"] = [Denied(401, "Unauthorized", "Unauthorized")]
    assert api.read("Job", "none") is None
    cluster.denials["get", "jobs"] = [Denied(401, "Unauthorized", "Unauthorized")] * 2
    with pytest.raises(Refused, match="Unauthorized"):
        api.read("Job", "none")


def test_a_refused_job_leaves_nothing_behind_and_says_why(cluster, paths, runs):
    runs(ENDS)
    cluster.denials["create", "jobs"] = [Denied(403, "Forbidden", 'jobs.batch is forbidden: User "u" cannot create')]
    with pytest.raises(BadInput, match=r'cluster: the server refuses to create Job: jobs.batch is forbidden: User "u"'):
        Kubernetes().start(configured(), paths)
    assert left(cluster) == []


def test_a_job_that_an_earlier_session_left_is_replaced(cluster, paths, runs):
    runs(GOES_ON)
    Kubernetes().start(configured(), paths)
    until(lambda: len(cluster.processes) == 2)
    runs(ENDS)
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    finish(launcher)
    assert ResultFolder(paths.result).read_launch(0) == {"index": 0, "status": "ok"}
    assert left(cluster) == []


def test_an_api_server_that_nobody_answers_for_is_the_users_to_mend(cluster, monkeypatch, free_port, tmp_path):
    content = json.loads(cluster.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{free_port}"
    (tmp_path / "dead").write_text(json.dumps(content))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "dead"))
    with pytest.raises(BadInput, match=r"cluster: the API server does not answer .*KUBECONFIG") as caught:
        Kubernetes().check(configured(), gpus=0)
    assert "\n" not in str(caught.value)


def test_a_machine_without_a_kubeconfig_is_told_so(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(BadInput, match=r"cluster: no way to a Kubernetes cluster .*KUBECONFIG"):
        Kubernetes().check(configured(), gpus=0)


def test_a_machine_without_the_client_library_is_told_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(BadInput, match=r"cluster: .*pip install 'ckpt-bench\[kubernetes\]'"):
        Kubernetes().check(configured(), gpus=0)


# --- the way out
def test_a_stream_that_breaks_off_is_tried_again(cluster, paths, runs):
    runs(ENDS)
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    cluster.cut_after = [100, 0]
    assert "still on claim" not in finish(launcher)
    assert cluster.cut_after == []
    assert ResultFolder(paths.result).read_launch(0) == {"index": 0, "status": "ok"}


def test_a_result_that_cannot_be_brought_here_stays_on_the_claim_and_the_user_is_told_where(cluster, paths, runs):
    runs(ENDS)
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    until(lambda: {pod["status"]["phase"] for pod in cluster.runners()} == {"Succeeded"})
    cluster.cut_after = [50] * 10
    news = finish(launcher)
    assert "the result is still on claim bench below results/lab/smoke/2026-01-01T00-00-00Z" in news
    assert (on_claim(cluster) / "launches" / "0" / "launch.json").is_file()
    assert left(cluster) == []


def test_a_command_that_fails_in_a_pod_says_what_it_said(cluster, paths, runs):
    runs(GOES_ON)
    launcher = Kubernetes()
    launcher.start(configured(), paths)
    until(lambda: len(cluster.processes) == 2)
    (pod, _) = sorted(cluster.processes)
    with open(os.devnull, "wb") as sink, pytest.raises(CommandFailed, match=f"in pod {pod} failed: .*out of luck"):
        Api("default").execute(pod, ["python", "-c", "raise SystemExit('out of luck')"], sink)
    launcher.stop()


# --- with and without a driver
def test_a_run_that_was_left_is_taken_up_again(cluster, paths, runs):
    runs(ENDS)
    Kubernetes().start(configured(), paths)
    until(lambda: cluster.of("Job")[0]["status"])
    launcher = Kubernetes()
    assert launcher.attach(configured(), paths)
    finish(launcher)
    assert ResultFolder(paths.result).read_launch(0) == {"index": 0, "status": "ok"}
    assert left(cluster) == []


def test_a_run_whose_job_is_gone_is_collected_from_the_claim(cluster, paths, runs):
    runs(ENDS)
    Kubernetes().start(configured(), paths)
    until(lambda: cluster.of("Job")[0]["status"])
    for kind in ("Job", "Service", "ConfigMap"):
        Api("default").delete(kind, "bench-ckpt-smoke-0123456789ab")
    launcher = Kubernetes()
    assert not launcher.attach(configured(), paths)
    assert ResultFolder(paths.result).read_launch(0) == {"index": 0, "status": "ok"}
    assert not launcher.running()
    launcher.stop()
    assert left(cluster) == []


# --- what is refused before anything is made
def test_the_image_that_only_stands_for_one_is_refused():
    with pytest.raises(BadInput, match=r"cluster.image: registry.example/.* push it and give cluster.image="):
        Kubernetes().check(compose(["scenario=ckpt_8node", "cluster=kubernetes"]), gpus=0)


def test_a_relaunch_by_the_engine_needs_a_jobset():
    with pytest.raises(BadInput, match=r"recovery.relaunch: .*give cluster.jobset=true"):
        Kubernetes().check(configured("recovery.relaunch=engine"), gpus=0)


def test_a_claim_that_is_not_there_or_that_one_node_only_can_write_to_is_refused(cluster):
    cluster.add_claim("single", mode="ReadWriteOnce")
    launcher = Kubernetes()
    with pytest.raises(BadInput, match=r"cluster.pvc: there is no claim none in namespace default of fake"):
        launcher.check(configured("cluster.pvc=none"), gpus=0)
    with pytest.raises(BadInput, match=r"cluster.checkpoint_pvc: single is ReadWriteOnce, but 2 nodes write to it"):
        launcher.check(configured("cluster.checkpoint_pvc=single"), gpus=0)
    launcher.check(configured("cluster.pvc=single", "num_nodes=1"), gpus=0)


def test_a_cluster_without_jobsets_says_what_it_lacks(cluster, paths, runs):
    runs(ENDS)
    missing = Denied(404, "NotFound", "the server could not find the requested resource")
    cluster.denials["get", "jobsets"] = [missing]
    cluster.denials["create", "jobsets"] = [missing]
    with pytest.raises(BadInput, match="create JobSet; is it installed in this cluster"):
        Kubernetes().start(configured("cluster.jobset=true"), paths)
    assert left(cluster) == []


# --- from end to end
@pytest.mark.slow
def test_a_run_over_two_pods_with_real_runners_ends_with_a_result(cluster, tmp_path, monkeypatch):
    """The driver, the API, two pods that meet, real runners, ranks and checkpoints; only the machines are one."""
    monkeypatch.chdir(tmp_path)
    config = configured("machine=lab", f"work_dir={tmp_path}/work", "launches=1", "cycles=3", "model.layers=1")
    assert driver.run(config) in (0, 1)  # so few saves may be found too few
    (result,) = (tmp_path / "results" / "lab" / "ckpt_smoke").iterdir()
    summary = json.loads((result / "summary.json").read_text())
    assert (summary["num_nodes"], summary["world_size"], summary["rehearsal"]) == (2, 2, False)
    assert {arm["name"] for arm in summary["arms"] if arm["cost_s"]} >= {"sync_local", "nvrx_async"}
    invalid = {check["name"] for check in summary["checks"] if check["level"] == "invalid"}
    assert invalid <= {"leftovers"}  # these pods share a machine, and /dev/shm, with whatever else it does
    run = json.loads((result / "run.json").read_text())
    assert run["environment"]["machine"] == "lab"
    assert len(list((result / "logs").iterdir())) == 2
    statuses = [json.loads(path.read_text())["status"] for path in sorted(result.glob("launches/*/launch.json"))]
    assert statuses == ["ok", "ok"]
    assert left(cluster) == []
    assert not any(path.is_file() for path in (cluster.claim("bench") / "checkpoints").rglob("*"))


@pytest.mark.slow
def test_a_run_that_is_not_waited_for_is_collected_by_resume(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = configured("machine=lab", f"work_dir={tmp_path}/work", "launches=1", "cycles=3", "cluster.wait=false")
    began = time.monotonic()
    assert driver.run(config) == 0
    assert time.monotonic() - began < 30
    (result,) = (tmp_path / "results" / "lab" / "ckpt_smoke").iterdir()
    assert not (result / "summary.json").exists()
    assert driver.run(compose([f"resume={result}"])) in (0, 1)
    assert json.loads((result / "summary.json").read_text())["num_nodes"] == 2
    assert left(cluster) == []


# --- a real cluster, where there is one
def kubeconfig() -> Path:
    return Path(os.environ.get("KUBECONFIG", Path.home() / ".kube" / "config"))


@pytest.mark.slow
@pytest.mark.skipif(not kubeconfig().is_file(), reason="no kubeconfig: nothing to ask for a server-side dry run")
@pytest.mark.parametrize("scenario", ["ckpt_2node", "ckpt_8node"])
def test_an_api_server_accepts_the_manifest_in_a_dry_run(scenario, tmp_path):
    """Validation and admission by the server itself; nothing is stored."""
    from kubernetes import client, config

    from bench.launch.kube_names import Names
    from bench.launch.manifest import render

    config.load_kube_config()
    run = compose([f"scenario={scenario}", "cluster=kubernetes"])
    names = Names.of(run, Paths(Path("m/s/t"), Path("0123456789ab"), Path("0123456789ab")))
    create: dict[str, Any] = {
        "ConfigMap": client.CoreV1Api().create_namespaced_config_map,
        "Service": client.CoreV1Api().create_namespaced_service,
        "Job": client.BatchV1Api().create_namespaced_job,
    }
    for each in render(run, names, "{}"):
        answer = create[each["kind"]](namespace="default", body=each, dry_run="All", field_validation="Strict")
        assert answer.metadata.name == names.run
