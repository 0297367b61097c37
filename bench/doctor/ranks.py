"""Probe: ranks meet, compare clocks and reduce, as the ranks of a run will.

`python -m bench.doctor.ranks --meet FILE [--rank R --ranks N] [--host ADDRESS] [--interface NAME] [--nccl N]`, started
once per rank (under srun rank and count are Slurm's). Rank 0 hosts the store and writes its addresses into FILE, which
all must see. Prints one JSON object a line, as soon as it is known: what of it is missing has failed or hung.
  torch      version, cuda, nccl ([major, minor, patch] or None), devices
  host       address of rank 0 by which the others reach it         hostname  of this rank
  interface  name, source: config | variable | route
  clock      offset_s and uncertainty_s to rank 0
  gloo, nccl correct, latency_s (of one number), bytes_per_s (of a large tensor), ranks; or error
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.node import clocks
from bench.supervise import die_with_parent

if TYPE_CHECKING:
    from torch.distributed import TCPStore

PATIENCE_S = 60.0  # for the other rank: on a cluster its imports come from a shared file system
LARGE_BYTES = 16 << 20
REPEATS = 10
IFNAME = "GLOO_SOCKET_IFNAME"


def say(**found: Any) -> None:
    """Print a line in one write: ranks share a pipe, and under PYTHONUNBUFFERED print() writes the line's end apart."""
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.doctor.ranks", description="Ranks meet and reduce.")
    parser.add_argument("--meet", type=Path, required=True, help="file for rank 0's addresses, seen by all ranks")
    parser.add_argument("--rank", type=int, default=os.environ.get("SLURM_PROCID"))
    parser.add_argument("--ranks", type=int, default=os.environ.get("SLURM_NTASKS"))
    parser.add_argument("--host", help="address of rank 0; default: found out")
    parser.add_argument("--interface", help="network interface for gloo; default: by the route to rank 0")
    parser.add_argument("--nccl", type=int, default=0, help="so many first ranks reduce by NCCL as well")
    return parser.parse_args()


def addresses() -> list[str]:
    """IPv4 addresses of this machine: the one its name stands for, those of its interfaces, loopback last."""
    own = [
        entry.address for found in psutil.net_if_addrs().values() for entry in found if entry.family == socket.AF_INET
    ]
    try:
        own.insert(0, socket.gethostbyname(socket.gethostname()))
    except OSError:
        pass  # a name that nobody resolves
    return sorted(dict.fromkeys(own), key=lambda address: ipaddress.ip_address(address).is_loopback)


def publish(meet: Path, content: dict[str, Any]) -> None:
    """Write at once or not at all: others wait for the file to appear."""
    draft = meet.with_name(f"{meet.name}.{os.getpid()}")
    draft.write_text(json.dumps(content))
    draft.rename(meet)


def read(meet: Path) -> dict[str, Any]:
    """Raises TimeoutError when rank 0 does not come."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            found: dict[str, Any] = json.loads(meet.read_text())
            return found
        except FileNotFoundError:
            time.sleep(0.05)
    raise TimeoutError(f"rank 0 did not write its address into {meet} within {PATIENCE_S:.0f} s")


def reachable(candidates: list[str], port: int) -> str:
    """The first address at which something listens. Raises OSError when there is none."""
    failed = []
    for address in candidates:
        try:
            with socket.create_connection((address, port), timeout=3):
                return address
        except OSError as error:
            failed.append(f"{address} ({error.strerror or error})")
    raise OSError(f"rank 0 is not reached at {', '.join(failed)}, port {port}")


def meet(given: argparse.Namespace) -> tuple[TCPStore, str]:
    """The store of rank 0 and the address by which the others reach it."""
    from torch.distributed import TCPStore

    timeout = timedelta(seconds=PATIENCE_S)
    if given.rank > 0:
        found = read(given.meet)
        host = reachable(found["addresses"], found["port"])
        store = TCPStore(host, found["port"], is_master=False, timeout=timeout)
        say(clock=asdict(clocks.measure(host, found["clock_port"])))
        store.set("host", host)
        return store, host
    clock = clocks.ClockServer()
    store = TCPStore(given.host or "0.0.0.0", 0, is_master=True, wait_for_workers=False, timeout=timeout)
    known = [given.host] if given.host else addresses()
    publish(given.meet, {"addresses": known, "port": store.port, "clock_port": clock.port})
    return store, store.get("host").decode() if given.ranks > 1 else known[0]


def interface(given: str | None, host: str) -> dict[str, str]:
    """What the runners of a run would take for gloo, and why. Sets the variable."""
    from bench.node.base import interface_to

    name, source = given, "config"
    if IFNAME in os.environ:
        name, source = os.environ[IFNAME], "variable"  # the user's own variables win, as in a run
    elif name is None:
        name, source = interface_to(host), "route"
    os.environ[IFNAME] = name
    return {"name": name, "source": source}


def reduce(backend: str, store: TCPStore, rank: int, ranks: int) -> dict[str, Any]:
    """Form a group, add up the ranks' numbers, time a small and a large reduction. Errors are values."""
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", rank % torch.cuda.device_count()) if backend == "nccl" else torch.device("cpu")
    try:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        prefixed, timeout = dist.PrefixStore(backend, store), timedelta(seconds=PATIENCE_S)
        dist.init_process_group(backend, store=prefixed, rank=rank, world_size=ranks, timeout=timeout)
        number = torch.full((1,), rank + 1.0, device=device)
        dist.all_reduce(number)
        correct = number.item() == ranks * (ranks + 1) / 2
        large = torch.ones(LARGE_BYTES // 4, device=device)
        latency_s, large_s = (_seconds(partial(dist.all_reduce, each), device) for each in (number, large))
        dist.destroy_process_group()
    except (RuntimeError, OSError, ValueError) as error:
        return {"error": " ".join(str(error).split()), "ranks": ranks}
    return {"correct": correct, "latency_s": latency_s, "bytes_per_s": LARGE_BYTES / large_s, "ranks": ranks}


def _seconds(action: Callable[[], object], device: Any) -> float:
    """Of the fastest of some repeats: what the link can do, not what else happens on the machine."""
    import torch

    fastest = float("inf")
    for _ in range(REPEATS):
        begin = time.monotonic()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        fastest = min(fastest, time.monotonic() - begin)
    return fastest


def describe_torch() -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    nccl = torch.cuda.nccl.version() if dist.is_available() and dist.is_nccl_available() else None
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {"version": torch.__version__, "cuda": torch.version.cuda, "nccl": nccl, "devices": devices}


def main() -> int:
    die_with_parent()
    given = arguments()
    if given.rank is None or given.ranks is None:
        print("--rank and --ranks: not given, and no Slurm task; give both", file=sys.stderr)
        return 2
    say(hostname=socket.gethostname())
    say(torch=describe_torch())
    store, host = meet(given)
    say(host=host)
    say(interface=interface(given.interface, host))
    say(gloo=reduce("gloo", store, given.rank, given.ranks))
    if given.rank < given.nccl:
        say(nccl=reduce("nccl", store, given.rank, given.nccl))
    if given.rank == 0 and given.ranks > 1:
        store.wait([f"done/{rank}" for rank in range(1, given.ranks)])  # the others still need the store
    store.set(f"done/{given.rank}", "")
    return 0


if __name__ == "__main__":
    code = 1
    try:
        code = main()
    except (RuntimeError, OSError, ImportError) as failure:
        print(f"{type(failure).__name__}: {failure}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the clock's thread has nothing left to do
