"""cluster=slurm against a real Slurm: controller and daemons on this machine, each node a PID namespace of its own.

The runs measure as little as they can: what matters is that jobs are submitted, end, die and are taken up again.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "engines" / "slurm_loopback.sh"
SMALL = ["model=small", "model.layers=1", "data=source_text", "train.seq_len=16", "train.batch_size=1", "device=cpu"]
SMALL += ["ranks_per_node=1", "launches=1", "cycles=3", "design.control_steps=2", "train.compute_dtype=float32"]
SMALL += ["checkpoint.arms=[none,sync_local]", "checkpoint.verify_content=false"]
STRUCK = ["recovery.only=[]", "recovery.layers=[requeue]", "faults.given=[{kind: sigkill, rank: 1}]"]
STRUCK += ["model.layers=1", "train.seq_len=16", "train.batch_size=1", "checkpoint.interval=6"]


def missing() -> str | None:
    """Why no Slurm can be brought up here; None: it can."""
    where = os.environ["PATH"] + ":/usr/sbin:/sbin"
    absent = [name for name in ("slurmctld", "slurmd", "munged", "srun") if shutil.which(name, path=where) is None]
    if absent:
        return f"{', '.join(absent)} not installed (apt-get install slurm-wlm munge)"
    namespace = subprocess.run(["unshare", "--pid", "--uts", "--fork", "true"], capture_output=True, check=False)
    return None if namespace.returncode == 0 else "no PID namespace can be made here (needs root)"


REASON = missing()
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.skipif(REASON is not None, reason=REASON or "")]


class Loopback:
    """A Slurm, and a working directory from which runs are submitted to it."""

    def __init__(self, folder: Path, place: Path) -> None:
        self.folder = folder  # short: munge's socket must have a path of less than 108 characters
        self.place = place
        self.env = os.environ | {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        }
        self.env.pop("SLURM_JOB_ID", None)
        self.drivers: list[subprocess.Popen[str]] = []

    def control(self, *words: str | int) -> None:
        command = ["bash", str(SCRIPT), str(words[0]), str(self.folder), *map(str, words[1:])]
        log = self.folder / "control.log"  # daemons keep the output open: a pipe would never end
        with open(log, "ab") as output:
            code = subprocess.run(command, stdout=output, stderr=output, check=False, timeout=90).returncode
        assert code == 0, log.read_text()

    def ask(self, *words: str) -> str:
        return subprocess.run(words, env=self.env, capture_output=True, text=True, check=True, timeout=30).stdout

    def jobs(self) -> list[str]:
        return self.ask("squeue", "--noheader", "--format=%i %T %D %b").splitlines()

    # --- runs
    def start(self, *words: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        new = ["cluster=slurm", "cluster.poll_s=0.5", "machine=box", f"work_dir={self.place / 'work'}"]
        resumed = words[0].startswith("resume=")  # as it was configured
        command = [*before, sys.executable, "-m", "bench", "run", *([] if resumed else new), *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.drivers.append(subprocess.Popen(command, cwd=self.place, env=self.env, text=True, **pipes))
        return self.drivers[-1]

    def finish(self, process: subprocess.Popen[str], code: int | None = None) -> str:
        """What it printed. Without a `code` the run must be carried through: 0, or 1 where noise made it invalid."""
        out, _ = process.communicate(timeout=200)
        expected = (0, 1) if code is None else (code,)
        assert process.returncode in expected, out
        assert code is not None or set(self.statuses().values()) == {"ok"}, out
        return out

    def run(self, *words: str, code: int | None = None, before: tuple[str, ...] = ()) -> str:
        return self.finish(self.start(*words, before=before), code)

    def until(self, condition: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> Any:
        """What `condition` returns as soon as it is true, while the driver runs."""
        end = time.monotonic() + 120
        while not (found := condition()):
            assert process is None or process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.1)
        return found

    # --- results
    @property
    def result(self) -> Path:
        return (self.place / "results" / "latest").resolve()

    def json(self, name: str) -> Any:
        return json.loads((self.result / name).read_text())

    def launches(self) -> dict[int, dict[str, Any]]:
        found = (self.result / "launches").glob("*/launch.json")
        return {record["index"]: record for record in map(json.loads, map(Path.read_text, found))}

    def statuses(self) -> dict[int, str]:
        return {index: record["status"] for index, record in sorted(self.launches().items())}

    def training(self, launch: int, nodes: int = 2) -> bool:
        """Whether ranks of so many nodes take steps in that launch."""
        events = (self.result / "launches" / str(launch) / "events").glob("worker-*")
        return sum('"step"' in path.read_text() for path in events) >= nodes

    def assert_nothing_is_left(self) -> None:
        self.until(lambda: not self.jobs())
        assert list((self.place / "work").rglob("*")) == []
        assert list((self.place / "results" / ".checkpoints").iterdir()) == []


@pytest.fixture
def slurm(tmp_path) -> Iterator[Callable[[int], Loopback]]:
    """Bring up a Slurm of so many nodes, until the test ends. One at a time on a machine: its ports are fixed."""
    made: list[Loopback] = []
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    with open(Path(tempfile.gettempdir()) / "bench-slurm-loopback.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def up(nodes: int) -> Loopback:
            made.append(Loopback(folder, tmp_path))
            made[0].control("up", nodes)
            made[0].control("ready", nodes)
            return made[0]

        try:
            yield up
        finally:
            for cluster in made:
                for driver in cluster.drivers:
                    driver.kill()
                cluster.control("down")
            shutil.rmtree(folder, ignore_errors=True)


def test_a_rehearsal_over_two_nodes_is_submitted_waited_for_and_reported(slurm):
    cluster = slurm(2)
    out = cluster.run("scenario=ckpt_smoke", "cluster.partition=bench", "num_nodes=2", *SMALL)
    (job,) = (record["job"] for record in cluster.json("slurm/jobs.json"))
    assert f"job {job} is submitted; you may close this terminal" in out
    assert f"job {job} runs on n[1-2]" in out
    assert "What a checkpoint costs" in out
    assert cluster.statuses() == {0: "ok", 1: "ok"}
    assert all(set(record["nodes"]) == {"0", "1"} for record in cluster.launches().values())
    summary, run = cluster.json("summary.json"), cluster.json("run.json")
    assert (summary["num_nodes"], summary["world_size"], summary["interrupted"]) == (2, 2, False)
    assert run["engine"] == {"name": "slurm", "job": job, "restarts": 0, "nodes": "n[1-2]", "partition": "bench"}
    cluster.assert_nothing_is_left()


def test_eight_nodes_are_rehearsed_and_the_scenario_for_their_gpus_is_submitted_as_it_is(slurm):
    cluster = slurm(8)
    held = ["cluster.wait=false", "cluster.directives=[--hold]", "device=cuda", "ranks_per_node=8"]
    out = cluster.run("scenario=ckpt_8node", *SMALL, *held, code=0)
    assert "wait for it and collect: python -m bench run resume=" in out
    (job,) = (record["job"] for record in cluster.json("slurm/jobs.json"))
    assert cluster.jobs() == [f"{job} PENDING 8 gres:gpu:8"]
    cluster.ask("scancel", job)
    cluster.run("scenario=ckpt_8node", *SMALL)
    assert cluster.statuses() == {0: "ok", 1: "ok"}
    assert (cluster.json("summary.json")["num_nodes"], cluster.json("summary.json")["world_size"]) == (8, 8)
    cluster.assert_nothing_is_left()


def test_ctrl_c_cancels_a_waiting_job_and_ends_a_running_one_in_order_and_keeps_what_it_measured(slurm):
    cluster = slurm(2)
    process = cluster.start("scenario=ckpt_smoke", "num_nodes=2", *SMALL, "cluster.directives=[--hold]")
    cluster.until(cluster.jobs, process)
    process.send_signal(signal.SIGINT)
    cluster.finish(process, 130)
    cluster.until(lambda: not cluster.jobs())
    waited = cluster.result

    process = cluster.start("scenario=ckpt_smoke", "num_nodes=2", *SMALL, "cycles=100")
    cluster.until(lambda: cluster.result != waited and cluster.training(1), process)
    process.send_signal(signal.SIGINT)
    cluster.finish(process, 130)
    assert cluster.statuses() == {0: "ok", 1: "interrupted"}
    assert cluster.json("summary.json")["interrupted"] is True
    assert cluster.training(1), "its events were kept"
    cluster.assert_nothing_is_left()


def test_a_node_that_loses_power_costs_its_launch_and_the_run_ends_by_itself_with_what_it_has(slurm):
    cluster = slurm(2)
    process = cluster.start("scenario=ckpt_smoke", "num_nodes=2", *SMALL, "launches=3", "cycles=12")
    cluster.until(lambda: cluster.statuses().get(2) == "running" and cluster.training(2), process)
    cluster.control("kill-node", 2)
    cluster.finish(process, 1)
    statuses = cluster.statuses()
    assert [statuses[launch] for launch in (0, 1, 2)] == ["ok", "ok", "lost"]
    assert statuses.get(3) != "ok", "one node is not two"
    assert all(arm["launches"] >= 1 for arm in cluster.json("summary.json")["arms"])


def test_the_loss_of_the_first_node_ends_the_wait_and_gives_the_other_nodes_back(slurm):
    cluster = slurm(2)
    process = cluster.start("scenario=ckpt_smoke", "num_nodes=2", *SMALL, "cycles=100")
    cluster.until(lambda: cluster.statuses().get(1) == "running" and cluster.training(1), process)
    cluster.control("kill-node", 1)
    out = cluster.finish(process, 1)
    assert "has lost its first node" in out
    assert cluster.statuses() == {0: "ok", 1: "lost"}
    cluster.until(lambda: not cluster.jobs())


def test_a_requeued_job_goes_on_with_the_launches_that_are_not_finished(slurm):
    cluster = slurm(2)
    words = ["scenario=ckpt_smoke", "num_nodes=2", *SMALL, "cycles=12", "cluster.requeue=true"]
    process = cluster.start(*words)
    cluster.until(lambda: cluster.statuses().get(1) == "running" and cluster.training(1), process)
    pilot = (cluster.result / "launches/0/launch.json").read_bytes()
    cluster.control("kill-node", 2)
    cluster.control("start-node", 2)
    out = cluster.finish(process)
    assert "started again 1 time" in out
    assert cluster.statuses() == {0: "ok", 1: "ok"}
    assert (cluster.result / "launches/0/launch.json").read_bytes() == pilot
    assert json.loads((cluster.result / "launches/1/attempts/0/launch.json").read_text())["status"] == "running"
    assert cluster.json("run.json")["engine"]["restarts"] == 1


def test_a_run_left_to_itself_is_taken_up_started_again_by_slurm_and_collected(slurm):
    cluster = slurm(2)
    words = ["scenario=ckpt_smoke", "num_nodes=2", *SMALL, "cycles=12", "cluster.requeue=true"]
    cluster.run(*words, "cluster.wait=false", code=0)
    cluster.until(lambda: cluster.training(1))
    (job,) = [line.split()[0] for line in cluster.jobs()]
    cluster.ask("scontrol", "requeue", job)
    out = cluster.run(f"resume={cluster.result}")
    assert cluster.statuses() == {0: "ok", 1: "ok"}
    assert cluster.json("run.json")["engine"]["restarts"] == 1
    assert "What a checkpoint costs" in out
    cluster.assert_nothing_is_left()


def test_a_job_that_slurm_itself_starts_again_goes_on_with_its_launch_and_its_queue_is_measured(slurm):
    """Every point of a recovery through the scheduler: the job ends, is queued, and resumes from its checkpoint."""
    cluster = slurm(2)
    words = ["scenario=recovery_smoke", "num_nodes=2", "ranks_per_node=1", *STRUCK, "recovery.relaunch=engine"]
    out = cluster.run(*words)
    assert "started again 1 time" in out
    (recovery,) = cluster.json("summary.json")["recoveries"]
    assert (recovery["outcome"], recovery["layer_used"]) == ("recovered", "requeue")
    assert recovery["resume_exact"] is True
    assert (recovery["resumed_step"], recovery["detected_by"]) == (recovery["fault_step"] // 6 * 6, "exit")
    parts = [recovery[f"{name}_s"] for name in ("detect", "stop", "queue", "restart", "load", "first_step")]
    assert all(part > 0 for part in parts)
    assert sum(parts) == pytest.approx(recovery["time_to_recover_s"])
    (relaunch,) = cluster.launches()[recovery["launch"]]["relaunches"]
    assert recovery["queue_s"] > relaunch["back"] - relaunch["asked"] > 1
    assert cluster.json("run.json")["engine"]["restarts"] == 1
    cluster.assert_nothing_is_left()


def test_several_sizes_are_measured_as_steps_of_one_allocation(slurm):
    cluster = slurm(2)
    salloc = ("salloc", "--nodes=2", "--ntasks-per-node=1", "--quiet")
    out = cluster.run("-m", "scenario=ckpt_smoke", "num_nodes=1,2", *SMALL, before=salloc)
    runs = [json.loads(path.read_text()) for path in cluster.place.glob("results/box/ckpt_smoke/*/run.json")]
    assert sorted(run["config"]["num_nodes"] for run in runs) == [1, 2]
    (allocation,) = {run["engine"]["job"] for run in runs}
    assert f"runs on 1 nodes of allocation {allocation}" in out
    assert f"runs on 2 nodes of allocation {allocation}" in out
    out = cluster.run("num_nodes=3", *SMALL, before=salloc, code=2)
    assert "num_nodes: 3 are more than the 2 of allocation" in out
    cluster.assert_nothing_is_left()
