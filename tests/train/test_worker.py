"""What a rank does in which order; whole ranks run in the tests of launches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from bench.faults.base import InjectedFault
from bench.recovery.inside.base import Attempt
from bench.train import worker


class Layer:
    """Notes the sections that are opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.opened.append(name)
        yield


class AtOnce:
    """A fault that strikes at the first moment there is."""

    def reach(self, moment: str, step: int) -> None:
        raise InjectedFault(f"at {moment}, after {step} steps")


def test_a_fault_in_a_recovery_strikes_in_the_setup_section_and_before_the_rank_joins_the_others(monkeypatch):
    joined: list[object] = []
    monkeypatch.setattr(worker, "join", lambda *arguments: joined.append(arguments))
    rank = object.__new__(worker.Rank)
    rank.settings, rank.device, rank.inside = SimpleNamespace(config=None), torch.device("cpu"), Layer()
    monkeypatch.setattr(rank, "_strikes", lambda attempt: AtOnce())
    with pytest.raises(InjectedFault, match="at recovery, after 0 steps"):
        rank.train(Attempt(0, "first", 0, 2))
    assert rank.inside.opened == ["setup"]
    assert not joined
