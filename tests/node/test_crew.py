"""The processes of a node under each answer to a death, with real but tiny processes."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.config import Recovery, Run
from bench.node.board import Board
from bench.node.crew import Crew
from bench.record import Recorder
from bench.recovery.base import Layer, Place, Process
from bench.supervise import TOKEN, Supervisor, with_token

TOKEN_OF_RUN = "token-of-this-crew"
SLEEP, WELL, BADLY = "import time; time.sleep(120)", "pass", "raise SystemExit(3)"
PATIENCE_S = 20.0


def layer_that(answer: str, agent: bool = False) -> Layer:
    class Made(Layer):
        name = "made"
        when_one_dies = answer
        anchors = ("never in a log",) if agent else ()

        def processes(self, place: Place) -> list[Process]:
            raise AssertionError("the crew gets its processes elsewhere")

    return Made()


class Bed:
    def __init__(self, path: Path, answer: str, *scripts: list[str], agent: bool = False, **recovery: Any) -> None:
        """`scripts`: of each local rank, what it does in attempt 0, 1, ...; the last one stands for all later ones."""
        self.scripts = scripts
        self.agent = agent
        self.board = Board("127.0.0.1", 0, serve=True)
        self.supervisor = Supervisor()
        self.recorder = Recorder(path, role="runner", node=0, local_rank=-1)
        node = SimpleNamespace(
            board=self.board, number=0, supervisor=self.supervisor, config=Run(recovery=Recovery(**recovery))
        )
        scene = SimpleNamespace(
            node=node,
            order=0,
            recorder=self.recorder,
            logs_dir=path / "logs",
            environment=lambda: dict(os.environ) | {TOKEN: TOKEN_OF_RUN},
        )
        self.starts: list[tuple[int, int]] = []
        self.crew = Crew(scene, layer_that(answer, agent), self._start)  # type: ignore[arg-type]
        self.crew.start()

    def _start(self, generation: int, attempt: int) -> list[Process]:
        self.starts.append((generation, attempt))
        codes = [script[min(attempt, len(script) - 1)] for script in self.scripts]
        return [
            Process(f"rank-{n}", [sys.executable, "-S", "-c", code], {}, None if self.agent else n)
            for n, code in enumerate(codes)
        ]

    def until(self, reached: Callable[[], bool] | None = None) -> str | None:
        """Look until the crew's part has ended, or `reached` is true."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            status = self.crew.look()
            if status is not None or (reached is not None and reached()):
                return status
            time.sleep(0.005)
        raise AssertionError("nothing happened")

    def events(self, name: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.recorder.path.read_text().splitlines()]
        return [event for event in found if event.get("name") == name]


@pytest.fixture
def bed(tmp_path):
    beds: list[Bed] = []

    def make(answer: str, *scripts: list[str], **options: Any) -> Bed:
        beds.append(Bed(tmp_path, answer, *scripts, **options))
        return beds[-1]

    yield make
    for made in beds:
        assert made.supervisor.end_all() == []
        made.recorder.close()
    assert with_token(TOKEN_OF_RUN) == []


def test_one_death_ends_the_part_where_the_layer_had_its_chance(bed):
    assert bed("end_launch", [BADLY], [SLEEP]).until() == "failed"


def test_survivors_go_on_and_the_part_is_ok_when_the_last_of_them_ends_well(bed):
    made = bed("go_on", [BADLY], [WELL])
    assert made.until() == "ok"
    assert {event["process"]: event["code"] for event in made.events("exited")} == {"rank-0": 3, "rank-1": 0}


def test_without_survivors_a_node_says_so_and_leaves_what_watched_its_ranks_alone(bed):
    watcher = f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {SLEEP!r}]); {BADLY}"
    made = bed("go_on", [watcher], [BADLY])
    assert made.until(lambda: made.board.has("gone/0/0")) is None
    assert made.crew.look() is None
    assert made.crew.without_ranks
    assert len(with_token(TOKEN_OF_RUN)) == 1


def test_a_pod_starts_again_whole_and_waits_twice_as_long_each_time(bed):
    made = bed("restart_node", [BADLY, BADLY, WELL], [SLEEP, SLEEP, WELL], backoff_s=0.05, backoff_cap_s=0.06)
    assert made.until() == "ok"
    assert made.starts == [(0, 0), (0, 1), (0, 2)]
    assert [(event["attempt"], event["scope"]) for event in made.events("restart")] == [(1, "node"), (2, "node")]
    assert [made.crew._backoff_s(k) for k in range(3)] == [0.05, 0.06, 0.06]


def test_a_pod_is_given_up_after_the_configured_number_of_restarts(bed):
    made = bed("restart_node", [BADLY], backoff_s=0.01, max_restarts=2)
    assert made.until() == "failed"
    assert made.starts == [(0, 0), (0, 1), (0, 2)]


def test_a_requeued_node_ends_its_processes_says_so_and_starts_when_all_may(bed):
    made = bed("requeue", [BADLY, WELL], [SLEEP, WELL])
    made.until(lambda: made.board.has("fell/0/0"))
    assert made.starts == [(0, 0)]
    made.board.post("again/0/1", True)
    made.until(lambda: made.board.has("ready/0/1/0"))
    assert made.starts == [(0, 0)]
    assert len(with_token(TOKEN_OF_RUN)) == 0
    made.board.post("go/0/1", True)
    assert made.until() == "ok"
    assert made.starts == [(0, 0), (1, 1)]


def test_a_node_on_which_nobody_failed_is_started_again_with_the_others(bed):
    made = bed("requeue", [SLEEP, WELL])
    made.board.post("again/0/1", True)
    made.board.post("go/0/1", True)
    assert made.until() == "ok"
    assert made.starts == [(0, 0), (1, 1)]
    assert not made.board.has("fell/0/0")


def test_the_agent_of_a_lost_node_starts_again_when_the_node_is_back(bed):
    made = bed("end_launch", [SLEEP, WELL], agent=True, node_return_s=0.05)
    made.crew.lose_node("0-node_loss")
    assert with_token(TOKEN_OF_RUN) == []
    assert made.until() == "ok"
    assert [len(made.events(name)) for name in ("away", "back", "restart")] == [1, 1, 1]


def test_ranks_without_an_agent_do_not_come_back_with_their_node(bed):
    made = bed("go_on", [SLEEP], node_return_s=0.05)
    made.crew.lose_node("0-node_loss")
    assert made.until() == "gone"
    assert made.starts == [(0, 0)]


def test_a_node_that_is_lost_for_good_is_gone_at_once(bed):
    made = bed("restart_node", [SLEEP], node_return_s=None)
    made.crew.lose_node("0-node_loss")
    assert made.until() == "gone"
