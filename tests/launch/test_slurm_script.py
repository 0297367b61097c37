"""The job script: its directives, and what bash makes of it with small programs in place of Slurm's."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.config import Budget, Cluster, Recovery, Run, Train
from bench.errors import BadInput
from bench.launch import slurm_script
from bench.launch.base import RELAUNCH, Paths

PATHS = Paths(Path("/shared/results/box/ckpt/now"), Path("/tmp/work"), Path("/shared/checkpoints/abc"))


def run(device: str = "cpu", num_nodes: int = 2, ranks_per_node: int = 8, **cluster: Any) -> Run:
    config = Run(num_nodes=num_nodes, ranks_per_node=ranks_per_node, device=device)
    return replace(config, cluster=Cluster(name="slurm", **cluster))


def directives(config: Run, minutes: int | None = None) -> list[str]:
    lines = slurm_script.render(config, PATHS, minutes).splitlines()
    return [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]


def srun(config: Run, within: bool = False, of: str = "slurm_task") -> list[str]:
    lines = slurm_script.render(config, PATHS, None, within).replace("\\\n", "").splitlines()
    return shlex.split(next(line for line in lines if line.startswith("srun ") and of in line).removesuffix(" &"))


def after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


# --- directives
def test_a_job_is_one_task_a_node_with_room_to_close_before_its_end():
    found = directives(run(num_nodes=4))
    assert {"--nodes=4", "--ntasks-per-node=1", "--signal=B:USR1@120", "--exclusive", "--mem=0"} <= set(found)
    assert "--output=/shared/results/box/ckpt/now/slurm/job-%j.out" in found
    assert "--open-mode=append" in found, "a requeued job must not wipe out what it printed before"


def test_what_is_not_given_is_left_to_the_site():
    found = " ".join(directives(run()))
    assert not any(name in found for name in ("--time", "--partition", "--account", "--constraint", "--gres", "--gpus"))


def test_given_keys_become_directives_and_the_users_own_come_last():
    given = {"partition": "gpu", "account": "proj", "time": "1:00:00", "constraint": "h100", "gres": "gpu:h100:8"}
    found = directives(run("cuda", **given, directives=["--reservation=r", "--mem=100G"]), minutes=16)
    assert {"--partition=gpu", "--account=proj", "--time=1:00:00", "--constraint=h100", "--gres=gpu:h100:8"} <= set(
        found
    )
    assert found[-2:] == ["--reservation=r", "--mem=100G"]
    assert not any(word.startswith("--gpus-per-node") for word in found)


def test_gpus_are_asked_for_where_the_device_is_one_and_nothing_else_asks_for_them():
    assert "--gpus-per-node=8" in directives(run("cuda"))
    assert not any("gpu" in word for word in directives(run("cpu")))


def with_spare(**cluster: Any) -> Run:
    return replace(run("cuda", **cluster), recovery=Recovery(layer="in_process", reserve=1))


def test_every_node_has_gpus_for_the_spare_ranks_as_nodes_of_a_job_are_alike():
    assert "--gpus-per-node=9" in directives(with_spare())
    shared = replace(with_spare(exclusive=False), train=Train(threads=2))
    assert "--cpus-per-task=28" in directives(shared)


@pytest.mark.parametrize("gres", ["gpu:8", "gpu:h100:8", "nvme:10,gpu:h100:8"])
def test_a_gres_without_gpus_for_all_ranks_of_a_node_is_refused(gres):
    with pytest.raises(BadInput, match=r"^cluster\.gres: .* is too few for 9 ranks of a node"):
        slurm_script.check(with_spare(gres=gres), PATHS)
    slurm_script.check(run("cuda", gres=gres), PATHS)
    slurm_script.check(with_spare(gres="gpu:h100"), PATHS)


def test_a_node_shared_with_others_gives_cpus_for_ranks_their_writers_and_the_runner():
    config = run(ranks_per_node=4, exclusive=False)
    config = replace(config, train=replace(config.train, threads=2))
    assert "--cpus-per-task=13" in directives(config)
    assert "--cpus-per-task=13" in srun(config), "srun does not inherit it"
    assert "--exclusive" not in directives(config)


def test_a_failing_node_is_survived_or_the_job_is_requeued_as_configured():
    survives, requeued = run(), run(requeue=True)
    assert {"--no-requeue", "--no-kill"} <= set(directives(survives))
    assert "--no-kill" in srun(survives)
    assert "--requeue" in directives(requeued)
    assert "--no-kill" not in directives(requeued) + srun(requeued)


def test_a_job_that_the_engine_is_to_start_again_may_be_requeued():
    config = replace(run(), recovery=Recovery(relaunch="engine"))
    assert {"--requeue", "--no-kill"} <= set(directives(config))


def test_one_runners_end_is_not_the_end_of_the_others():
    assert {"--kill-on-bad-exit=0", "--wait=0", "--cpu-bind=none", "--export=ALL"} <= set(srun(run()))


# --- time
def test_the_time_limit_follows_the_budget_with_room_for_the_last_launch():
    assert slurm_script.time_limit_minutes(replace(run(), budget=Budget(minutes=55)), 60.0) == 76


def test_without_a_budget_it_follows_the_prediction_and_without_that_the_partition():
    assert slurm_script.time_limit_minutes(run(), 600.0) == 45
    assert slurm_script.time_limit_minutes(run(), None) is None
    assert "--time=45" in directives(run(), minutes=45)
    assert "--time=2-0" in directives(run(time="2-0"), minutes=45)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("5", 300), ("5:30", 330), ("1:00:00", 3600), ("2-0", 172800), ("1-2:30", 95400), ("1-2:30:05", 95405)],
)
def test_a_time_limit_is_read_as_slurm_reads_it(time, seconds):
    assert slurm_script.seconds_of(time) == seconds


@pytest.mark.parametrize("time", ["an hour", "1h", "1-", ""])
def test_a_time_limit_that_slurm_would_not_read_is_refused(time):
    with pytest.raises(BadInput, match=r"cluster\.time: must be \[D-\]HH:MM:SS or minutes"):
        slurm_script.check(run(time=time), PATHS)


def test_a_short_job_is_warned_late_enough_to_do_something_before():
    assert "--signal=B:USR1@120" in directives(run(time="8"))
    assert "--signal=B:USR1@30" in directives(run(time="2"))
    assert "--signal=B:USR1@75" in directives(run(), minutes=5)


# --- the step
def test_every_node_gets_the_same_command_and_finds_out_by_itself_which_it_is():
    words = srun(run("cuda", python="/opt/python"))
    assert words[words.index("/opt/python") :][:4] == ["/opt/python", "-u", "-m", "bench.launch.slurm_task"]
    assert after(words, "--result") == str(PATHS.result)
    assert after(words, "--checkpoint-dir") == str(PATHS.checkpoint_dir)
    assert after(words, "--device") == "cuda"
    assert "--work-base" not in words, "each node's own temporary folder"


def test_a_job_of_its_own_is_given_back_when_its_first_node_dies_unless_slurm_starts_it_again():
    assert "--release" in srun(run())
    assert "--release" not in srun(run(requeue=True))
    assert "--release" not in srun(run(), within=True), "the allocation is the user's"


def test_a_given_work_dir_is_passed_on():
    assert after(srun(replace(run(), work_dir="/nvme")), "--work-base") == "/nvme"


def test_within_an_allocation_the_step_takes_its_first_nodes_and_shares_them():
    words = srun(run(num_nodes=2), within=True)
    assert {"--nodes=2", "--ntasks=2", "--overlap"} <= set(words)
    assert "--overlap" not in srun(run())


def test_the_users_srun_arguments_come_before_the_command():
    words = srun(run(srun_args=["--mpi=none"]))
    assert words.index("--mpi=none") < words.index(sys.executable)


# --- containers
def test_a_pyxis_container_mounts_code_result_checkpoints_and_the_nodes_own_folder_made_before():
    config = run("cuda", container="site/torch:1", container_mounts=["/data:/data"])
    words = srun(config)
    assert "--container-image=site/torch:1" in words
    (mounts,) = (word.partition("=")[2].split(",") for word in words if word.startswith("--container-mounts="))
    code, own = slurm_script.root_of_code(), f"/tmp/bench-work-{os.getuid()}"
    both = [f"{path}:{path}" for path in (code, PATHS.result, "/shared/checkpoints", own)]
    assert mounts == [*both, "/data:/data"]
    assert after(words, "--work-base") == own
    assert "python3" in words, "the container's own"
    assert srun(config, of="mkdir")[-3:] == ["mkdir", "-p", own]
    assert {f"--ntasks={config.num_nodes}", "--ntasks-per-node=1"} <= set(srun(config, of="mkdir"))


def test_apptainer_runs_the_runner_inside_its_file_and_shows_it_the_gpus():
    words = srun(run("cuda", container="/images/torch.sif", container_runtime="apptainer"))
    assert words[words.index("apptainer") :][:3] == ["apptainer", "exec", "--nv"]
    assert words.index("/images/torch.sif") < words.index("python3")
    assert not any(word.startswith("--container") for word in words)


# --- refusals
@pytest.mark.parametrize("word", ["#SBATCH --x", "x", "--a\n--b"])
def test_a_directive_that_is_no_option_is_refused(word):
    with pytest.raises(BadInput, match=r"cluster\.directives: must be options of sbatch"):
        slurm_script.check(run(directives=[word]), PATHS)


def test_a_result_folder_that_slurm_would_read_as_a_pattern_is_refused():
    with pytest.raises(BadInput, match=r"results_dir: .* a character that Slurm reads as its own"):
        slurm_script.check(run(), replace(PATHS, result=Path("/shared/50%")))


# --- what bash makes of it
class Fakes:
    """A folder of programs in place of Slurm's, and a result folder with a space in its name."""

    def __init__(self, path: Path) -> None:
        self.bin = path / "bin"
        self.bin.mkdir()
        self.log = path / "log"
        self.paths = Paths(path / "a result", path / "work", path / "checkpoints")
        (self.paths.result / "slurm").mkdir(parents=True)
        self.program(
            "scontrol", "echo 'NodeName=n1 Arch=x NodeAddr=10.0.0.1 NodeHostName=n1'; echo 'A=1 NodeAddr=ip-2 B=2'"
        )
        self.program("scancel", f'echo "scancel $*" >>{self.log}; kill -TERM "$(cat {path}/srun.pid)"')
        self.program("srun", f'echo "peers $BENCH_PEERS own $OWN" >>{self.log}; exit 3')

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def start(self, config: Run) -> subprocess.Popen[str]:
        script = self.paths.result / "slurm" / "job.sh"
        script.write_text(slurm_script.render(config, self.paths, None))
        env = os.environ | {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "n[1-2]",
        }
        return subprocess.Popen(
            ["bash", str(script)], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )


