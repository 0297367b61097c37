"""Slurm's clients: what their text means, and that every call has an end. The programs are small real scripts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.launch import slurm_commands
from bench.launch.slurm_commands import JobState, Refused, Unanswered

# As scontrol -o show job of Slurm 22.05 has it, shortened.
RUNNING = (
    "JobId=7 JobName=bench-ckpt_8node UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901753 Nice=0 "
    "JobState=RUNNING Reason=None Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:00:03 TimeLimit=00:16:00 StartTime=2026-01-05T10:00:00 EndTime=2026-01-05T10:16:00 "
    "Partition=bench ReqNodeList=(null) ExcNodeList=(null) NodeList=n[1-8] BatchHost=n1 NumNodes=8 "
    "Command=/shared/results/a b/slurm/job.sh WorkDir=/shared StdOut=/shared/job-7.out"
)


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Put a program of that name, with that shell text, before all others."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def make(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return make


def job(**changed: str) -> str:
    text = RUNNING
    for key, value in changed.items():
        old = next(word for word in text.split() if word.startswith(f"{key}="))
        text = text.replace(f" {old} ", f" {key}={value} ")
    return text


# --- text
def test_a_running_job_is_read_from_its_line():
    found = slurm_commands.parse_job(RUNNING)
    assert found == JobState("RUNNING", None, 0, 0, "n[1-8]", "2026-01-05T10:00:00")
    assert found.alive
    assert not found.hopeless


def test_a_pending_job_has_its_reason_and_no_start_that_slurm_does_not_know():
    text = job(JobState="PENDING", Reason="Resources", NodeList="(null)", StartTime="Unknown")
    assert slurm_commands.parse_job(text) == JobState("PENDING", "Resources", 0, 0, None, None)


@pytest.mark.parametrize(("written", "code"), [("0:0", 0), ("1:0", 1), ("130:0", 130), ("0:15", -15), ("0:125", -125)])
def test_an_exit_code_is_the_scripts_or_minus_the_signal_that_ended_it(written, code):
    assert slurm_commands.parse_job(job(ExitCode=written)).code == code


@pytest.mark.parametrize(
    "state", ["COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "CANCELLED", "BOOT_FAIL"]
)
def test_a_job_that_has_ended_however_is_not_alive(state):
    assert not slurm_commands.parse_job(job(JobState=state)).alive


@pytest.mark.parametrize("state", ["PENDING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED"])
def test_a_job_that_awaits_or_holds_nodes_is_alive(state):
    assert slurm_commands.parse_job(job(JobState=state)).alive


def test_a_pending_job_is_hopeless_only_for_reasons_that_waiting_does_not_change():
    assert JobState("PENDING", "PartitionTimeLimit").hopeless
    assert not JobState("PENDING", "Priority").hopeless
    assert not JobState("PENDING", "JobHeldUser").hopeless
    assert not JobState("RUNNING", "PartitionTimeLimit").hopeless


@pytest.mark.parametrize(
    ("short", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("a[08-10,12],b", ["a08", "a09", "a10", "a12", "b"]),
        ("x,a[1-2]", ["x", "a1", "a2"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("", []),
    ],
)
def test_slurms_short_form_of_names_is_spelt_out(short, names):
    assert slurm_commands.hosts(short) == names


def test_a_job_that_lost_the_node_of_its_script_is_headless_and_one_that_lost_another_is_not():
    assert not slurm_commands.parse_job(job(NodeList="n[1,3-8]")).headless
    assert slurm_commands.parse_job(job(NodeList="n[2-8]")).headless
    assert not slurm_commands.parse_job(job(NodeList="n[2-8]", JobState="COMPLETING")).headless
    assert not slurm_commands.parse_job(job(NodeList="(null)", JobState="PENDING")).headless


def test_restarts_are_counted():
    assert slurm_commands.parse_job(job(Restarts="2")).restarts == 2


def test_an_answer_without_a_state_is_no_answer():
    with pytest.raises(Unanswered, match="told no state: garbage"):
        slurm_commands.parse_job("garbage")


@pytest.mark.parametrize("text", ["12\n", "12;cluster\n", "Welcome to the site!\nfree hours: 200\n12\n"])
def test_a_submission_gives_its_id_whatever_the_site_prints_before_it(text):
    assert slurm_commands.parse_submission(text) == "12"


def test_a_submission_without_an_id_is_refused():
    with pytest.raises(Refused, match="gave no job id: over quota"):
        slurm_commands.parse_submission("over\nquota\n")


@pytest.mark.parametrize(
    ("text", "counts"), [("1", [1]), ("1(x2)", [1, 1]), ("2(x2),1", [2, 2, 1]), ("8", [8]), ("", []), ("many", [])]
)
def test_tasks_per_node_are_read_as_one_number_a_node(text, counts):
    assert slurm_commands.tasks_per_node(text) == counts


def test_a_clients_complaints_are_one_line_without_its_name():
    text = "sbatch: error: invalid partition specified: gpu\nsbatch: error: Batch job submission failed\n"
    assert slurm_commands.complaint(text) == "invalid partition specified: gpu; Batch job submission failed"


# --- calls
def test_a_client_that_hangs_is_given_up(client):
    client("scontrol", "exec sleep 60")
    with pytest.raises(Unanswered, match=r"scontrol had no answer within 0\.2 s"):
        slurm_commands.call("scontrol", "ping", patience_s=0.2)


def test_a_client_that_is_not_there_is_no_answer(tmp_path):
    with pytest.raises(Unanswered, match="cannot be started"):
        slurm_commands.call(str(tmp_path / "scontrol"))


def test_a_controller_that_is_away_is_no_answer_and_a_no_is_a_no(client):
    client("scontrol", "echo 'scontrol: error: Unable to contact slurm controller (connect failure)' >&2; exit 1")
    with pytest.raises(Unanswered, match="Unable to contact slurm controller"):
        slurm_commands.job_state("7")
    client("scancel", "echo 'scancel: error: Kill job error on job id 7: Access denied' >&2; exit 1")
    with pytest.raises(Refused, match="Access denied"):
        slurm_commands.cancel("7")


def test_a_job_that_slurm_no_longer_knows_has_no_state(client):
    client("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert slurm_commands.job_state("7") is None


def test_any_other_no_to_a_look_says_nothing_about_the_job(client):
    client("scontrol", "echo 'slurm_load_jobs error: Protocol authentication error' >&2; exit 1")
    with pytest.raises(Unanswered, match="Protocol authentication error"):
        slurm_commands.job_state("7")


def test_a_submission_hands_over_the_scripts_path_and_reads_the_id(client, tmp_path):
    client("sbatch", f'echo "$@" >{tmp_path}/words; echo 41')
    assert slurm_commands.submit("some/job.sh") == "41"
    assert (tmp_path / "words").read_text() == "--parsable some/job.sh\n"


def test_a_job_that_slurm_would_refuse_is_known_before_it_is_submitted(client, tmp_path):
    client("sbatch", f"cat >{tmp_path}/given; echo 'sbatch: error: invalid partition specified: no' >&2; exit 1")
    assert slurm_commands.refusal("#!/bin/bash\n") == "invalid partition specified: no"
    assert (tmp_path / "given").read_text() == "#!/bin/bash\n"


@pytest.mark.parametrize(("away", "refused"), [("n2", False), ("", True)])
def test_nodes_that_are_away_are_a_reason_to_queue_and_nodes_that_there_are_not_a_reason_to_refuse(
    client, away, refused
):
    client("sbatch", "echo 'allocation failure: Requested node configuration is not available' >&2; exit 1")
    client("sinfo", f"echo {away}")
    assert (slurm_commands.refusal("#!/bin/bash\n") is not None) is refused


def test_an_orderly_end_is_a_signal_to_the_steps_and_an_end_for_good_is_none(client, tmp_path):
    client("scancel", f'echo "$@" >>{tmp_path}/words')
    slurm_commands.ask_to_end("7")
    slurm_commands.cancel("7")
    assert (tmp_path / "words").read_text() == "--ctld --signal=TERM 7\n7\n"


@pytest.mark.parametrize(("text", "alive"), [("echo 7.0", True), ("true", False), ("exit 1", False)])
def test_a_step_is_alive_while_squeue_lists_it(client, text, alive):
    client("squeue", text)
    assert slurm_commands.step_alive("7.0") is alive
