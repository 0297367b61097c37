"""Ranks that find each other: interfaces for gloo and NCCL, a reduction by each, and the clocks of two nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from bench.doctor.base import Case, Check, judged

CLOCK_UNCERTAIN_S = 0.001
GLOO, NCCL = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"


def examine(case: Case) -> Iterator[Check]:
    yield from names(case.environ, list(psutil.net_if_addrs()))
    if case.versions.get("torch") is None or case.meeting.first("torch") is None:
        yield Check("all-reduce", "skip", "torch does not run here")
        return
    yield interface(case)
    yield reduction(case, "gloo")
    yield reduction(case, "nccl")
    yield clock(case)


def names(environ: Mapping[str, str], there: list[str]) -> Iterator[Check]:
    """Variables that the user has set: gloo takes concrete names only, NCCL also prefixes, exclusions and lists."""
    given = environ.get(GLOO)
    if given is not None:
        missing = [name for name in given.split(",") if name not in there]
        remedy = f"give a name of {', '.join(there)}, or leave it out: each node then derives its own"
        found = f"{given!r}" if not missing else f"{given!r}: no interface {', '.join(missing)} here"
        yield judged(GLOO, not missing, found, remedy)
    given = environ.get(NCCL)
    if given is not None:
        chosen = chosen_by_nccl(given, there)
        found = f"{given!r} leaves {', '.join(chosen) or 'no interface'}"
        yield judged(NCCL, bool(chosen), found, f"name one of {', '.join(there)}, or leave it out")


def chosen_by_nccl(given: str, there: list[str]) -> list[str]:
    """Interfaces that NCCL may use: a list of prefixes; after ^ those are left out; after = names are exact."""
    inverted, exact = given.startswith("^"), given.lstrip("^").startswith("=")
    words = [word for word in given.lstrip("^=").split(",") if word]

    def named(name: str) -> bool:
        return any(name == word if exact else name.startswith(word) for word in words)

    return [name for name in there if named(name) != inverted]


def interface(case: Case) -> Check:
    found = case.meeting.all("interface")
    if not found:
        return Check("interface", "fail", f"ranks did not meet: {case.meeting.error}", MEETING_REMEDY)
    where = "on two nodes" if case.meeting.across else "on this machine"
    words = {"config": "cluster.interface", "variable": GLOO, "route": "the route to node 0"}
    texts = dict.fromkeys(f"{each['name']} (by {words[each['source']]})" for each in found)
    return Check("interface", "ok", f"gloo {where}: {', '.join(texts)}")


MEETING_REMEDY = "cluster.interface=NAME of a network that all nodes share; firewalls between them must let it pass"


def reduction(case: Case, backend: str) -> Check:
    name = f"all-reduce, {backend}"
    if backend == "nccl" and (case.config.device != "cuda" or not case.gpus):
        return Check(name, "skip", "no GPU" if case.config.device == "cuda" else "the run computes on CPUs")
    found: list[dict[str, Any]] = case.meeting.all(backend)
    remedy = MEETING_REMEDY if backend == "gloo" else "NCCL_DEBUG=INFO shows why; /dev/shm, driver and interface count"
    failed = [each["error"] for each in found if "error" in each]
    if not found or failed:
        return Check(name, "fail", failed[0] if failed else f"no answer: {case.meeting.error}", remedy)
    if not all(each["correct"] for each in found):
        return Check(name, "fail", "the sum is wrong", "this machine computes wrongly: do not measure on it")
    slowest = max(found, key=lambda each: float(each["latency_s"]))
    ranks = slowest["ranks"]
    where = "nodes" if case.meeting.across else f"process{'es' * (ranks > 1)} of this machine"
    alone = " (one GPU: nothing was sent)" if backend == "nccl" and ranks == 1 else ""
    speed = f"{slowest['latency_s'] * 1e6:.0f} us a number, {slowest['bytes_per_s'] / 1e9:.2f} GB/s"
    return Check(name, "ok", f"{ranks} {where}: {speed}{alone}")


def clock(case: Case) -> Check:
    """Between nodes only: processes of one host share its monotonic clock."""
    if not case.meeting.across:
        why = "one machine has one clock" if case.config.num_nodes == case.nodes_here else NOT_ACROSS
        return Check("clocks", "skip", why)
    offset = case.meeting.first("clock")
    if offset is None:
        return Check("clocks", "fail", f"not compared: {case.meeting.error}", MEETING_REMEDY)
    uncertainty_s = float(offset["uncertainty_s"])
    found = f"two nodes are aligned to {uncertainty_s * 1e6:.0f} us; smaller differences are not resolved"
    remedy = "a quieter or nearer network: differences between nodes below this are not resolved"
    return judged("clocks", uncertainty_s <= CLOCK_UNCERTAIN_S, found, remedy, "warn")


NOT_ACROSS = "other nodes cannot be reached from here; run the doctor inside an allocation of several nodes"
