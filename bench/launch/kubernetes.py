"""One pod per node of a Kubernetes cluster: submit, watch, collect, delete (see kube_run; manifest has the objects)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.config import Run
from bench.errors import BadInput
from bench.launch.base import Launcher, Paths
from bench.launch.kube_api import Api, Unreachable
from bench.launch.kube_names import Names
from bench.launch.kube_pods import command
from bench.launch.kube_run import ClusterRun
from bench.launch.manifest import manifest_text, render

PLACEHOLDER = "registry.example/"  # of the image in conf/cluster/kubernetes.yaml


class Kubernetes(Launcher):
    name = "kubernetes"
    outlives_driver = True
    sees_storage = False
    relaunches = True

    def __init__(self) -> None:
        self._news: list[str] = []
        self._run: ClusterRun | None = None

    def check(self, config: Run, gpus: int) -> None:
        if (config.cluster.image or "").startswith(PLACEHOLDER):
            raise BadInput(
                f"cluster.image: {config.cluster.image} only stands for yours; build scripts/Dockerfile, push it and "
                "give cluster.image=REGISTRY/NAME:TAG"
            )
        if config.recovery.relaunch == "engine" and not config.cluster.jobset:
            raise BadInput("recovery.relaunch: a Job does not start its pods again; give cluster.jobset=true")
        render(config, Names.of(config, Paths(Path("MACHINE/SCENARIO/TIME"), Path("RUN"), Path("RUN"))), "{}")
        with _answering():
            api = Api(config.cluster.namespace)
            for key in ("pvc", "checkpoint_pvc"):
                if (claim := getattr(config.cluster, key)) is not None:
                    check_claim(api, f"cluster.{key}", claim, config.num_nodes)

    def commands(self, config: Run, paths: Paths) -> list[list[str]]:
        return [command(config, Names.of(config, paths))]

    def plan_text(self, config: Run, paths: Paths) -> str:
        return manifest_text(config, Names.of(config, paths)).rstrip("\n")

    def start(self, config: Run, paths: Paths) -> None:
        with _answering():
            run = ClusterRun(config, paths, self._news)
            run.submit()
        self._run = run

    def attach(self, config: Run, paths: Paths) -> bool:
        with _answering():
            run = ClusterRun(config, paths, self._news)
            found = run.find()
            if found:
                self._run = run
            else:  # it has ended, and nobody was there to collect its result
                run.collect()
        return found

    def running(self) -> bool:
        return self._run is not None and self._run.running()

    def stop(self) -> None:
        if self._run is not None:
            self._run.close()

    def left_running(self) -> bool:
        return self._run is not None and self._run.left_running

    def news(self) -> list[str]:
        lines = list(self._news)
        self._news.clear()
        return lines


@contextmanager
def _answering() -> Iterator[None]:
    """Where nothing has begun yet, a silent API server is the user's to mend."""
    try:
        yield
    except Unreachable as error:
        raise BadInput(f"cluster: the API server does not answer ({error}); mend KUBECONFIG, or try again") from None


def check_claim(api: Api, field: str, claim: str, num_nodes: int) -> None:
    """Raises BadInput for a claim that is not there, or that several nodes cannot write to."""
    found = api.read("PersistentVolumeClaim", claim)
    if found is None:
        raise BadInput(
            f"{field}: there is no claim {claim} in namespace {api.namespace} of {api.context}; make one that is "
            f"ReadWriteMany, or give {field}=NAME"
        )
    modes = found["spec"].get("accessModes", [])
    if num_nodes > 1 and "ReadWriteMany" not in modes:
        raise BadInput(
            f"{field}: {claim} is {' and '.join(modes)}, but {num_nodes} nodes write to it; "
            "give one that is ReadWriteMany (FSx for Lustre, EFS)"
        )
