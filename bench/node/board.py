"""The message board: JSON under keys of one TCP store, hosted by the runner of node 0 for the whole run.

The same server holds the store over which ranks form their process group, so that no rank hosts anything.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch.distributed import PrefixStore, TCPStore

POLL_S = 0.02  # how often a waiting runner looks; nothing that is measured waits on it


class Board:
    """Messages are posted once and never changed. Waiting is interruptible: `alive()` may raise to give up."""

    def __init__(self, host: str, port: int, serve: bool, patience_s: float = 300.0) -> None:
        store = TCPStore(
            host, port, is_master=serve, wait_for_workers=False, timeout=timedelta(seconds=patience_s), use_libuv=True
        )
        self.port = store.port
        self._server = store  # the server lives as long as this object
        self._store = PrefixStore("board", store)

    def post(self, key: str, content: Any) -> None:
        self._store.set(key, json.dumps(content))

    def has(self, key: str) -> bool:
        return bool(self._store.check([key]))

    def read(self, key: str) -> Any:
        return json.loads(self._store.get(key))

    def wait(self, key: str, patience_s: float | None = None, alive: Callable[[], None] = lambda: None) -> Any:
        """The message under `key`. Raises TimeoutError after `patience_s`, and whatever `alive` raises."""
        end = None if patience_s is None else time.monotonic() + patience_s
        while not self.has(key):
            alive()
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"no message {key!r} within {patience_s} s")
            time.sleep(POLL_S)
        return self.read(key)

    def meet(self, name: str, count: int, patience_s: float, alive: Callable[[], None] = lambda: None) -> None:
        """Wait until `count` runners have called this with the same name."""
        if self._store.add(f"{name}/arrived", 1) == count:
            self.post(f"{name}/all", True)
        self.wait(f"{name}/all", patience_s, alive)
