"""`python -m bench plan` as a user meets it: every key, plan.json, one-line errors, no torch, a few seconds."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.__main__ import compose_plan, main
from bench.planner import answered
from tests.plan.made import result

ROOT = Path(__file__).resolve().parent.parent
KEYS = {
    "save.blocking_s": 2.5,
    "save.cost_s": 3.5,
    "save.durable_s": 70.0,
    "save.slowdown": 0.01,
    "recovery.seconds": 130.0,
    "failures.per_1000_node_days": 6.5,
    "failures.weibull_shape": 0.9,
    "cluster.nodes": 100,
    "cluster.gpus_per_node": 4,
    "cluster.price_per_gpu_hour": 2.25,
    "job.days": 30.0,
    "period_s": 1500.0,
    "model.params": 8e9,
    "model.bytes_per_param": 14.0,
    "storage.write_bytes_per_s": 3e9,
}


@pytest.fixture
def planned(tmp_path, capsys):
    """Plan with overrides; returns plan.json and what was printed."""

    def run(*overrides: str) -> tuple[dict, str]:
        out = tmp_path / "plan.json"
        assert main(["plan", f"out={out}", "simulation.replicates=50", *overrides]) == 0
        return json.loads(out.read_text()), capsys.readouterr().out

    return run


def test_without_a_result_it_answers_and_says_that_nothing_was_measured(planned):
    content, printed = planned()
    assert "Nothing here was measured" in printed
    assert {each["kind"] for each in content["inputs"]} == {"assumed"}
    assert all(each["name"] in printed for each in content["inputs"])


def test_every_input_can_be_given_on_the_command_line(planned):
    content, printed = planned(*(f"{key}={value}" for key, value in KEYS.items()))
    values = {each["name"]: each["value"] for each in content["inputs"]}
    values["recovery.seconds"] = values["recovery.orchestrator_s"]
    assert {key: values[key] for key in KEYS} == KEYS
    assert "400 GPUs in 100 nodes" in printed


def test_the_published_optimum_comes_out_of_the_command(planned):
    content, _ = planned("save.blocking_s=275", "cluster.nodes=2048", "failures.per_1000_node_days=3.7926")
    assert content["mtbf_s"] == pytest.approx(11124, rel=1e-3)
    assert content["intervals"]["exact_s"] == pytest.approx(2293.67, rel=1e-3)


def test_the_published_time_ratio_comes_out_of_the_command(planned):
    given = ["save.blocking_s=0", "cluster.nodes=2000", "failures=rsc1", "recovery.seconds=300"]
    content, printed = planned(*given, "period_s=300")
    assert content["ettr_linear"]["value"] == pytest.approx(0.932, abs=5e-4)
    assert content["ettr_linear"]["in_range"]
    assert "linear effective training time ratio: 93.2 %" in printed
    content, printed = planned(*given, "period_s=3600")
    assert content["ettr_linear"]["value"] == pytest.approx(0.684, abs=5e-4)
    assert not content["ettr_linear"]["in_range"]
    assert "linear effective training time ratio: outside its range" in printed


def test_the_preset_is_an_example_from_end_to_end(planned, tmp_path):
    content, printed = planned("plan=budget_512", f"figures={tmp_path / 'figures'}")
    values = {each["name"]: each["value"] for each in content["inputs"]}
    assert (values["cluster.nodes"], values["model.params"]) == (64, 70e9)
    assert "For the review" in printed
    for name in ("plan_sizes.png", "plan_sensitivity.png"):
        assert (tmp_path / "figures" / name).read_bytes().startswith(b"\x89PNG")


def test_results_of_another_machine_are_labelled_throughout(planned, tmp_path):
    path = result(tmp_path / "laptop", nodes=1, device="cpu").path
    content, printed = planned(f"run={path}")
    assert content["label"] == "extrapolated"
    assert "8 CPU ranks" in printed
    assert "count as extrapolated" in printed
    titles = [
        line
        for line in printed.splitlines()
        if line.startswith(("The two", "Best", "What", "Money", "For the", "Where"))
    ]
    assert len(titles) == 7
    assert all(line.endswith("(extrapolated)") for line in titles)


def test_a_series_of_results_is_taken_together(planned, tmp_path):
    paths = [result(tmp_path / str(nodes), nodes=nodes).path for nodes in (1, 2, 4, 8)]
    content, _ = planned(f"run=[{','.join(map(str, paths))}]")
    (durable,) = [each for each in content["inputs"] if each["name"] == "save.durable_s"]
    assert "fitted on 4 measured sizes" in durable["source"]


def test_the_same_plan_gives_the_same_answer(planned):
    assert planned()[0] == planned()[0]


BAD = {
    "a negative price": (["cluster.price_per_gpu_hour=-1"], "cluster.price_per_gpu_hour: must be greater than 0"),
    "a rate of zero": (["failures.per_1000_node_days=0"], "failures.per_1000_node_days: must be greater than 0"),
    "no model": (["model.params=0"], "model.params: must be greater than 0"),
    "no rate": (["failures=own"], "failures.per_1000_node_days: is not stated"),
    "an unknown profile": (["failures=llama"], "failures: no such choice 'llama'; did you mean llama3"),
    "an unknown preset": (["plan=budget"], "plan: no such choice 'budget'; did you mean budget_512"),
    "an unknown key": (["cluster.node=3"], "cluster.node: no such key; did you mean cluster.nodes"),
    "a word for a number": (["cluster.nodes=many"], "cluster.nodes: Value 'many'"),
    "no result": (["run=missing"], "run: missing holds no summary.json"),
    "a period shorter than a save": (["save.blocking_s=9", "period_s=9"], "period_s: 9 s leaves no time for work"),
    "a period too long": (["period_s=1e9"], "period_s: with 1e+09 s"),
    "a place for plan.json that cannot be": (["out=/dev/null/x/plan.json"], "out: /dev/null/x cannot be made"),
    "a folder as plan.json": (["out=."], "out: . is a folder"),
    "a sweep": (["-m"], "-m: no such option"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_with_exit_code_2(case, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    overrides, message = BAD[case]
    assert main(["plan", *overrides]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"bench: {message}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_lists_presets_profiles_and_keys(capsys):
    assert main(["plan", "--help"]) == 0
    out = capsys.readouterr().out
    for part in (
        "budget_512",
        "llama3",
        "rsc1",
        "rsc2",
        "opt175b",
        "own",
        "period_s: null",
        "weibull_shape",
        "exit codes",
    ):
        assert part in out
    assert "hydra" not in out


def test_it_answers_in_a_few_seconds_without_torch_and_pandas(tmp_path):
    path = result(tmp_path / "a", nodes=8, samples=None).path
    code = (
        "import sys\n"
        "sys.modules |= dict.fromkeys(('torch', 'nvidia_resiliency_ext', 'pandas', 'scipy'))\n"
        "from bench.__main__ import main\n"
        f"sys.exit(main(['plan', 'run={path}']))\n"
    )
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "For the review" in done.stdout
    assert time.monotonic() - begin < 10


def test_an_answer_is_a_function_of_the_plan():
    assert answered(compose_plan(["simulation.replicates=10"])).inputs.plan.gpus == 512
