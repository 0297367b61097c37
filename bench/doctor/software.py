"""Python, torch, NVRx and NCCL: versions that the run needs, and what those installed lack."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator

from bench.doctor.base import IN_JOB, IN_PROCESS, Case, Check, judged

Version = tuple[int, ...]

PYTHON = ((3, 10), (3, 12))  # NVRx has wheels for these
TORCH = (2, 8)
NVRX_TESTED = ("0.4.1", "0.7.0")
NVRX_NEW = "0.7.0"  # its wheel is for one Python and a new glibc only
NVRX_NEW_PYTHON, NVRX_NEW_GLIBC = (3, 12), (2, 39)
NVRX_OLD_LACKS = (
    "the launcher's own times (its log's are used) and a DCP writer that copies CPU tensors (the suite does)"
)
NCCL_BAD = ((2, 28, 3), (2, 28, 8))  # first and last that conflict with in-process restart


def examine(case: Case) -> Iterator[Check]:
    yield python(sys.version_info[:2])
    yield torch(case)
    yield nvrx(case)
    yield nccl(case)


def numbers(text: str) -> Version:
    """The leading numbers of a version: (2, 8) of "2.8.0a0+5228986c39.nv25.6" is compared, so its 0 is kept."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match.group().split("."))) if match else ()


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def python(version: Version) -> Check:
    low, high = PYTHON
    found = f"Python {dotted(version)} on {'-'.join(platform.libc_ver()) or 'an unknown libc'}"
    remedy = f"use Python {dotted(low)} to {dotted(high)}: NVRx has wheels for no other"
    return judged("Python", low <= version <= high, found, remedy)


def torch(case: Case) -> Check:
    version = case.versions.get("torch")
    if version is None:
        remedy = "make setup, or in a vendor's container make setup VENV_FLAGS=--system-site-packages"
        return Check("torch", "fail", "not installed: nothing can be trained here", remedy)
    known = case.meeting.first("torch")
    if known is None:
        remedy = "python -c 'import torch' shows it in full"
        return Check("torch", "fail", f"{version} is installed and does not run: {case.meeting.error}", remedy)
    build = f"built for CUDA {known['cuda']}" if known["cuda"] else "built without CUDA"
    found = f"{known['version']}, {build}"
    if numbers(known["version"])[:2] < TORCH:
        return Check("torch", "fail", found, f"torch {dotted(TORCH)} or newer: in-process restart needs it")
    if case.config.device == "cuda" and not known["cuda"]:
        return Check("torch", "fail", found, "install a CUDA build of torch (the index of its install page names it)")
    if case.config.device == "cuda" and not known["devices"]:
        return Check("torch", "fail", f"{found}; it sees no device", "a driver that is new enough for that CUDA")
    return Check("torch", "ok", found)


def nvrx(case: Case) -> Check:
    version = case.versions.get("nvidia_resiliency_ext")
    arms = [arm for arm in case.writing_arms if arm.startswith("nvrx")]
    needing = [*arms, *sorted(case.layers & (IN_PROCESS | IN_JOB))]
    if version is None:
        found, remedy = "not installed", "pip install 'ckpt-bench[train]', or leave out what needs it"
        needed = f"; needed by {', '.join(needing)}" if needing else "; nothing in this run needs it"
        return judged("NVRx", not needing, found + needed, remedy)
    if version not in NVRX_TESTED:
        remedy = f"{' or '.join(NVRX_TESTED)}, which the tests run with"
        return Check("NVRx", "warn", f"{version}, which this suite has not been tested with", remedy)
    return Check("NVRx", "ok", nvrx_found(version, sys.version_info[:2], platform.libc_ver()[1]))


def nvrx_found(version: str, python_version: Version, glibc: str) -> str:
    """What the installed version lacks, and whether the newer one could be installed here."""
    if version == NVRX_NEW:
        return version
    new = f"Python {dotted(NVRX_NEW_PYTHON)} and glibc {dotted(NVRX_NEW_GLIBC)} or newer"
    could = python_version == NVRX_NEW_PYTHON and numbers(glibc) >= NVRX_NEW_GLIBC
    here = "both are here" if could else f"here {dotted(python_version)} and {glibc or 'no glibc'}"
    return f"{version}; lacks of {NVRX_NEW}: {NVRX_OLD_LACKS}. {NVRX_NEW} needs {new}: {here}"


def nccl(case: Case) -> Check:
    if case.config.device != "cuda":
        return Check("NCCL", "skip", "ranks on CPUs talk over gloo")
    known = case.meeting.first("torch")
    version: Version = tuple((known or {}).get("nccl") or ())
    if not version:
        return Check("NCCL", "fail", "torch has none", "install a CUDA build of torch")
    concerned = sorted(case.layers & IN_PROCESS)
    first, last = NCCL_BAD
    if not first <= version[:3] <= last:
        return Check("NCCL", "ok", dotted(version))
    found = f"{dotted(version)}: {dotted(first)} to {dotted(last)} conflict with in-process restart"
    remedy = f"pip install 'nvidia-nccl-cu12>{dotted(last)}', or an older one, before runs with in_process or nested"
    return Check("NCCL", "fail" if concerned else "warn", found, remedy)
