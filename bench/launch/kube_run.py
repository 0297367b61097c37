"""One run inside a cluster, from its objects' creation to their deletion.

The submitting machine sees neither the nodes nor the claim. So run.json goes in by a ConfigMap; while the run goes on,
progress and finished launches come out through the pod of node 0, and at the end everything through a reader pod.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from bench.config import Run
from bench.launch import kube_watch
from bench.launch.base import Paths
from bench.launch.kube_api import Api, CommandFailed, Refused, Unreachable
from bench.launch.kube_files import Broken, unpack
from bench.launch.kube_names import CLAIM, Names
from bench.launch.kube_overlay import read_overlay
from bench.launch.kube_pods import GRACE_S, reader
from bench.launch.manifest import render

SYNC_S = 15.0  # between looks into the result of a run that goes on
UNREACHABLE_S = 300.0  # an API server may be away for so long, as in an upgrade of the control plane
READER_S = 900.0  # the reader's image may have to be pulled
LATE_S = 60.0  # what pods need, beside their patience, to say that they have none left
PACK_ATTEMPTS = 3
LOG_BYTES = 200_000
STUCK_PODS = 4  # whose events are asked for; more of them tell no more
LOOK_S = 1.0

Object = dict[str, Any]


class ClusterRun:
    """`news` takes lines for the user. Calls raise Refused or Unreachable, but for `running` and `close`."""

    def __init__(self, config: Run, paths: Paths, news: list[str]) -> None:
        self.config, self.paths, self.news = config, paths, news
        self.names = Names.of(config, paths)
        self.api = Api(config.cluster.namespace)
        # active: the job is to be cancelled if it shall end; away: the API server does not answer, leave all as it is
        self.phase: Literal["active", "given_up", "ended", "away"] = "active"
        self.pods: list[Object] = []
        self._node: str | None = None  # where the pod of node 0 was: its machine has the image
        self._begun = time.monotonic()
        self._all_started = False
        self._troubles: tuple[str, ...] = ()
        self._next_look = self._next_sync = 0.0
        self._silent_since: float | None = None
        self._have: set[int] = set()  # launches that have ended and are here

    # --- in
    def find(self) -> bool:
        """Whether the cluster has the job, of this driver or an earlier one."""
        return self.api.read(self.names.kind, self.names.run) is not None

    def submit(self) -> None:
        if self.find():  # an earlier session could not delete it
            self._cancel()
        self._remove()
        run_json = (self.paths.result / "run.json").read_text()
        made: list[Object] = []
        try:
            for manifest in render(self.config, self.names, run_json):
                made.append(self.api.create(manifest))  # noqa: PERF401  what was made before a refusal counts
            for each in made[:-1]:
                self.api.give_to(made[-1], each["kind"], each["metadata"]["name"])
        except (Refused, Unreachable):
            self._remove()
            raise
        where = f"in namespace {self.api.namespace} of {self.api.context}"
        self.news += [
            f"{self.names.kind} {self.names.run} is submitted {where}; you may close this terminal",
            f"  to look: kubectl -n {self.api.namespace} get pods -l app.kubernetes.io/instance={self.names.run}",
            f"  to collect: python -m bench run resume={self.paths.result}",
        ]

    # --- while it goes on
    def running(self) -> bool:
        """Asks the cluster every cluster.poll_s at most. An API server that is away is waited for, for a while."""
        if self.phase == "active" and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + self.config.cluster.poll_s
            try:
                self._look()
                self._silent_since = None
            except (Refused, Unreachable) as error:
                self._endure(error)
        return self.phase == "active"

    def _look(self) -> None:
        owner = self.api.read(self.names.kind, self.names.run)
        self._look_at_pods()
        state = kube_watch.state(owner, self.pods, self._events(owner))
        self.news += [line for line in state.troubles if line not in self._troubles]
        self._troubles = state.troubles
        if state.ended is not None:
            self.phase = "ended"
            if state.ended == "failed":
                self.news.append(f"the job failed ({state.reason})")
        elif state.started >= self.config.num_nodes:
            self._all_are_here()
        elif not self._all_started and self._waited_s > self.config.cluster.start_patience_s + LATE_S:
            self.phase = "given_up"
            self.news.append(
                f"only {state.started} of {self.config.num_nodes} pods have started within "
                f"cluster.start_patience_s={self.config.cluster.start_patience_s:g}; the job is deleted"
            )

    @property
    def _waited_s(self) -> float:
        return time.monotonic() - self._begun

    def _look_at_pods(self) -> None:
        self.pods = self.api.pods(self.names.selector)
        for pod in self.pods:
            if kube_watch.index(pod) == 0:
                self._node = pod["spec"].get("nodeName", self._node)

    def _events(self, owner: Object | None) -> dict[str, list[Object]]:
        """What the cluster says about pods that only wait, and about a job that has none."""
        about = {name: [name] for pod in self.pods if kube_watch.stuck(pod) and (name := kube_watch.name_of(pod))}
        asked = dict(list(about.items())[:STUCK_PODS])
        if owner is not None and not self.pods:
            asked[self.names.run] = [f"{self.names.run}-nodes-0", self.names.run]  # of a JobSet: its Job's as well
        try:
            return {name: [event for each in both for event in self.api.events(each)] for name, both in asked.items()}
        except Refused:
            return {}  # an account that may not see them

    def _all_are_here(self) -> None:
        if not self._all_started:
            self._all_started = True
            self.news.append(f"{self.config.num_nodes} pods run, {self._waited_s:.0f} s after the submission")
        if time.monotonic() >= self._next_sync:
            self._next_sync = time.monotonic() + SYNC_S
            try:
                self._fetch(kube_watch.name_of(min(self.pods, key=kube_watch.index)), live=True)
            except (CommandFailed, Broken):
                pass  # nothing is lost: the end brings everything

    def _endure(self, error: Exception) -> None:
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        elif now - self._silent_since > UNREACHABLE_S:
            self.phase = "away"
            self.news.append(f"the API server has been of no use for {UNREACHABLE_S:.0f} s ({error})")

    # --- out
    def close(self) -> None:
        """End the job if it still runs, bring the result here, leave nothing but the result on the claim behind."""
        if self.phase == "away":
            return
        try:
            self._save_logs()
            if self.phase != "ended":
                self._cancel()
                self.phase = "ended"
            self.collect()
            self._remove()
        except (Refused, Unreachable) as error:
            self.news.append(
                f"not all is tidied up ({error}); later: kubectl -n {self.api.namespace} delete "
                f"{self.names.kind.lower()},service,configmap,pod -l app.kubernetes.io/instance={self.names.run}"
            )

    @property
    def left_running(self) -> bool:
        """After `close`: the job could not be told to end, and nobody knows that it has ended."""
        return self.phase != "ended"

    def collect(self) -> None:
        """Bring the whole result here. Where that fails, it stays on the claim, and the news say so."""
        try:
            with self._reader() as pod:
                self._fetch(pod, live=False)
                self.api.execute(pod, ["rm", "-rf", str(self.names.checkpoint_dir)], io.BytesIO())
        except (CommandFailed, Broken) as error:
            self.news.append(
                f"the result is still on claim {self.config.cluster.pvc} below "
                f"{self.names.result.relative_to(CLAIM)} ({error}); try again with resume={self.paths.result}"
            )

    @contextmanager
    def _reader(self) -> Iterator[str]:
        """A pod that sees the claim; gone afterwards. Raises CommandFailed if it does not come up."""
        self.api.delete("Pod", self.names.reader, grace_s=0)  # of an earlier attempt
        self._wait_until_gone(self.names.reader)
        self.api.create(reader(self.config, self.names, read_overlay(self.config.cluster.overlay), self._node))
        try:
            self._await_reader()
            yield self.names.reader
        finally:
            self.api.delete("Pod", self.names.reader, grace_s=0)

    def _await_reader(self) -> None:
        end, why = time.monotonic() + READER_S, "no reason given"
        while time.monotonic() < end:
            pod = self.api.read("Pod", self.names.reader)
            phase = pod["status"]["phase"] if pod is not None else "Deleted"
            why = (pod and kube_watch.obstacle(pod)) or why
            if phase == "Running":
                return
            if phase != "Pending":
                break
            time.sleep(LOOK_S)
        raise CommandFailed(f"the reader pod did not come up within {READER_S:.0f} s, {why}")

    def _wait_until_gone(self, pod: str) -> None:
        end = time.monotonic() + LATE_S
        while self.api.read("Pod", pod) is not None and time.monotonic() < end:
            time.sleep(LOOK_S)

    def _fetch(self, pod: str, live: bool) -> None:
        """Bring files of the result here through `pod`; `live`: only what is needed before the end."""
        words = [self.config.cluster.python or "python", "-m", "bench.launch.kube_pod", "pack"]
        words += ["--result", str(self.names.result)]
        if live:
            words += ["--live", *(["--have", ",".join(map(str, sorted(self._have)))] if self._have else [])]
        for attempt in range(1, PACK_ATTEMPTS + 1):
            with tempfile.TemporaryFile() as archive:
                try:
                    self.api.execute(pod, words, archive)
                    archive.seek(0)
                    self._have |= unpack(archive, self.paths.result)
                    return
                except (CommandFailed, Broken):
                    if live or attempt == PACK_ATTEMPTS:
                        raise

    def _save_logs(self) -> None:
        """What each runner printed; a pod's log goes with its pod."""
        self._look_at_pods()
        folder = self.paths.result / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        for pod in self.pods:
            text = self.api.log(kube_watch.name_of(pod), LOG_BYTES)
            (folder / f"runner-{kube_watch.index(pod)}.log").write_text(text)
            if kube_watch.failed(pod) and (said := text.strip().splitlines()):
                self.news.append(f"node {kube_watch.index(pod)} said last: {said[-1][:300]}")

    def _cancel(self) -> None:
        """Delete the job and wait for its pods: their runners end the launch and ship what was measured."""
        self.api.delete(self.names.kind, self.names.run)
        end = time.monotonic() + GRACE_S + LATE_S
        left: Sequence[Object] = self.pods
        while time.monotonic() < end:
            left = self.api.pods(self.names.selector)
            if not left and not self.find():
                return
            time.sleep(LOOK_S)
        self.news.append(f"pods that do not end (is their node gone?): {', '.join(map(kube_watch.name_of, left))}")

    def _remove(self) -> None:
        self.api.delete(self.names.kind, self.names.run)
        for kind in ("Service", "ConfigMap"):
            self.api.delete(kind, self.names.run)