@pytest.fixture
def fakes(tmp_path) -> Fakes:
    return Fakes(tmp_path)


def test_the_runners_know_the_addresses_of_all_nodes_and_the_users_variables_and_their_code_is_the_jobs(fakes):
    process = fakes.start(run(env={"OWN": "a value"}))
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 3, out
    assert fakes.log.read_text() == "peers 10.0.0.1 ip-2 own a value\n"


def test_setup_lines_run_before_the_runners_and_one_that_fails_ends_the_job(fakes):
    process = fakes.start(run(setup=["export OWN=set", "true"]))
    process.communicate(timeout=30)
    assert "own set" in fakes.log.read_text()
    fakes.log.unlink()
    process = fakes.start(run(setup=["false  # no such module", "true"]))
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "cluster.setup: the line above has failed" in out
    assert not fakes.log.exists()


def test_a_warning_before_the_time_limit_asks_the_step_to_end_and_waits_for_it(fakes, tmp_path):
    step = fakes.paths.result / "slurm" / "step"
    fakes.program(
        "srun", f"trap 'exit 130' TERM; echo 7.0 >'{step}'; echo $$ >{tmp_path}/srun.pid; while :; do sleep 0.05; done"
    )
    step.write_text("of an earlier start\n")
    process = fakes.start(run())
    until(lambda: written(tmp_path / "srun.pid"))
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert fakes.log.read_text() == "scancel --ctld --signal=TERM 7.0\n"


