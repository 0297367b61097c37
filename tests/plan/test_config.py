"""What a user states is checked where it enters, and the message names the key, the rule and the remedy."""

from __future__ import annotations

import pytest

from bench.errors import BadInput
from bench.plan.config import Cluster, Failures, Job, Model, Plan, Recovery, Save, Simulation, Storage

WRONG = {
    "a negative blocking time": (lambda: Save(blocking_s=-1.0), "save.blocking_s: must be 0 or more"),
    "a negative cost": (lambda: Save(cost_s=-1.0), "save.cost_s: must be 0 or more"),
    "a whole slowdown": (lambda: Save(slowdown=1.0), "save.slowdown: is a fraction of 1"),
    "durable before it returns": (lambda: Save(2.0, None, 1.0), "save.durable_s: counts from the call"),
    "no blocking time": (lambda: Save(None, 1.0, 5.0), "save.blocking_s: is missing"),
    "an unknown layer": (
        lambda: Recovery(layer="in_jb"),
        "recovery.layer: unknown recovery layer 'in_jb'; did you mean",
    ),
    "a negative recovery": (lambda: Recovery(seconds=-1.0), "recovery.seconds: must be 0 or more"),
    "a negative price of a layer": (lambda: Recovery(in_job_overhead_share=-0.1), "recovery.in_job_overhead_share"),
    "no rate": (Failures, "failures.per_1000_node_days: is not stated"),
    "a rate of zero": (lambda: Failures(per_1000_node_days=0.0), "failures.per_1000_node_days: must be greater than 0"),
    "a negative rate": (
        lambda: Failures(per_1000_node_days=-3.0),
        "failures.per_1000_node_days: must be greater than 0",
    ),
    "a rate that is no number": (lambda: Failures(per_1000_node_days=float("nan")), "failures.per_1000_node_days"),
    "an odd shape": (lambda: Failures(per_1000_node_days=1.0, weibull_shape=0.01), "failures.weibull_shape: must lie"),
    "gaps of zero": (lambda: Failures(per_1000_node_days=1.0, gaps=[1.0, 0.0]), "failures.gaps: are times"),
    "half a range of rates": (lambda: Failures(per_1000_node_days=1.0, rate_range=[2.0]), "failures.rate_range: needs"),
    "no nodes": (lambda: Cluster(nodes=0), "cluster.nodes: must be greater than 0"),
    "too many nodes": (lambda: Cluster(nodes=10**7), "cluster.nodes: must be at most"),
    "no GPUs": (lambda: Cluster(gpus_per_node=0), "cluster.gpus_per_node: must be greater than 0"),
    "a price of zero": (lambda: Cluster(price_per_gpu_hour=0.0), "cluster.price_per_gpu_hour: must be greater than 0"),
    "negative spares": (lambda: Cluster(spares=-1), "cluster.spares: must be 0 or more"),
    "a repair of no time": (lambda: Cluster(repair_s=0.0), "cluster.repair_s: must be greater than 0"),
    "no days": (lambda: Job(days=0.0), "job.days: must be greater than 0"),
    "no parameters": (lambda: Model(params=0.0), "model.params: must be greater than 0"),
    "no bytes": (lambda: Model(bytes_per_param=-1.0), "model.bytes_per_param: must be greater than 0"),
    "no bandwidth": (lambda: Storage(write_bytes_per_s=0.0), "storage.write_bytes_per_s: must be greater than 0"),
    "no job": (lambda: Storage(concurrent_jobs=0), "storage.concurrent_jobs: must be greater than 0"),
    "no save in the store": (lambda: Storage(shared_every=0), "storage.shared_every: must be greater than 0"),
    "one replicate": (lambda: Simulation(replicates=1), "simulation.replicates: must lie between"),
    "a period of zero": (lambda: Plan(period_s=0.0), "period_s: must be greater than 0"),
    "a number as a result": (lambda: Plan(run=3), "run: must be a result folder"),
    "a result named twice": (lambda: Plan(run=["a", "a"]), "run: names a result twice"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_refused_by_name_and_rule(case):
    make, message = WRONG[case]
    with pytest.raises(BadInput) as error:
        make()
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_results_are_a_list_however_they_are_given():
    assert Plan().runs == []
    assert Plan(run="a").runs == ["a"]
    assert Plan(run=["a", "b"]).runs == ["a", "b"]


def test_a_save_may_cost_nothing():
    assert Save(blocking_s=0.0).blocking_s == 0
