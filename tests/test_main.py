"""The command line: help that lists what there is, and bad input as one line and exit code 2 with nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from bench import __main__ as command_line
from bench import environment
from bench.__main__ import compose, given_keys, main
from bench.design import plan
from bench.driver import resolved
from bench.errors import BadInput
from bench.launch.emulated import RANKS_PER_CPU
from bench.predict import predict

SCENARIOS = sorted(path.stem for path in (Path(__file__).resolve().parent.parent / "scenarios").glob("*.yaml"))
WAYS_ON = ("cluster=slurm", "cluster=kubernetes", "cluster=emulated", "dry_run=true")
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> Path:
    """Another working directory, a temporary folder of its own, no GPU; the process is as before afterwards."""
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(environment, "gpus", list)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setenv("HYDRA_FULL_ERROR", os.environ.get("HYDRA_FULL_ERROR", "0"))
    return here


@pytest.fixture
def refused(capfd, elsewhere):
    """Run with overrides that cannot work; returns the one line that the user sees."""

    def run(*overrides: str) -> str:
        assert main(["run", *overrides]) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith("bench: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert list(elsewhere.iterdir()) == []
        return err[len("bench: ") : -1]

    return run


# --- help
@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_commands_and_every_scenario_with_the_question_it_answers(words, capsys):
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "usage: python -m bench COMMAND" in out
    for name in SCENARIOS:
        (line,) = [line for line in out.splitlines() if line.split()[:1] == [name]]
        assert line.endswith(("?", ")"))


def test_help_of_run_lists_scenarios_groups_keys_with_defaults_and_exit_codes(capsys):
    assert main(["run", "scenario=ckpt_smoke", "--help"]) == 0
    out = capsys.readouterr().out
    for part in (
        *SCENARIOS,
        "quick",
        "emulated | kubernetes | local | slurm",
        "in_job | in_process",
        "num_nodes: 1",
        "warmup_steps: 3",
        "minutes: null",
        "130 interrupted",
    ):
        assert part in out
    assert "hydra:" not in out


def test_an_unknown_command_is_refused_with_a_suggestion(capsys):
    assert main(["runn"]) == 2
    assert capsys.readouterr() == ("", "bench: unknown command 'runn'; did you mean run?\n")


# --- bad input
BAD = {
    "an unknown scenario": (["scenario=ckpt_smok"], "scenario: no such choice 'ckpt_smok'; did you mean ckpt_smoke"),
    "a number as a scenario": (["scenario=5"], "scenario: no such choice '5'; known: "),
    "no scenario": (["scenario=null"], "scenario: no such choice 'null'; known: "),
    "a number as a group": (["model=3"], "model: no such choice '3'"),
    "an unknown choice": (["design=quik"], "design: no such choice 'quik'; did you mean quick"),
    "an unknown recovery layer": (["recovery=torchrum"], "recovery: no such choice 'torchrum'; did you mean torchrun"),
    "an unknown strategy": (
        ["checkpoint.arms=[sync_locl]"],
        "checkpoint.arms: unknown strategy 'sync_locl'; did you mean sync_local",
    ),
    "an unknown key": (["num_node=2"], "num_node: no such key; did you mean num_nodes"),
    "an unknown key of a group": (["train.stps=3"], "train.stps: no such key; did you mean train.steps"),
    "an added unknown key": (["+foo=1"], "foo: no such key"),
    "zero steps": (["train.steps=0"], "train.steps: must be greater than 0, got 0"),
    "negative steps": (["train.steps=-3"], "train.steps: must be greater than 0, got -3"),
    "a word for a number": (["num_nodes=many"], "num_nodes: Value 'many'"),
    "a fraction for a number": (["seed=1.5"], "seed: Value '1.5'"),
    "no list of arms": (["checkpoint.arms=none"], "checkpoint.arms: "),
    "an interval longer than the run": (
        ["design=full", "checkpoint.interval=100"],
        "checkpoint.interval: 100 steps is longer than the run's 37 steps",
    ),
    "too few cycles": (["cycles=2"], "cycles: must be at least 3"),
    "no token file": (["data=tokens"], "data.path: data=tokens needs a token file"),
    "a missing token file": (["data=tokens", "data.path=missing.bin"], "data.path: missing.bin is not a file"),
    "a missing checkpoint directory": (["storage.dir=missing"], "storage.dir: missing does not exist; create it"),
    "a checkpoint directory that cannot be written": (["storage.dir=/proc"], "storage.dir: /proc cannot be written to"),
    "a work directory that cannot be made": (
        ["work_dir=/dev/null/x"],
        "work_dir: /dev/null/x cannot be made",
    ),
    "results that cannot be written": (["results_dir=/dev/null/x"], "results_dir: /dev/null/x cannot be written"),
    "a result to resume that is none": (["resume=missing"], "resume: missing is no result folder"),
    "a result to append to that is none": (["append=missing"], "append: missing is no result folder"),
    "resume and append": (["resume=a", "append=b"], "resume: finishes a run, append adds to a finished one"),
    "a plan of a run to resume": (["resume=a", "dry_run=true"], "dry_run: prints the plan of a new run"),
    "calibration outside of it": (["checkpoint.arms=[synthetic]"], "checkpoint.arms: synthetic saves nothing"),
    "half of a job": (["job.step_s=1.0"], "job.step_s and job.interval_steps: belong together"),
    "no override": (["ckpt_smoke"], "Error parsing override 'ckpt_smoke'"),
    "an unknown option": (["--verbose"], "--verbose: no such option"),
    "several scenarios without -m": (
        ["scenario=ckpt_smoke,ckpt_local"],
        "Ambiguous value for argument 'scenario=ckpt_smoke,ckpt_local'",
    ),
    "a reference to nothing": (["train.steps=${nothing}"], "train.steps: Interpolation key 'nothing' not found"),
    "a launcher that is not there": (["cluster=lokal"], "cluster: no such choice 'lokal'; did you mean local"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_with_exit_code_2_and_nothing_is_created(case, refused):
    overrides, message = BAD[case]
    assert refused(*overrides).startswith(message)


def test_more_nodes_than_there_are_is_refused_with_the_ways_on(refused):
    message = refused("scenario=ckpt_8node")
    assert message.startswith("num_nodes: ckpt_8node asks for 8 nodes")
    assert all(way in message for way in WAYS_ON)


def test_more_gpus_than_there_are_is_refused_with_the_ways_on(refused):
    message = refused("device=cuda", "ranks_per_node=4")
    assert message.startswith("ranks_per_node: ckpt_local asks for 4 GPUs and this machine has 0")
    assert all(way in message for way in WAYS_ON)


def test_a_checkpoint_directory_too_small_for_the_predicted_bytes_is_refused(refused, monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, 400_000_000))
    message = refused(f"storage.dir={tmp_path}")
    assert message.startswith(f"storage.dir: {tmp_path} has 0.40 GB free, but 2 arm(s)")


def test_an_empty_token_file_is_refused(refused, tmp_path):
    (tmp_path / "tokens.bin").touch()
    assert refused("data=tokens", f"data.path={tmp_path / 'tokens.bin'}").endswith(
        "is empty; give a flat binary file of token ids"
    )


def test_tokens_beyond_the_vocabulary_are_refused(refused, tmp_path):
    np.full(1000, 999, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    assert "token id 999" in refused("data=tokens", f"data.path={tmp_path / 'tokens.bin'}")


@pytest.mark.parametrize("key", ["resume", "append"])
def test_a_result_of_an_unknown_schema_version_is_refused_and_left_alone(key, refused, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"schema_version": 2}))
    message = refused(f"{key}={tmp_path}")
    assert message.startswith(f"{key}: {tmp_path / 'run.json'} has schema version 2, this suite reads 1")
    assert (tmp_path / "run.json").read_text() == '{"schema_version": 2}'


def test_ctrl_c_outside_of_a_launch_is_one_line_and_exit_code_130(capsys, monkeypatch):
    def interrupted(overrides):
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "run", interrupted)
    assert main(["run"]) == 130
    assert capsys.readouterr().err == "bench: interrupted\n"


# --- composing
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_makes_a_plan_that_names_its_bytes_launches_time_and_commands(name, capsys, elsewhere):
    assert main(["run", f"scenario={name}", "dry_run=true", "price_per_gpu_hour=2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for part in (
        "checkpoint ",
        "launches",
        "0  pilot",
        "expected ",
        "-hours",
        "in your currency",
        "Nothing was started",
    ):
        assert part in out
    config = compose([f"scenario={name}"])
    here = config.device != "cuda" and (config.num_nodes == 1 or config.cluster.name == "emulated")
    assert ("-m bench.node" in out) == here
    assert ("not to be run like this: " in out) == (not here)
    assert list(elsewhere.iterdir()) == []


def test_the_keys_of_a_command_line_are_told_without_hydras_marks():
    words = ["scenario=ckpt_smoke", "++cluster.env.A=b=c", "+x@y=1", "~data", "budget.minutes=3"]
    assert given_keys(words) == ["scenario", "cluster.env.A", "x", "data", "budget.minutes"]


def test_a_key_beside_resume_that_would_be_ignored_is_refused(capsys):
    assert main(["run", "resume=missing", "budget.minutes=3", "seed=7"]) == 2
    assert "bench: seed: resume= goes on with the configuration of the result" in capsys.readouterr().err


def test_the_command_line_has_the_last_word_over_scenario_and_group():
    run = compose(["scenario=ckpt_smoke", "design=full", "cycles=9", "train.lr=0.5"])
    assert (run.design.name, run.cycles, run.train.lr, run.model.name) == ("full", 9, 0.5, "small")


def test_values_may_refer_to_other_values():
    assert compose(["seed=7", "train.steps=${seed}"]).train.steps == 7


def test_a_scenario_for_gpus_is_rehearsed_on_cpus_with_a_small_model_and_the_users_words_still_win():
    run = compose(["scenario=ckpt_2node", "cluster=emulated", "train.seq_len=32"])
    assert (run.num_nodes, run.ranks_per_node, run.device, run.model.name) == (2, 1, "cpu", "small")
    assert run.train.seq_len == 32


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_that_this_machine_is_refused_for_can_be_rehearsed_on_it_as_the_refusal_says(name):
    config = resolved(compose([f"scenario={name}"]), gpus=0)
    if config.cluster.name == "local" and (config.num_nodes > 1 or config.device == "cuda"):
        config = resolved(compose([f"scenario={name}", "cluster=emulated"]), gpus=0)
    assert config.device == "cpu"
    assert config.world_size <= RANKS_PER_CPU  # fits one CPU
    assert len(plan(config)) > 1


def test_the_canary_is_a_save_and_an_exception_in_under_four_minutes_as_it_promises():
    config = compose(["scenario=canary", "cluster=slurm"])
    launches = plan(config)
    assert [launch.kind for launch in launches] == ["pilot", "recovery"]
    assert [fault.kind for launch in launches for fault in launch.faults] == ["exception"]
    assert config.recovery.save_once
    assert predict(config, launches, "cuda").seconds < 4 * 60


def test_a_scenario_for_cpus_is_emulated_as_it_is():
    run = compose(["scenario=ckpt_smoke", "cluster=emulated", "num_nodes=2"])
    assert (run.num_nodes, run.ranks_per_node, run.cycles) == (2, 2, 4)


def test_the_sizes_of_a_series_differ_in_the_number_of_nodes_only():
    eight, two = compose(["scenario=ckpt_8node"]), compose(["scenario=ckpt_2node"])
    assert {key for key, value in vars(eight).items() if value != getattr(two, key)} == {
        "scenario",
        "about",
        "num_nodes",
    }


def test_composing_takes_no_unknown_value_silently():
    with pytest.raises(BadInput, match="device"):
        compose(["device=gpu"])


def test_a_sweep_runs_every_combination_and_exits_with_the_worst_code(capsys):
    assert main(["run", "-m", "scenario=ckpt_smoke", "train.steps=40,0", "dry_run=true"]) == 2
    out, err = capsys.readouterr()
    assert out.count("Nothing was started") == 1
    assert err == "bench: train.steps: must be greater than 0, got 0; give a positive number\n"


def test_the_sweep_option_may_stand_anywhere(capsys):
    assert main(["run", "scenario=ckpt_smoke", "-m", "seed=1,2", "dry_run=true"]) == 0
    assert capsys.readouterr().out.count("Nothing was started") == 2


def test_a_plan_holds_the_launches_that_a_run_would_make(capsys):
    assert main(["run", "scenario=ckpt_smoke", "launches=3", "dry_run=true"]) == 0
    out = capsys.readouterr().out
    expected = [f"{launch.index:3}  {launch.kind}" for launch in plan(compose(["scenario=ckpt_smoke", "launches=3"]))]
    assert [
        line[2:].rstrip()[: len(text)]
        for line, text in zip(out.split("launches\n")[1].splitlines(), expected, strict=False)
    ] == expected


# --- doctor
def test_help_of_the_doctor_lists_scenarios_and_exit_codes(capsys):
    assert main(["doctor", "scenario=ckpt_smoke", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(part in out for part in (*SCENARIOS, "format=table|json", "1 a check failed"))


@pytest.fixture
def examined(monkeypatch):
    """What the doctor was asked to examine, instead of examining it."""
    asked = []
    monkeypatch.setattr("bench.doctor.examine.run", lambda config, form="table": asked.append((config, form)) or 1)
    return asked


def test_the_doctor_composes_like_a_run_and_exits_with_what_it_found(examined):
    assert main(["doctor", "scenario=ckpt_8node", "format=json", "storage.fsync=false"]) == 1
    ((config, form),) = examined
    assert (config.scenario, config.num_nodes, config.storage.fsync, form) == ("ckpt_8node", 8, False, "json")


def test_a_rehearsal_is_examined_as_the_rehearsal(examined):
    assert main(["doctor", "scenario=ckpt_2node", "cluster=emulated"]) == 1
    ((config, form),) = examined
    assert (config.device, config.ranks_per_node, form) == ("cpu", 1, "table")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["scenario=ckpt_smok"], "scenario: no such choice 'ckpt_smok'; did you mean ckpt_smoke"),
        (["num_node=2"], "num_node: no such key; did you mean num_nodes"),
        (["-m", "seed=1,2"], "-m: no such option"),
        (["format=xml"], "format: must be table or json, got 'xml'"),
    ],
)
def test_bad_input_of_the_doctor_is_one_line_with_exit_code_2(words, message, capsys):
    assert main(["doctor", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"bench: {message}")
    assert err.count("\n") == 1


def test_keys_of_a_dict_need_no_sign_before_them(capsys):
    run = compose(["scenario=recovery_local", "recovery.timeouts={soft_s: 20}", "cluster.env.NAME=value"])
    assert (run.recovery.timeouts, run.cluster.env) == ({"soft_s": 20.0}, {"NAME": "value"})
    assert main(["run", "scenario=recovery_local", "faults.weights={sigkill: 1.0}", "dry_run=true"]) == 0
