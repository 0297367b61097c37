"""The counting program of tests/recovery on the bare library: no recorder, no layer, nothing of the suite in between.

Run as a rank with RANK, WORLD_SIZE and BARE=path of a JSON: ports, folder, steps, at_step, and the Wrapper's times.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from nvidia_resiliency_ext import inprocess

SETTINGS = json.loads(Path(os.environ["BARE"]).read_text())
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Outside(inprocess.store.TCPStore):
    TCP_STORE_HOST_RANK = -1


def sockets() -> dict[int, str]:
    found = {}
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return {number: target for number, target in found.items() if target.startswith("socket:")}


class AbortGloo(inprocess.abort.Abort):
    others: frozenset[str] = frozenset()

    def __call__(self, state):
        for number, identity in sockets().items():
            if identity not in self.others:
                with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
                    connection.getpeername()
                    connection.shutdown(socket.SHUT_RDWR)
        if dist.is_initialized():
            dist.destroy_process_group()
        return state


def note(name: str) -> None:
    with open(Path(SETTINGS["folder"]) / f"{name}-{RANK}", "a") as file:
        file.write(f"{time.monotonic()}\n")


def train(call: inprocess.CallWrapper = None) -> None:
    AbortGloo.others = frozenset(sockets().values())
    base = dist.TCPStore("127.0.0.1", SETTINGS["base_port"], is_master=False)
    store = dist.PrefixStore(str(call.iteration), base)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=WORLD, timeout=timedelta(seconds=60))
    for step in range(SETTINGS["steps"]):
        if step == SETTINGS["at_step"] and RANK == 1 and call.iteration == 0:
            note("strike")
            raise RuntimeError("struck")
        dist.all_reduce(torch.ones(1))
        if step == 0:
            note("first")
        call.ping()
    dist.destroy_process_group()


train.__annotations__["call"] = inprocess.CallWrapper  # the library reads the annotation as an object

if __name__ == "__main__":
    torch.set_num_threads(1)
    wrapper = inprocess.Wrapper(
        store_factory=Outside,
        store_kwargs={"host_name": "127.0.0.1", "port": SETTINGS["wrapper_port"]},
        abort=AbortGloo(),
        health_check=inprocess.health_check.CudaHealthCheck(),
        **{name: timedelta(seconds=value) for name, value in SETTINGS["times"].items()},
    )
    wrapper(train)()
    sys.stdout.flush()
    os._exit(0)
