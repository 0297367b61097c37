"""Writing events: the instrument inside workers and checkpoint writers.

A line is one write(2) to a file opened for appending, so a process killed at any moment leaves every finished event
behind, and at worst one torn last line, which readers drop and count. Costs a few microseconds an event.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.schema import EVENT_VERSION

Fence = Callable[[], None]
clock = time.monotonic  # one clock for all processes of a host
SPIN_S = 0.002  # a sleep may overshoot by about a millisecond on a busy machine; the rest is waited for in a loop


def wait_until(t: float) -> None:
    """Return at monotonic time `t`, to within microseconds on an idle core."""
    while (left_s := t - clock()) > 0:
        if left_s > SPIN_S:
            time.sleep(left_s - SPIN_S)


def process_start_ticks(pid: int | str = "self") -> int:
    """Start time of a process in clock ticks since boot (field 22 of /proc/PID/stat); with the pid it names one."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rsplit(")", 1)[1].split()[19])


class Span:
    """A timed block of the recorder's thread, recorded when it is left; one that an exception left says `aborted`.

    What the block puts into the yielded dict is recorded with it. `fence` runs inside, at both ends: where work is only
    queued (CUDA), it waits until that work is done, and its cost is the instrument's.
    """

    __slots__ = ("_attributes", "_fence", "_name", "_opened", "_recorder", "_t0")

    def __init__(
        self, recorder: Recorder, name: str, attributes: dict[str, Any], fence: Fence | None, opened: bool
    ) -> None:
        self._recorder, self._name, self._attributes = recorder, name, attributes
        self._fence, self._opened = fence, opened

    def __enter__(self) -> dict[str, Any]:
        if self._fence is not None:
            self._fence()
        self._t0 = clock()
        if self._opened:
            self._recorder.begin(self._name, self._t0)
        return self._attributes

    def __exit__(self, *exception: object) -> None:
        if exception[0] is not None:
            self._attributes["aborted"] = True
        elif self._fence is not None:
            self._fence()
        self._recorder.write({"kind": "span", "name": self._name, "t0": self._t0, "t1": clock(), **self._attributes})


class Recorder:
    """Appends the events of one process to one file.

    `meta` holds what does not change in the life of the process: role, launch, node, local_rank, rank, world_size,
    incarnation, token. The file's name is unique per process, so no incarnation writes into another's file.
    """

    def __init__(self, directory: Path, **meta: Any) -> None:
        pid, started = os.getpid(), process_start_ticks()
        name = f"{meta['role']}-n{meta['node']}-r{meta['local_rank']}-{pid}-{started}.jsonl"
        self.path = Path(directory) / name
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._written: list[int] = []  # bytes of each event
        self.write(
            {"kind": "meta", "version": EVENT_VERSION, "pid": pid, "pid_start": started}
            | meta
            | {"mono": clock(), "wall": time.time()}
        )

    def write(self, event: dict[str, Any]) -> None:
        """Append an event. An exception from another thread (in-process restart) finds it written and counted, or not
        at all: both happen in one call that the interpreter does not interrupt."""
        event["seq"] = len(self._written)
        self._written.extend(map(os.write, (self._file,), (encode(event),)))

    def begin(self, name: str, t: float) -> None:
        self.write({"kind": "begin", "name": name, "t": t})

    def instant(self, name: str, t: float | None = None, **attributes: Any) -> None:
        self.write({"kind": "instant", "name": name, "t": clock() if t is None else t, **attributes})

    def span(self, name: str, fence: Fence | None = None, opened: bool = True, **attributes: Any) -> Span:
        """Time a block (see Span). `opened`: its begin is recorded too, so that a death inside of it shows."""
        return Span(self, name, attributes, fence, opened)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


# Between two events a training step has emptied the caches, and json.dumps touches so much code and data that it then
# takes 70 microseconds; filling in a template that was made for the first event of its shape takes 30.
_templates: dict[tuple[Any, ...], str] = {}
_quoted: dict[str, str] = {}
_FORMATS = {int: "%d", float: "%r", str: "%s"}


def encode(event: dict[str, Any]) -> bytes:
    """The event as one line of JSON. Numbers must be finite."""
    values = tuple(event.values())
    shape = (*event, *map(type, values))
    template = _templates.get(shape)
    if template is None:
        template = _templates[shape] = _template(event)
    if template == "":
        return json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    return (template % tuple([_quote(v) if type(v) is str else v for v in values])).encode()


def _template(event: dict[str, Any]) -> str:
    """ "" for a shape with other values than numbers and strings, which is rare and left to json."""
    if any(type(value) not in _FORMATS for value in event.values()):
        return ""
    fields = [f"{json.dumps(key).replace('%', '%%')}:{_FORMATS[type(value)]}" for key, value in event.items()]
    return "{" + ",".join(fields) + "}\n"


def _quote(text: str) -> str:
    quoted = _quoted.get(text)
    if quoted is None:
        quoted = json.dumps(text)
        if len(_quoted) < 1000:  # names and arms; not every text of a long run
            _quoted[text] = quoted
    return quoted
