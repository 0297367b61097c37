"""Probes: real processes whose lines are read, whose failure has a reason, and of which nothing is left."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

from bench.doctor.ask import ask, module

SAY = "import json, os; print('hello'); print(json.dumps({'pid': os.getpid()})); print('[1]')"
HANG = "import json, time; print(json.dumps({'begun': True}), flush=True); time.sleep(60)"
FORKS = """
import json, os, time
child = os.fork()
if child == 0:
    time.sleep(60)
print(json.dumps({"child": child}), flush=True)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_objects_are_read_and_whatever_else_was_printed_is_left_out():
    (answer,) = ask([python(SAY)], 20)
    assert answer.error is None
    assert [sorted(line) for line in answer.lines] == [["pid"]]
    assert answer.find("pid") > 0
    assert answer.find("other") is None


def test_probes_run_side_by_side_and_answer_in_order(tmp_path):
    meet = "import sys, pathlib, time; p = pathlib.Path(sys.argv[1]); (p / sys.argv[2]).touch()\n"
    meet += "while len(list(p.iterdir())) < 2: time.sleep(0.01)\nprint('{\"me\": ' + sys.argv[2] + '}')"
    answers = ask([[*python(meet), str(tmp_path), str(number)] for number in range(2)], 20)
    assert [answer.find("me") for answer in answers] == [0, 1]


def test_a_probe_that_hangs_is_ended_and_what_it_had_said_is_kept():
    (answer,) = ask([python(HANG)], 2)
    assert answer.find("begun") is True
    assert answer.error == "no answer within 2 s"


def test_a_failure_is_told_by_its_last_words_or_its_code():
    (raised, silent) = ask([python("raise OSError('no such device')"), python("raise SystemExit(3)")], 20)
    assert raised.error == "OSError: no such device"
    assert silent.error == "ended with exit code 3"


def test_the_children_of_a_probe_end_with_it():
    (answer,) = ask([python(FORKS)], 20)
    try:
        psutil.Process(answer.find("child")).wait(timeout=5)  # it was told to, and may still be on its way
    except psutil.NoSuchProcess:
        pass
    assert not psutil.pid_exists(answer.find("child"))


def test_a_probe_finds_the_suite_from_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert module("bench.doctor.x", 1, Path("y"))[1:] == ["-m", "bench.doctor.x", "1", "y"]
    (answer,) = ask([python("import bench, json; print(json.dumps({'file': bench.__file__}))")], 20)
    assert answer.find("file").endswith("__init__.py")


def test_variables_reach_the_probe():
    (answer,) = ask([python("import os, json; print(json.dumps({'v': os.environ['NAMED']}))")], 20, {"NAMED": "x"})
    assert answer.find("v") == "x"
