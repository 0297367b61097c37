"""Ranks that meet: real processes, a real store, a real reduction; and what is said when one does not come."""

from __future__ import annotations

import io
import json
import socket

import pytest

from bench.doctor import meeting, ranks
from bench.doctor.ask import Answer
from bench.doctor.meeting import Meeting


def test_two_processes_meet_reduce_and_agree_on_clock_and_interface():
    pytest.importorskip("torch")
    found = meeting.hold(None, 0, None)
    assert found.error is None
    assert [each["correct"] for each in found.all("gloo")] == [True, True]
    assert all(each["bytes_per_s"] > 0 and each["latency_s"] > 0 for each in found.all("gloo"))
    assert found.all("interface") == [{"name": "lo", "source": "route"}] * 2
    (clock,) = found.all("clock")
    assert abs(clock["offset_s"]) <= clock["uncertainty_s"]  # one machine has one clock
    assert found.first("torch")["version"]
    assert found.all("nccl") == []
    assert not found.across


@pytest.mark.slow
def test_an_interface_that_is_not_there_fails_with_a_reason_and_not_by_hanging():
    pytest.importorskip("torch")
    found = meeting.hold("eth99", 0, None)
    errors = [each["error"] for each in found.all("gloo")]
    assert errors
    assert all(errors)
    assert found.all("interface") == [{"name": "eth99", "source": "config"}] * 2


def test_what_a_rank_had_said_before_it_failed_counts():
    answers = [Answer([{"torch": {"version": "2"}}], "boom"), Answer([{"gloo": {"correct": True}}], None)]
    found = Meeting.of(answers, across=True)
    assert found.error == "boom"
    assert found.first("torch") == {"version": "2"}
    assert found.first("nccl") is None


def test_the_meeting_on_two_nodes_is_one_srun_with_its_address_in_a_folder_that_both_see(monkeypatch, tmp_path):
    asked = []

    def answer(commands, patience_s):
        asked.extend(commands)
        return [Answer([], None)]

    monkeypatch.setattr(meeting, "ask", answer)
    assert meeting.hold("eth0", 8, tmp_path / "results").across
    (command,) = asked
    assert command[:4] == ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]  # whatever SLURM_NTASKS says
    meet = command[command.index("--meet") + 1]
    assert meet.startswith(str(tmp_path))
    assert command[-4:] == ["--interface", "eth0", "--nccl", "2"]
    assert list(tmp_path.iterdir()) == []


SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
for task in 0 1; do SLURM_PROCID=$task SLURM_NTASKS=2 "$@" & done
wait
"""


@pytest.mark.slow
def test_tasks_of_a_step_find_each_other_by_the_file_and_this_machines_own_addresses(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = meeting.hold(None, 0, tmp_path)
    assert found.error is None
    assert [each["correct"] for each in found.all("gloo")] == [True, True]
    assert len(found.all("clock")) == 1
    assert len(set(found.all("host"))) == 1
    assert found.across


def test_a_line_is_one_write_even_without_a_buffer(monkeypatch):
    written = []

    class Pipe(io.RawIOBase):
        def writable(self):
            return True

        def write(self, some):
            written.append(bytes(some))
            return len(some)

    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(Pipe(), write_through=True))
    ranks.say(host="a")
    assert written == [b'{"host": "a"}\n']


def test_an_address_is_read_whole_or_not_at_all(tmp_path):
    ranks.publish(tmp_path / "address", {"addresses": ["127.0.0.1"], "port": 1})
    assert ranks.read(tmp_path / "address")["port"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["address"]


def test_waiting_for_an_address_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "PATIENCE_S", 0.0)
    with pytest.raises(TimeoutError, match="rank 0 did not write its address"):
        ranks.read(tmp_path / "address")


def test_the_first_address_that_answers_is_taken_and_loopback_is_the_last_resort():
    found = ranks.addresses()
    assert found[-1] == "127.0.0.1"
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert ranks.reachable(["127.0.0.2", "127.0.0.1"], port) == "127.0.0.1"
    with pytest.raises(OSError, match=r"rank 0 is not reached at 127\.0\.0\.1"):
        ranks.reachable(["127.0.0.1"], port)


def test_outside_of_slurm_rank_and_count_must_be_given(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["ranks", "--meet", str(tmp_path / "x")])
    monkeypatch.setattr(ranks, "die_with_parent", lambda: None)
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    monkeypatch.delenv("SLURM_NTASKS", raising=False)
    assert ranks.main() == 2
    assert "give both" in capsys.readouterr().err


def test_a_line_is_one_json_object(capsys):
    ranks.say(gloo={"correct": True})
    assert json.loads(capsys.readouterr().out) == {"gloo": {"correct": True}}
