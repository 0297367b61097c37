"""Results read back from disk and accounted anew, from their events alone."""

from __future__ import annotations

from pathlib import Path

from bench.errors import BadInput
from bench.measure.accounted import Accounted
from bench.measure.events import read_launches
from bench.results import ResultFolder


def read_account(path: Path, key: str) -> Accounted:
    """The result at `path`, as its events tell it now; `key`: the option that named it. Raises BadInput."""
    folder = ResultFolder.open(path, key)
    try:
        launches = read_launches(folder.path / "launches")
    except ValueError as error:
        raise BadInput(f"{key}: {path}: {error}") from None
    if not launches:
        raise BadInput(
            f"{key}: {path} holds no launches, so there is nothing to account; give a result with its events"
        )
    return Accounted.of(folder.read_run(), launches)
