"""Resuming and appending: what may be given anew, what is refused, and the environment that must be the first one's."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from bench import occasions
from bench.config import Budget, Checkpoint, Cluster, Design, Job, Run
from bench.errors import BadInput
from bench.results import ResultFolder

MEASURED = Run(budget=Budget(minutes=1.0, gpu_hours=2.0), job=Job(period_s=5.0), price_per_gpu_hour=1.0)
HERE = {
    "machine": "box",
    "device": "cuda",
    "versions": {"torch": "2.9", "nccl": None, "driver": "550", "python": "3.11.1", "kernel": "6.1", "numpy": "2.1"},
    "cpu": "EPYC",
    "gpus": [{"name": "H100"}, {"name": "H100"}],
    "load1": 0.1,
}


# --- what is given
def test_what_is_given_anew_is_taken_and_the_rest_stays_as_it_was_measured():
    asked = Run(budget=Budget(minutes=9.0), job=Job(step_s=1.0, interval_steps=10), price_per_gpu_hour=3.0, seed=7)
    given = ["resume", "budget.minutes", "job.step_s", "job.interval_steps", "price_per_gpu_hour"]
    found = occasions.anew(MEASURED, asked, given)
    assert found == replace(MEASURED, budget=Budget(minutes=9.0, gpu_hours=2.0), job=asked.job, price_per_gpu_hour=3.0)
    assert occasions.anew(MEASURED, asked, ["resume"]) == MEASURED


def test_a_limit_can_be_taken_away_and_waiting_be_changed():
    asked = Run(cluster=Cluster(wait=False, time="10"))
    found = occasions.anew(MEASURED, asked, ["budget", "cluster.wait", "cluster.time"])
    assert (found.budget, found.cluster.wait, found.cluster.time) == (Budget(), False, "10")
    assert occasions.anew(MEASURED, asked, ["cluster"]).cluster == MEASURED.cluster


def test_whatever_else_stands_beside_resume_is_refused_and_named():
    occasions.refuse_beside_resume(["resume", "machine", "budget.gpu_hours", "job.period_s", "cluster.wait"])
    with pytest.raises(BadInput, match=r"^seed: resume= goes on with .*; leave out seed, storage\.fsync \(.*budget"):
        occasions.refuse_beside_resume(["resume", "seed", "budget.minutes", "storage.fsync"])


def test_an_append_to_another_place_is_refused_and_an_equal_one_is_not():
    path, asked = Path("result"), Run(results_dir="there", seed=MEASURED.seed)
    occasions.refuse_other_work(path, MEASURED, asked, ["append"])
    occasions.refuse_other_work(path, MEASURED, Run(), ["append", "results_dir", "seed"])
    with pytest.raises(BadInput, match="measured with another seed, results_dir; give the same"):
        occasions.refuse_other_work(path, MEASURED, replace(asked, seed=7), ["append", "results_dir", "seed"])


# --- the interval
def content(config: Run, folder: ResultFolder, *records: dict[str, Any]) -> dict[str, Any]:
    for record in records:
        folder.write_launch(record["index"], record)
    return {"config": asdict(config), "occasions": [{"launches": list(records)}]}


def test_the_interval_that_the_first_pilot_settled_is_that_of_the_first_launch_measured(tmp_path):
    records = [{"index": 0, "kind": "pilot", "interval": None}, {"index": 1, "kind": "full", "status": "skipped"}]
    records += [{"index": 2, "kind": "full", "interval": 12}, {"index": 3, "kind": "full", "interval": 14}]
    full = Run(design=Design(name="full"))
    folder = ResultFolder(tmp_path)
    assert occasions.settled_interval(folder, content(full, folder, *records)) == 12
    assert occasions.settled_interval(folder, content(full, ResultFolder(tmp_path), *records[:2])) is None


def test_an_interval_that_was_given_or_swept_is_none_that_a_pilot_settled(tmp_path):
    folder, record = ResultFolder(tmp_path), {"index": 1, "kind": "full", "interval": 12}
    swept = Run(design=Design(name="sweep"), checkpoint=Checkpoint(intervals=[2, 12]))
    for config in (Run(checkpoint=Checkpoint(interval=12)), swept):
        assert occasions.settled_interval(folder, content(config, folder, record)) is None


# --- the environment
def run_json(**first: Any) -> dict[str, Any]:
    return {"environment": HERE | first, "occasions": [{"launches": []}, {"launches": []}]}


def test_a_further_occasion_has_an_environment_of_its_own_and_the_first_one_s_stays():
    run = run_json()
    occasions.settle_environment(run, HERE | {"load1": 0.9})
    assert run["environment"] == HERE
    assert run["occasions"][1]["environment"]["load1"] == 0.9
    occasions.settle_environment(run, HERE | {"load1": 0.5})
    assert run["occasions"][1]["environment"]["load1"] == 0.9, "a resumed occasion was begun earlier"


@pytest.mark.parametrize(
    ("now", "named"),
    [
        ({"versions": HERE["versions"] | {"torch": "2.10"}}, r"torch \(2\.9, now 2\.10\)"),
        ({"versions": HERE["versions"] | {"nccl": "2.29", "kernel": "6.2"}}, r"nccl \(none, now 2\.29\), kernel \("),
        ({"cpu": "Xeon"}, r"cpu \(EPYC, now Xeon\)"),
        ({"gpus": [{"name": "A100"}]}, r"gpu \(H100, now A100\)"),
        ({"machine": "other"}, r"machine \(box, now other\).*or give machine=box if only its name changed"),
    ],
)
def test_an_unlike_environment_is_refused_with_what_differs_and_a_remedy(now, named):
    run = run_json()
    with pytest.raises(BadInput, match=rf"^environment: the result was begun with another {named}"):
        occasions.settle_environment(run, HERE | now)
    assert run == run_json()


def test_what_does_not_bear_on_figures_or_was_not_recorded_then_is_no_difference():
    now = HERE | {"versions": HERE["versions"] | {"numpy": "2.2", "cuda": "13.0"}, "gpus": [{"name": "H100"}]}
    assert list(occasions.unlike_environment(HERE, now)) == []
    assert list(occasions.unlike_environment({"machine": "box", "device": "cpu"}, now)) == []
    assert list(occasions.unlike_environment(HERE | {"device": "cpu"}, HERE | {"gpus": []})) == []


def test_what_the_machine_that_submitted_wrote_gives_way_to_what_a_node_describes():
    run = run_json(cpu="of a login node", **{occasions.PROVISIONAL: True})
    occasions.settle_environment(run, {name: HERE[name] for name in HERE if name not in ("machine", "device")})
    assert run["environment"] == HERE
    assert "environment" not in run["occasions"][1]


def test_a_machine_bears_the_name_that_is_given_now_or_was_given_then():
    named, unnamed = Run(machine="lab"), Run()
    assert occasions.machine_of(named, unnamed, ["append"]) == "lab"
    assert occasions.machine_of(unnamed, named, ["append", "machine"]) == "lab"
    assert occasions.machine_of(unnamed, named, ["append"]) == occasions.environment.machine_name(None)
