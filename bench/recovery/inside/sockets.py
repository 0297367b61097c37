"""Waking a thread that waits for the network inside a library: shutting down the library's sockets under it.

gloo has no abort: a rank that waits in a collective for a dead or silent peer stays there until the group's timeout.
With its connections shut down, the collective fails at once. Linux only (/proc/self/fd).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection

INTERNET = (socket.AF_INET, socket.AF_INET6)


def open_sockets() -> frozenset[str]:
    """Identities of this process's sockets: "socket:[INODE]", since descriptors' numbers come back."""
    return frozenset(_identities().values())


def shut_down(but: Collection[str]) -> int:
    """Shut down the connections of this process that are not in `but`, both ways; returns how many.

    Listening sockets are left alone, whose end gloo does not survive. The descriptors stay open; who owns them closes
    them.
    """
    return sum(_shut_down(descriptor) for descriptor, identity in _identities().items() if identity not in but)


def _identities() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the descriptor of the listing itself
        if target.startswith("socket:"):
            found[int(name)] = target
    return found


def _shut_down(descriptor: int) -> bool:
    try:
        duplicate = socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return False  # closed meanwhile
    with duplicate:
        try:
            if duplicate.family not in INTERNET:
                return False
            duplicate.getpeername()  # raises for one that listens or is not connected
            duplicate.shutdown(socket.SHUT_RDWR)
        except OSError:
            return False
    return True
