"""What can be wrong with the order of the events of one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Event = dict[str, Any]

# What can be wrong with a file; the value counts how often.
#   torn          the last line has no end: the writer was killed in it       damaged    another line is no event
#   gap           sequence numbers that no damaged line explains are missing   doubled   an event stands twice
#   out_of_order  sequence or time runs backwards                              overlap   a span begins inside another
#   unclosed      a span was entered and another event of its thread followed without its end
PROBLEMS = ("torn", "damaged", "gap", "doubled", "out_of_order", "overlap", "unclosed")


def problems(events: Sequence[Event], damaged: int) -> dict[str, int]:
    """Problems of the order of events; a damaged line explains one missing number or one missing end."""
    seq = np.array([event["seq"] for event in events], dtype=np.int64)
    distinct = len(np.unique(seq))
    found = _span_problems(events)
    found["gap"] = int(seq.max()) + 1 - distinct - damaged
    found["doubled"] = max(found["doubled"], len(seq) - distinct)
    found["out_of_order"] += int((np.diff(seq) < 0).sum())
    found["unclosed"] -= damaged
    found["damaged"] = damaged
    return {name: found[name] for name in PROBLEMS if found[name] > 0}


def _span_problems(events: Iterable[Event]) -> Counter[str]:
    """Spans of one thread follow each other: begin, span, begin, span ...; instants may stand anywhere, dated back."""
    found: Counter[str] = Counter()
    entered: Event | None = None
    previous: Event | None = None
    end = -np.inf
    for event in events:
        kind = event["kind"]
        if kind == "begin":
            found["unclosed"] += entered is not None
            found["out_of_order"] += event["t"] < end
            entered = event
        elif kind == "span":
            t0, t1 = event["t0"], event["t1"]
            found["out_of_order"] += t1 < t0
            found["unclosed"] += entered is not None and (entered["name"] != event["name"] or entered["t"] != t0)
            if t0 < end and previous is not None:
                same = previous["name"] == event["name"] and previous["t0"] == t0 and previous["t1"] == t1
                found["doubled" if same else "out_of_order" if t1 <= previous["t0"] else "overlap"] += 1
            entered, previous, end = None, event, t1 if t1 > end else end
        elif kind == "instant" and event["name"] == "attempt":
            entered = None  # an asynchronous exception may have left the span before anything could be written
    return found


def interrupted(events: Iterable[Event]) -> list[Event]:
    """Spans without an end that a restart in the same process cut off, as spans marked "aborted" until that restart."""
    found: list[Event] = []
    entered: Event | None = None
    for event in events:
        if event["kind"] == "begin":
            entered = event
        elif event["kind"] == "span":
            entered = None
        elif event["kind"] == "instant" and event["name"] == "attempt" and entered is not None:
            times = {"t0": entered["t"], "t1": event["t"]}
            found.append({"kind": "span", "name": entered["name"], "seq": entered["seq"], "aborted": True} | times)
            entered = None
    return found
