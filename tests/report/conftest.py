"""One result with saves and one with faults, accounted once for all tests of reports."""

from __future__ import annotations

import pytest

from bench.measure.accounted import Accounted
from bench.report.data import read_result
from tests.report.made import checkpoint_result, recovery_result


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Accounted:
    return read_result(checkpoint_result(tmp_path_factory.mktemp("checkpoints") / "result"), "run")


@pytest.fixture(scope="session")
def recoveries(tmp_path_factory: pytest.TempPathFactory) -> Accounted:
    return read_result(recovery_result(tmp_path_factory.mktemp("recoveries") / "result"), "run")
