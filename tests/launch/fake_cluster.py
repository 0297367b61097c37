"""A stand-in for a cluster: the API server's REST paths and exec streams over real HTTP and websockets, a controller
of Jobs, and a kubelet that runs the pods' commands as real processes of this machine, volumes being folders.

What it answers has the shape that an API server's answers have. It knows the few calls that the suite makes, and
remembers each as (verb, resource), so that tests can hold them against the rights that are documented.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil

ROOT = Path(__file__).resolve().parents[2]
LOOK_S = 0.05
NAME = r"(?:/(?P<name>[^/]+)(?:/(?P<sub>\w+))?)?"
PATH = re.compile(r"/(?:api|apis/[^/]+)/v1\w*/namespaces/[^/]+/(?P<resource>\w+)" + NAME)
KINDS = {"jobs": "Job", "jobsets": "JobSet", "services": "Service", "configmaps": "ConfigMap", "pods": "Pod"}
KINDS |= {"persistentvolumeclaims": "PersistentVolumeClaim", "events": "Event"}
VERBS = {"POST": "create", "GET": "get", "DELETE": "delete", "PATCH": "patch"}
WEBSOCKET_KEY = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3

Object = dict[str, Any]


class Denied(Exception):
    """Answered as a Status object, as an API server does."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
        self.status |= {"reason": reason, "message": message}
        self.code = code


