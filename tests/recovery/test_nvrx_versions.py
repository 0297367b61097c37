from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from bench.recovery import nvrx_versions

# Lines as the launchers of both versions write them.
OLD = [
    "[2026-01-01 10:00:07,270] [WARNING] [RankMonServer22942@node:0] FT timeout elapsed.",
    "[2026-01-01 10:00:07,368] [ERROR] [ft_launcher22906@node] failed (exitcode: -9) local_rank: 0 (pid: 1) of binary",
    "[2026-01-01 10:00:07,368] [INFO] [ft_launcher1@node] [default] Worker group FAILED. 3/3 attempts left; "
    "will restart worker group",
    "[2026-01-01 10:00:57,472] [INFO] [ft_launcher1@node] 3/3 restart attempts left; restarting worker group...",
]
NEW = [
    "2026-01-01 10:00:34,992 [INFO] [node] profiling.py:93   - Cycle: 1 Event: failure_detected Node: n_1_0 Rank: 0",
    "E0101 10:00:34.991000 1 api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 20262) of binary: python",
]
CALM = [
    "[2026-01-01 10:00:29,172] [INFO] [ft_launcher1@node] The node 'n_1_0' has joined round 1 of the rendezvous 'x'",
    "[2026-01-01 10:00:29,172] [INFO] [RankMonServer1@node:1] Started periodic restart check.",
    "[2026-01-01 10:00:29,172] [INFO] [ft_launcher1@node] [default] worker group successfully finished.",
]


@pytest.mark.parametrize(("number", "lines"), [("0.4.1", OLD), ("0.7.0", NEW)])
def test_the_anchors_know_the_lines_that_tell_of_a_failure_from_those_that_do_not(number, lines):
    pattern = re.compile("|".join(nvrx_versions.agent_anchors(number)))
    assert all(pattern.search(line) for line in lines)
    assert not any(pattern.search(line) for line in CALM)


@pytest.mark.parametrize(
    ("number", "modern"), [("0.4.1", False), ("0.6.9", False), ("0.7.0", True), ("0.10.0rc1", True), (None, False)]
)
def test_versions_are_compared_by_number(number, modern):
    assert nvrx_versions.modern(number) is modern


def test_added_checks_of_gpus_are_taken_back_on_cpu_only():
    wrapper = SimpleNamespace(health_check="given", restart_health_check="given and GPUs")
    nvrx_versions.mend_wrapper(wrapper, "cuda")
    assert wrapper.restart_health_check == "given and GPUs"
    nvrx_versions.mend_wrapper(wrapper, "cpu")
    assert wrapper.restart_health_check == "given"


def test_a_wrapper_without_added_checks_is_left_as_it_is():
    wrapper = SimpleNamespace(health_check="given")
    nvrx_versions.mend_wrapper(wrapper, "cpu")
    assert vars(wrapper) == {"health_check": "given"}