def test_a_warning_that_comes_before_the_runners_have_started_ends_srun(fakes, tmp_path):
    fakes.program("srun", f"trap 'exit 9' TERM; echo $$ >{tmp_path}/srun.pid; while :; do sleep 0.05; done")
    process = fakes.start(run())
    until(lambda: written(tmp_path / "srun.pid"))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 9
    assert not fakes.log.exists()


def by_engine() -> Run:
    return replace(run(), recovery=Recovery(relaunch="engine"))


def test_runners_that_ask_for_it_have_their_job_queued_again(fakes):
    fakes.program("srun", f"exit {RELAUNCH}")
    fakes.program("scontrol", f'echo "scontrol $*" >>{fakes.log}')
    fakes.program("sleep", "exit 0")  # Slurm ends the script meanwhile
    fakes.start(by_engine()).communicate(timeout=30)
    assert fakes.log.read_text().splitlines()[-1] == "scontrol requeue 7"


def test_a_job_that_slurm_does_not_queue_again_ends_and_says_so(fakes):
    fakes.program("srun", f"exit {RELAUNCH}")
    fakes.program("scontrol", "echo 'Requested operation is presently disabled'; exit 1")
    process = fakes.start(by_engine())
    out, _ = process.communicate(timeout=30)
    assert process.returncode == RELAUNCH
    assert "Slurm does not requeue job 7; use recovery.relaunch=coordinator" in out


def test_nobody_else_has_a_job_queued_again(fakes):
    config = by_engine()
    fakes.program("scontrol", f'echo "scontrol $1" >>{fakes.log}')
    assert fakes.start(config).wait(30) == 3
    assert "requeue" not in fakes.log.read_text()
    assert "scontrol requeue" not in slurm_script.render(run(), PATHS, None)
    assert "scontrol requeue" not in slurm_script.render(config, PATHS, None, within=True)


def until(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def written(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