class FakeCluster:
    """Use as a context manager; `kubeconfig` is a file for KUBECONFIG. `port` (and the next one) serves the pods."""

    def __init__(self, folder: Path, port: int, starts: Callable[[Object], bool] = lambda pod: True) -> None:
        self.folder, self.port, self.starts = folder, port, starts
        self.objects: dict[tuple[str, str], Object] = {}
        self.calls: list[tuple[str, str]] = []
        self.denials: dict[tuple[str, str], list[Denied]] = {}  # by verb and resource, answered in this order
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.cut_after: list[int] = []  # exec streams that break off after so many bytes
        self.lock = threading.RLock()
        self._over = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._threads = [threading.Thread(target=self._server.serve_forever, args=(LOOK_S,), daemon=True)]
        self._threads.append(threading.Thread(target=self._live, daemon=True))
        self.add_claim("bench")

    def __enter__(self) -> FakeCluster:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join()
        self._server.server_close()
        for process in self.processes.values():
            end_container(process)
            process.wait()

    @property
    def kubeconfig(self) -> Path:
        path = self.folder / "kubeconfig"
        server = f"http://127.0.0.1:{self._server.server_address[1]}"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": server}}],
            "users": [{"name": "tester", "user": {"token": "secret"}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "tester"}}],
            "current-context": "fake",
        }
        path.write_text(json.dumps(content))
        return path

    # --- what tests arrange and look at
    def add_claim(self, name: str, mode: str = "ReadWriteMany") -> None:
        spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
        self.objects["PersistentVolumeClaim", name] = {"metadata": {"name": name}, "spec": spec}
        self.claim(name).mkdir(parents=True, exist_ok=True)

    def claim(self, name: str) -> Path:
        return self.folder / "claims" / name

    def add_event(self, about: str, reason: str, message: str) -> None:
        self.objects["Event", f"{about}.{len(self.objects):x}"] = {
            "metadata": {"name": f"{about}.{len(self.objects):x}"},
            "involvedObject": {"name": about},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }

    def of(self, kind: str) -> list[Object]:
        with self.lock:
            return [found for (each, _), found in self.objects.items() if each == kind]

    def runners(self) -> list[Object]:
        return [pod for pod in self.of("Pod") if "reader" not in pod["metadata"]["name"]]

    # --- requests
    def answer(self, method: str, path: str, body: Object | None) -> Object:
        parts, asked = PATH.fullmatch(urlsplit(path).path), parse_qs(urlsplit(path).query)
        if parts is None:
            raise Denied(404, "NotFound", f"the server could not find {path}")
        resource, name = parts["resource"], parts["name"]
        verb = "list" if method == "GET" and name is None else VERBS[method]
        with self.lock:
            self._note(verb, f"{resource}/{parts['sub']}" if parts["sub"] else resource)
            if parts["sub"] == "log":
                return {"text": self._log(name)}
            if verb == "create":
                return self._create(KINDS[resource], body or {})
            if verb == "list":
                return self._list(resource, asked)
            grace_s = asked.get("gracePeriodSeconds")
            return self._one(verb, resource, name, body or {}, int(grace_s[0]) if grace_s else None)

    def _note(self, verb: str, resource: str) -> None:
        self.calls.append((verb, resource))
        waiting = self.denials.get((verb, resource))
        if waiting:
            raise waiting.pop(0)

    def _create(self, kind: str, manifest: Object) -> Object:
        name = manifest["metadata"]["name"]
        if (kind, name) in self.objects:
            raise Denied(409, "AlreadyExists", f'{kind} "{name}" already exists')
        made = json.loads(json.dumps(manifest))
        made["metadata"] |= {"uid": f"uid-of-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        made.setdefault("status", {})
        self.objects[kind, name] = made
        if kind == "Job":
            self._make_pods(made["metadata"], made["spec"])
        elif kind == "JobSet":
            template = made["spec"]["replicatedJobs"][0]["template"]
            self._make_pods({"name": f"{name}-nodes-0", "owner": name}, template["spec"])
        elif kind == "Pod":
            self._admit(made, made["spec"]["containers"][0]["name"])
        return made

    def _list(self, resource: str, asked: dict[str, list[str]]) -> Object:
        found = self.of(KINDS[resource])
        if resource == "pods":
            wanted = dict(part.split("=") for part in asked["labelSelector"][0].split(","))
            found = [pod for pod in found if wanted.items() <= pod["metadata"]["labels"].items()]
        else:
            wanted_name = asked["fieldSelector"][0].removeprefix("involvedObject.name=")
            found = [event for event in found if event["involvedObject"]["name"] == wanted_name]
        return {"apiVersion": "v1", "kind": f"{KINDS[resource]}List", "metadata": {}, "items": found}

    def _one(self, verb: str, resource: str, name: str, body: Object, grace_s: int | None) -> Object:
        key = (KINDS[resource], name)
        if key not in self.objects:
            raise Denied(404, "NotFound", f'{resource} "{name}" not found')
        found = self.objects[key]
        if verb == "patch":
            found["metadata"] |= body["metadata"]
        elif verb == "delete":
            self._delete(key, grace_s)
        return found

    def _delete(self, key: tuple[str, str], grace_s: int | None = None) -> None:
        if key[0] == "Pod":
            pod = self.objects[key]
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
            process = self.processes.get(key[1])
            if process is not None and grace_s == 0:
                end_container(process)
            elif process is not None:
                process.terminate()
            return
        found = self.objects.pop(key)
        for pod in self.of("Pod"):
            if pod["metadata"].get("owner") == found["metadata"]["name"]:
                self._delete(("Pod", pod["metadata"]["name"]))

    # --- the Job controller
    def _make_pods(self, metadata: Object, spec: Object) -> None:
        for index in range(spec["completions"]):
            labels = spec["template"]["metadata"]["labels"]
            labels = labels | {"batch.kubernetes.io/job-completion-index": str(index)}
            name = f"{metadata['name']}-{index}-{len(self.processes):05x}"  # never the same again
            meta = {"name": name, "labels": labels, "owner": metadata.get("owner", metadata["name"])}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": dict(spec["template"]["spec"])}
            pod["hostname"] = f"{metadata['name']}-{index}"
            self.objects["Pod", name] = json.loads(json.dumps(pod))
            self._admit(self.objects["Pod", name], "runner")

    def _admit(self, pod: Object, container: str) -> None:
        state = {"waiting": {"reason": "ContainerCreating"}}
        status = {"name": container, "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        conditions = [{"type": "PodScheduled", "status": "True"}]
        pod["status"] = {"phase": "Pending", "conditions": conditions, "containerStatuses": [status]}
        pod["spec"]["nodeName"] = f"machine-{self.index(pod)}"

    def _settle(self) -> None:
        """Job and JobSet conditions, once all of a job's pods have ended."""
        for owner in [*self.of("Job"), *self.of("JobSet")]:
            name = owner["metadata"]["name"]
            phases = [pod["status"]["phase"] for pod in self.of("Pod") if pod["metadata"].get("owner") == name]
            if owner["status"] or not phases or not set(phases) <= {"Succeeded", "Failed"}:
                continue
            good = set(phases) == {"Succeeded"}
            kinds = {"Job": "Complete", "JobSet": "Completed"}
            condition = {"type": kinds[owner["kind"]] if good else "Failed", "status": "True"}
            condition |= {"reason": "CompletionsReached", "message": "Reached expected number of succeeded pods"}
            if not good:
                condition |= {"reason": "FailedIndexes", "message": "Job has failed indexes"}
            owner["status"] = {"conditions": [condition | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}

    # --- the kubelet
    @staticmethod
    def index(pod: Object) -> int:
        return int(pod["metadata"]["labels"].get("batch.kubernetes.io/job-completion-index", -1))

    def _live(self) -> None:
        while not self._over.wait(LOOK_S):
            with self.lock:
                for pod in self.of("Pod"):
                    self._turn(pod)
                self._settle()

    def _turn(self, pod: Object) -> None:
        name, status = pod["metadata"]["name"], pod["status"]
        process = self.processes.get(name)
        code = process.poll() if process is not None else None
        gone = "deletionTimestamp" in pod["metadata"]
        if gone and (process is None or code is not None):
            del self.objects["Pod", name]
        elif process is None and not gone and status["phase"] == "Pending" and self.starts(pod):
            self._start(pod)
            status["phase"] = "Running"
            status["containerStatuses"][0]["state"] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        elif process is not None and code is not None and status["phase"] == "Running":
            code = code if code >= 0 else 128 - code
            status["phase"] = "Failed" if code else "Succeeded"
            end = {"exitCode": code, "reason": "Error" if code else "Completed"}
            status["containerStatuses"][0]["state"] = {"terminated": end}

    def _start(self, pod: Object) -> None:
        container = pod["spec"]["containers"][0]
        env = {each["name"]: self._here(pod, each["value"]) for each in container.get("env", [])}
        env |= {"PYTHONPATH": str(ROOT), "JOB_COMPLETION_INDEX": str(self.index(pod)), "OMP_NUM_THREADS": "1"}
        for volume in pod["spec"]["volumes"]:
            self._place_files(pod, volume)
        with open(self._log_of(pod["metadata"]["name"]), "ab") as log:
            self.processes[pod["metadata"]["name"]] = subprocess.Popen(
                [self._here(pod, word) for word in container["command"]],
                env=dict(os.environ) | env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _folder_of(self, pod: Object, volume: Object) -> Path:
        if "persistentVolumeClaim" in volume:
            return self.claim(volume["persistentVolumeClaim"]["claimName"])
        return self.folder / "nodes" / str(self.index(pod)) / volume["name"]

    def _place_files(self, pod: Object, volume: Object) -> None:
        folder = self._folder_of(pod, volume)
        folder.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            for name, text in self.objects["ConfigMap", volume["configMap"]["name"]]["data"].items():
                (folder / name).write_text(text)

    def _here(self, pod: Object, text: str) -> str:
        """Paths, names and ports of the cluster as they are on this machine."""
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for mount in pod["spec"]["containers"][0]["volumeMounts"]:
            if mount["mountPath"] != "/dev/shm":
                text = text.replace(mount["mountPath"], str(self._folder_of(pod, volumes[mount["name"]])))
        text = re.sub(r"[\w-]+-0\.bench-[\w-]+", "127.0.0.1", text)
        text = text.replace("29411", str(self.port))
        return sys.executable if text == "python" else text

    def _log_of(self, name: str) -> Path:
        folder = self.folder / "pod-logs"
        folder.mkdir(exist_ok=True)
        return folder / name

    def _log(self, name: str) -> str:
        path = self._log_of(name)
        return path.read_text() if path.exists() else ""

    # --- exec
    def execute(self, path: str, send: Callable[[int, bytes], None]) -> None:
        """Run a command as in a pod; `send(channel, bytes)`. Returns early where the stream is to break off."""
        parts, asked = PATH.fullmatch(urlsplit(path).path), parse_qs(urlsplit(path).query, keep_blank_values=True)
        assert parts is not None
        with self.lock:
            self._note("get", "pods/exec")
            pod = self.objects["Pod", parts["name"]]
            cut = self.cut_after.pop(0) if self.cut_after else None
        words = [self._here(pod, word) for word in asked["command"]]
        done = subprocess.run(words, env=dict(os.environ) | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
        for start in range(0, len(done.stdout[:cut]), 1000):
            send(1, done.stdout[start : start + 1000] if cut is None else done.stdout[start : min(start + 1000, cut)])
        if cut is not None:
            return
        if done.stderr:
            send(2, done.stderr)
        status: Object = {"metadata": {}, "status": "Success"}
        if done.returncode:
            cause = {"reason": "ExitCode", "message": str(done.returncode)}
            status |= {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}
        send(3, json.dumps(status).encode())


def end_container(process: subprocess.Popen[bytes]) -> None:
    """Everything in a container ends with its first process."""
    try:
        below = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        below = []
    process.kill()
    for each in below:
        with suppress(psutil.NoSuchProcess):
            each.kill()


def _handler(cluster: FakeCluster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None: ...

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            try:
                code = 201 if self.command == "POST" else 200
                content = cluster.answer(self.command, self.path, body)
            except Denied as error:
                code, content = error.code, error.status
            plain = "text" in content and len(content) == 1
            data = content["text"].encode() if plain else json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if plain else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self._answer()

        do_PATCH = do_DELETE = do_POST  # noqa: N815  names that http.server looks for

        def do_GET(self) -> None:
            if self.headers.get("Upgrade", "").lower() == "websocket":
                self._stream()
            else:
                self._answer()

        def _stream(self) -> None:
            key = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + WEBSOCKET_KEY).encode()).digest()
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(key).decode())
            self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
            self.end_headers()
            self.wfile.flush()
            cluster.execute(self.path, lambda channel, data: self._frame(2, bytes([channel]) + data))
            self._frame(8, b"\x03\xe8")
            self.close_connection = True

        def _frame(self, opcode: int, payload: bytes) -> None:
            size = len(payload)
            head = bytes([0x80 | opcode, size]) if size < 126 else bytes([0x80 | opcode, 126]) + struct.pack(">H", size)
            self.wfile.write(head + payload)
            self.wfile.flush()

    return Handler


def until(condition: Callable[[], Any], patience_s: float = 60.0) -> Any:
    end = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(LOOK_S)
    return found
