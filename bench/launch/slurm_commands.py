"""Slurm's client programs: every call has an end, every answer is text that is read here and nowhere else.

Clients hang against a controller that is away, so each call is given a time. Text and not --json: its layout differs
between versions, `Key=Value` has stayed. Accounting (sacct) is not needed, for many sites run without it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

PATIENCE_S = 30.0  # of one call
# States in which a job still holds or awaits nodes; in every other one it has come to its end.
ALIVE = {
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "SIGNALING",
    "RESIZING",
    "STAGE_OUT",
}
ALIVE |= {"REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
# Why a pending job will not start until somebody changes something: nothing that waiting could bring about.
HOPELESS = {"BadConstraints", "JobHeldAdmin", "PartitionNodeLimit", "PartitionTimeLimit", "DependencyNeverSatisfied"}
HOPELESS |= {"InvalidAccount", "InvalidQOS", "AccountNotAllowed", "QOSNotAllowed"}
HOPELESS |= {"launch_failed_requeued_held", "job_requeued_in_held_state"}


class Unanswered(Exception):
    """The controller did not answer, or not in time: nothing is known."""


class Refused(Exception):
    """Slurm answered, and said no. The text is its own, on one line."""


@dataclass(frozen=True)
class JobState:
    """A job as `scontrol show job` has it. `code` is the batch script's exit code or minus the signal that ended it."""

    state: str
    reason: str | None = None
    code: int = 0
    restarts: int = 0
    nodes: str | None = None
    start: str | None = None  # local time; of a pending job Slurm's estimate, None where it has none
    headless: bool = False  # it lost the node that ran its script: Slurm keeps the others until the time limit

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    @property
    def hopeless(self) -> bool:
        return self.state == "PENDING" and self.reason in HOPELESS


def call(*words: str, given: str | None = None, patience_s: float = PATIENCE_S) -> str:
    """Output of a client program, `given` its input. Raises Unanswered and Refused."""
    try:
        done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=patience_s, check=False)
    except subprocess.TimeoutExpired:
        raise Unanswered(f"{words[0]} had no answer within {patience_s:g} s") from None
    except OSError as error:
        raise Unanswered(f"{words[0]} cannot be started ({error.strerror})") from None
    if done.returncode == 0:
        return done.stdout
    text = complaint(done.stderr) or f"{words[0]} ended with {done.returncode}"
    raise (Unanswered if unreachable(done.stderr) else Refused)(text)


def complaint(stderr: str) -> str:
    """A client's error messages on one line, without the program's name before each."""
    lines = (re.sub(r"^\w+: (?:error: |fatal: )?", "", line).strip() for line in stderr.splitlines())
    return "; ".join(dict.fromkeys(line for line in lines if line))


def unreachable(stderr: str) -> bool:
    """Whether the error is about the way to the controller, and says nothing about what was asked."""
    signs = ("contact slurm controller", "Socket timed out", "Connection refused", "configuration source")
    return any(sign in stderr for sign in signs)


def available() -> bool:
    return shutil.which("sbatch") is not None and shutil.which("scontrol") is not None


# --- jobs
def submit(script: str) -> str:
    """Hand in the job script at that path; the new job's id. Raises Unanswered and Refused."""
    return parse_submission(call("sbatch", "--parsable", script))


def parse_submission(text: str) -> str:
    """The id in sbatch's `ID` or `ID;CLUSTER`, which a site's own messages may come before. Raises Refused."""
    ids = [found[1] for line in text.splitlines() if (found := re.fullmatch(r"(\d+)(?:;\S+)?", line.strip()))]
    if not ids:
        raise Refused(f"sbatch gave no job id: {' '.join(text.split())[:200]}")
    return ids[-1]


def refusal(script: str) -> str | None:
    """Why Slurm would not take this job script (its text), found without submitting it; None: it would.

    Nodes that are away look to the test like nodes that do not exist, while a job may wait for them in the queue.
    """
    try:
        call("sbatch", "--test-only", given=script)
    except Refused as refused:
        undecided = re.search("not available|busy", str(refused)) is not None and _nodes_away()
        return None if undecided else str(refused)
    return None


def _nodes_away() -> bool:
    try:
        return bool(call("sinfo", "--noheader", "--states=down,drain,fail,maint", "--format=%n").strip())
    except Refused:
        return False


def job_state(job: str) -> JobState | None:
    """The job's state now; None for one that Slurm no longer knows (ended minutes ago). Raises Unanswered."""
    try:
        return parse_job(call("scontrol", "-o", "show", "job", job))
    except Refused as refused:
        if "nvalid job id" in str(refused):
            return None
        raise Unanswered(str(refused)) from None


def parse_job(text: str) -> JobState:
    """From `scontrol -o show job`. Raises Unanswered where no state is in it."""
    state = _value(text, "JobState")
    if state is None:
        raise Unanswered(f"scontrol told no state: {' '.join(text.split())[:200]}")
    status, _, signum = (_value(text, "ExitCode") or "0:0").partition(":")
    nodes, first = _value(text, "NodeList"), _value(text, "BatchHost")
    return JobState(
        state=state,
        reason=_value(text, "Reason"),
        code=-int(signum) if signum not in ("", "0") else int(status),
        restarts=int(_value(text, "Restarts") or 0),
        nodes=nodes,
        start=_value(text, "StartTime"),
        headless=state == "RUNNING" and first is not None and first not in hosts(nodes or first),
    )


def _value(text: str, key: str) -> str | None:
    found = re.search(rf"(?:^|\s){key}=(\S*)", text)
    return None if found is None or found[1] in ("", "(null)", "None", "Unknown", "N/A") else found[1]


def hosts(text: str) -> list[str]:
    """The names in Slurm's short form: "a[1-2,07],b" are a1, a2, a07 and b."""
    found = re.search(r"([^,\[\]]*)\[([^\]]*)\]([^,]*)", text)
    if found is None:
        return [name for name in text.split(",") if name]
    before, ranges, rest = hosts(text[: found.start()]), found[2].split(","), text[found.end() :]
    tails = hosts(found[3]) or [""]
    numbers = [number for each in ranges for number in _numbers(each)]
    return [*before, *(f"{found[1]}{number}{tail}" for number in numbers for tail in tails), *hosts(rest)]


def _numbers(text: str) -> list[str]:
    """ "08-10": 08, 09, 10."""
    first, _, last = text.partition("-")
    return [f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1)]


def step_alive(step: str) -> bool:
    """Whether a step (JOB.STEP) still runs. Raises Unanswered."""
    try:
        return bool(call("squeue", "--noheader", "--steps", step, "--format=%i").strip())
    except Refused:
        return False  # squeue's word for a step that is gone


def ask_to_end(target: str) -> None:
    """SIGTERM to the processes of a job's steps, or of one step, and to nothing else. Raises Unanswered and Refused."""
    call("scancel", "--ctld", "--signal=TERM", target)


def cancel(target: str) -> None:
    """End a job or step for good. Raises Unanswered and Refused."""
    call("scancel", target)


# --- the allocation that this process is in
def tasks_per_node(text: str) -> list[int]:
    """SLURM_TASKS_PER_NODE, "2(x3),1", as one number a node."""
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if found is None:
            return []
        counts += [int(found[1])] * int(found[2] or 1)
    return counts
