"""The user's own part of a manifest: cluster.overlay, a file with one merge patch (RFC 7386) for each kind.

Kinds are those of the manifest, and two parts of it that every cluster differs in: Pod (the template of the runners'
pods, and the pod that results are read through) and Container (the runner's container). For example

    Job: {metadata: {labels: {kueue.x-k8s.io/queue-name: research}}}
    Pod: {spec: {serviceAccountName: bench, priorityClassName: high, imagePullSecrets: [{name: registry}]}}
    Container: {securityContext: {runAsUser: 1000}}

As the RFC has it, null removes a field and a list replaces the whole list.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bench.errors import BadInput, near

FIELD = "cluster.overlay"
KINDS = ("ConfigMap", "Service", "Job", "JobSet", "Pod", "Container")

Overlay = Mapping[str, dict[str, Any]]


def merge_patch(target: Any, patch: Any) -> Any:
    """What `patch` makes of `target`, by RFC 7386, section 2. Neither is changed."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def read_overlay(path: str | None) -> Overlay:
    """The patches in the file, by kind; none without a file. Raises BadInput: not there, not YAML, unknown kind."""
    if path is None:
        return {}
    try:
        content = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise BadInput(f"{FIELD}: {path} cannot be read ({error.strerror}); give a file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{FIELD}: {path} is not YAML ({' '.join(str(error).split())}); mend it") from None
    if not isinstance(content, dict) or not all(isinstance(patch, dict) for patch in content.values()):
        raise BadInput(f"{FIELD}: {path} must hold a patch for each kind, as in 'Pod: {{spec: {{...}}}}'; mend it")
    for kind in content:
        if kind not in KINDS:
            raise BadInput(f"{FIELD}: {path} patches {kind}, which the manifest does not have; {near(kind, KINDS)}")
    return content
