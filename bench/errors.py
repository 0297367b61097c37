"""The errors that a user can mend; the command line prints them as one line and exits with 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInput(Exception):
    """What the user gave cannot work. The text names the field, the rule and the remedy, on one line."""


def near(name: str, known: Iterable[str]) -> str:
    """The part of a message that suggests known names close to `name`, or lists them all."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(names)}" if len(names) <= 20 else "it is not close to any known one"
