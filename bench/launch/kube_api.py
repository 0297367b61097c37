"""The few calls of the Kubernetes API that a run needs. Objects are plain dicts in the API's own form.

The official client does the talking: kubeconfig, its credential plugins and TLS, or the service account of a pod.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, BinaryIO

from bench.errors import BadInput

Object = dict[str, Any]

TIMEOUT_S = (5.0, 30.0)  # to connect, to answer: a call never hangs on a dead control plane
EXEC_LOOK_S = 0.2
EXEC_SILENCE_S = 60.0  # a command in a pod that says nothing for so long is given up
EXPIRED, UNKNOWN, REFUSED = 401, 404, (400, 401, 403, 409, 422)
_STDOUT, _STDERR, _STATUS = 1, 2, 3  # channels of an exec stream

_KINDS = {  # kind -> (API class, the noun in its methods)
    "Job": ("BatchV1Api", "job"),
    "Service": ("CoreV1Api", "service"),
    "ConfigMap": ("CoreV1Api", "config_map"),
    "Pod": ("CoreV1Api", "pod"),
    "PersistentVolumeClaim": ("CoreV1Api", "persistent_volume_claim"),
}
_JOBSET = {"group": "jobset.x-k8s.io", "version": "v1alpha2", "plural": "jobsets"}


class Unreachable(Exception):
    """The API server did not answer, or not usefully; a later call may succeed."""


class Refused(BadInput):
    """The API server refuses a request of this form or of this account."""


class CommandFailed(Exception):
    """A command inside of a pod failed, or its stream broke off."""


class Api:
    """Talks to the cluster of the current kubeconfig context. Raises BadInput when there is no way to one.

    Every call raises Unreachable for what may pass, and Refused, with the server's own words, for what will not.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._load()

    def _load(self) -> None:
        try:
            import kubernetes
        except ImportError:
            raise BadInput(
                "cluster: kubernetes needs the client library; pip install 'ckpt-bench[kubernetes]'"
            ) from None
        self._library: Any = kubernetes
        configuration = kubernetes.client.Configuration()
        try:
            self.context = load_credentials(kubernetes, configuration)
        except kubernetes.config.ConfigException as error:
            words = " ".join(str(error).split())
            raise BadInput(f"cluster: no way to a Kubernetes cluster ({words}); set KUBECONFIG") from None
        configuration.retries = False  # the library's own retries would outlast a look
        self._client: Any = kubernetes.client.ApiClient(configuration)

    # --- objects
    def create(self, manifest: Object) -> Object:
        kind = manifest["kind"]
        made = self._ask(f"create {kind}", self._method("create", kind), namespace=self.namespace, body=manifest)
        return dict(made)

    def read(self, kind: str, name: str) -> Object | None:
        """None: there is no such object."""
        found = self._ask_known(f"get {kind}", self._method("read", kind), name=name, namespace=self.namespace)
        return None if found is None else dict(found)

    def delete(self, kind: str, name: str, grace_s: int | None = None) -> None:
        """Also what the object owns, in the background. One that is gone is not an error."""
        options: Object = {"propagation_policy": "Background"}
        if grace_s is not None:
            options["grace_period_seconds"] = grace_s
        call = self._method("delete", kind)
        self._ask_known(f"delete {kind}", call, name=name, namespace=self.namespace, **options)

    def give_to(self, owner: Object, kind: str, name: str) -> None:
        """Have `kind` `name` go when `owner` goes."""
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        reference |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        body = {"metadata": {"ownerReferences": [reference]}}
        self._ask(f"patch {kind}", self._method("patch", kind), name=name, namespace=self.namespace, body=body)

    def pods(self, selector: str) -> list[Object]:
        call = self._core().list_namespaced_pod
        found = self._ask("list Pod", call, namespace=self.namespace, label_selector=selector)
        return list(found["items"])

    def events(self, name: str) -> list[Object]:
        """What the cluster says about the object `name`, oldest first."""
        call, selector = self._core().list_namespaced_event, f"involvedObject.name={name}"
        found = self._ask("list Event", call, namespace=self.namespace, field_selector=selector)
        return sorted(found["items"], key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))

    def log(self, pod: str, most_bytes: int) -> str:
        """The end of what a pod's runner printed; empty where nothing can be had."""
        call = self._core().read_namespaced_pod_log
        try:
            text = self._ask("get Pod log", call, name=pod, namespace=self.namespace, tail_lines=10_000)
        except (Refused, Unreachable):
            return ""  # the node is gone, or the pod never started
        return str(text or "")[-most_bytes:]

    # --- inside a pod
    def execute(self, pod: str, command: Sequence[str], sink: BinaryIO) -> None:
        """Run a command in a pod; its output goes to `sink`. Raises CommandFailed, with the end of its errors."""
        from kubernetes.stream import stream

        options = {"stderr": True, "stdin": False, "stdout": True, "tty": False}
        try:
            channel = stream(
                self._core().connect_get_namespaced_pod_exec,
                name=pod,
                namespace=self.namespace,
                command=list(command),
                _preload_content=False,
                _request_timeout=TIMEOUT_S[1],
                binary=True,
                **options,
            )
        except (self._library.client.ApiException, OSError) as error:
            raise CommandFailed(f"no command could be started in pod {pod}: {_words(error)}") from None
        try:
            status, errors = _copy(channel, sink)
        except Exception as error:  # noqa: BLE001  the websocket library's own kinds of broken connections
            raise CommandFailed(f"the connection to pod {pod} broke off: {_words(error)}") from None
        finally:
            channel.close()
        if status.get("status") != "Success":
            words = errors.decode(errors="replace").strip().splitlines()
            said = words[-1] if words else status.get("message", "the stream broke off")
            raise CommandFailed(f"a command in pod {pod} failed: {said}")

    # --- how a call is made
    def _core(self) -> Any:
        return self._library.client.CoreV1Api(self._client)

    def _method(self, verb: str, kind: str) -> Callable[..., Any]:
        if kind == "JobSet":
            custom = self._library.client.CustomObjectsApi(self._client)
            named = f"{'get' if verb == 'read' else verb}_namespaced_custom_object"
            return partial(getattr(custom, named), **_JOBSET)
        api, noun = _KINDS[kind]
        methods = getattr(self._library.client, api)(self._client)
        method: Callable[..., Any] = getattr(methods, f"{verb}_namespaced_{noun}")
        return method

    def _ask(self, what: str, call: Callable[..., Any], **arguments: Any) -> Any:
        found = self._ask_known(what, call, **arguments)
        if found is None:
            raise Refused(f"cluster: the server knows no such thing to {what}; is it installed in this cluster?")
        return found

    def _ask_known(self, what: str, call: Callable[..., Any], **arguments: Any) -> Any:
        """The answer as plain data; None for what the server does not know (404)."""
        from urllib3.exceptions import HTTPError

        try:
            answer = self._authorised(call, arguments)
        except self._library.client.ApiException as error:
            if error.status == UNKNOWN:
                return None
            if error.status in REFUSED:
                raise Refused(f"cluster: the server refuses to {what}: {_words(error)}") from None
            raise Unreachable(f"{what}: {_words(error)}") from None
        except (HTTPError, OSError) as error:
            raise Unreachable(f"{what}: {_words(error)}") from None
        return self._client.sanitize_for_serialization(answer)

    def _authorised(self, call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Tokens of a cloud live for minutes and a run for hours: once the server refuses one, a new one is fetched."""
        try:
            return call(**arguments, _request_timeout=TIMEOUT_S)
        except self._library.client.ApiException as error:
            if error.status != EXPIRED:
                raise
        load_credentials(self._library, self._client.configuration)
        return call(**arguments, _request_timeout=TIMEOUT_S)


def load_credentials(library: Any, configuration: Any) -> str:
    """Fill in the client's configuration; returns the name of the context. Raises library.config.ConfigException."""
    given = os.environ.get("KUBECONFIG")  # the library looks at it only once, when it is imported
    try:
        library.config.load_kube_config(config_file=given, client_configuration=configuration)
    except library.config.ConfigException as error:
        try:
            library.config.load_incluster_config(client_configuration=configuration)
        except library.config.ConfigException:
            raise error from None
        return "the own cluster"
    return str(library.config.list_kube_config_contexts(config_file=given)[1]["name"])


def _copy(channel: Any, sink: BinaryIO) -> tuple[Object, bytes]:
    """Everything a command prints; returns how it ended and the end of its errors."""
    errors, status, heard = b"", b"", time.monotonic()
    while channel.is_open():
        channel.update(timeout=EXEC_LOOK_S)
        output = channel.read_channel(_STDOUT)
        sink.write(output)
        errors = (errors + channel.read_channel(_STDERR))[-10_000:]
        status += channel.read_channel(_STATUS)
        if output:
            heard = time.monotonic()
        if status or time.monotonic() - heard > EXEC_SILENCE_S:
            break
    sink.write(channel.read_channel(_STDOUT))  # reading one channel takes in frames of the others as well
    errors += channel.read_channel(_STDERR)
    status += channel.read_channel(_STATUS)
    return (json.loads(status) if status else {}), errors


def _words(error: Exception) -> str:
    """What the server said, on one line."""
    body = getattr(error, "body", None)
    try:
        text = json.loads(body)["message"] if body else str(error)
    except (ValueError, KeyError, TypeError):
        text = f"{getattr(error, 'status', '')} {getattr(error, 'reason', '')}".strip() or str(error)
    return " ".join(str(text).split())[:400]
