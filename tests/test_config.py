"""The rules of a run: each refusal names the field, and what is accepted survives the way through JSON."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from bench.config import (
    Budget,
    Checkpoint,
    Cluster,
    Data,
    Design,
    Fault,
    Faults,
    Job,
    Model,
    Recovery,
    Run,
    Storage,
    Train,
    run_from_json,
)
from bench.errors import BadInput

REFUSED = {
    "train.steps": lambda: Train(steps=0),
    "train.batch_size": lambda: Train(batch_size=-1),
    "train.lr": lambda: Train(lr=float("nan")),
    "train.warmup_steps": lambda: Train(warmup_steps=-1),
    "train.compute": lambda: Train(compute="imagined"),
    "train.step_s": lambda: Train(compute="paced"),
    "train.param_dtype": lambda: Train(param_dtype="float16"),
    "train.compute_dtype": lambda: Train(compute_dtype="float16"),
    "train.seq_len": lambda: Run(train=Train(seq_len=2048)),
    "model.layers": lambda: Model(layers=0),
    "model.heads": lambda: Model(dim=100, heads=3),
    "model.kv_heads": lambda: Model(dim=96, heads=6, kv_heads=4),
    "data.name": lambda: Data(name="source_txt"),
    "data.path": lambda: Data(name="tokens"),
    "data.dtype": lambda: Data(dtype="float32"),
    "data.max_bytes": lambda: Data(max_bytes=0),
    "checkpoint.arms": lambda: Checkpoint(arms=[]),
    "checkpoint.interval": lambda: Checkpoint(interval=True),
    "checkpoint.keep": lambda: Checkpoint(keep=0),
    "checkpoint.deadline_s": lambda: Checkpoint(deadline_s=0.0),
    "checkpoint.api": lambda: Checkpoint(api="magic"),
    "storage.provisioned_bytes_per_s": lambda: Storage(provisioned_bytes_per_s=-1.0),
    "design": lambda: Design(name="quik"),
    "design.settle_steps": lambda: Design(settle_steps=0),
    "design.warmup_saves": lambda: Design(warmup_saves=1),
    "job.period_s": lambda: Job(period_s=10.0, step_s=1.0, interval_steps=10),
    "job.step_s and job.interval_steps": lambda: Job(step_s=1.0),
    "budget.minutes": lambda: Budget(minutes=0.0),
    "budget.gpu_hours": lambda: Budget(gpu_hours=-2.0),
    "cluster": lambda: Cluster(name="lokal"),
    "num_nodes": lambda: Run(num_nodes=0),
    "ranks_per_node": lambda: Run(ranks_per_node=-1),
    "launches": lambda: Run(launches=0),
    "cycles": lambda: Run(cycles=2),
    "blocks": lambda: Run(blocks=0),
    "device": lambda: Run(device="tpu"),
    "price_per_gpu_hour": lambda: Run(price_per_gpu_hour=0.0),
    "launch_deadline_s": lambda: Run(launch_deadline_s=-1.0),
}


@pytest.mark.parametrize("field", REFUSED)
def test_a_value_that_cannot_work_is_refused_with_the_field_and_on_one_line(field):
    with pytest.raises(BadInput) as caught:
        REFUSED[field]()
    message = str(caught.value)
    assert message.startswith(f"{field}: ")
    assert "\n" not in message


def full(interval: int, steps: int = 43, warmup_steps: int = 3) -> Run:
    train = Train(steps=steps, warmup_steps=warmup_steps)
    return Run(design=Design(name="full"), train=train, checkpoint=Checkpoint(interval=interval))


def test_an_interval_longer_than_the_run_is_refused_with_the_steps_there_are():
    with pytest.raises(BadInput, match=r"checkpoint\.interval: 41 steps is longer than the run's 40 steps"):
        full(interval=41)


def test_a_full_design_without_room_for_one_measured_period_is_refused():
    """Two saves are not measured, and the period of the third ends at the fourth."""
    with pytest.raises(BadInput, match=r"train\.steps: must hold 4 intervals \(44 steps\) after warm-up.* got 40;"):
        full(interval=11)
    assert full(interval=10).checkpoint.interval == 10


@pytest.mark.parametrize(("design", "intervals"), [("full", []), ("sweep", [2, 8])])
def test_a_design_whose_costs_are_differences_from_the_control_is_refused_without_it(design, intervals):
    arms = Checkpoint(arms=["sync_local"], intervals=intervals)
    with pytest.raises(BadInput, match=rf"checkpoint\.arms: must name `none` in design={design}.*; add none"):
        Run(design=Design(name=design), checkpoint=arms)
    assert Run(checkpoint=Checkpoint(arms=["sync_local"])).design.name == "quick"


def test_a_sweep_of_one_interval_is_refused():
    with pytest.raises(BadInput, match=r"checkpoint\.intervals: has one interval.*design=full"):
        Run(design=Design(name="sweep"), checkpoint=Checkpoint(intervals=[8]))


INFINITE = {
    "budget.minutes": lambda: Budget(minutes=float("inf")),
    "price_per_gpu_hour": lambda: Run(price_per_gpu_hour=float("inf")),
    "train.weight_decay": lambda: Train(weight_decay=float("inf")),
    "recovery.backoff_s": lambda: Recovery(backoff_s=float("inf")),
    "checkpoint.synthetic.block_s": lambda: Run(checkpoint=Checkpoint(synthetic={"block_s": float("nan")})),
    "model.kwargs.scales": lambda: Run(model=Model(kwargs={"scales": [1.0, float("inf")]})),
    "model.rope_theta": lambda: Run(model=Model(rope_theta=float("inf"))),
}


@pytest.mark.parametrize("field", INFINITE)
def test_a_number_that_json_has_no_word_for_is_refused(field):
    with pytest.raises(BadInput, match=rf"^{field.replace('.', '[.]')}: must be .*(inf|nan)"):
        INFINITE[field]()


def test_a_limited_store_needs_writes_that_meet_the_limit_and_checkpoints_of_a_known_size():
    with pytest.raises(BadInput, match=r"^storage\.throttle_bytes_per_s: limits what is synced.*storage\.fsync=true"):
        Storage(throttle_bytes_per_s=1, fsync=False)
    limited, unknown = Storage(throttle_bytes_per_s=1), Model(target="package.Class")
    with pytest.raises(BadInput, match=r"^storage\.throttle_bytes_per_s: .* model\.target .*; leave it out"):
        Run(storage=limited, model=unknown)
    shapes = Run(storage=limited, model=unknown, state="shapes_of:x", train=Train(compute="paced", step_s=0.1))
    assert shapes.storage == limited, "the size is that of the checkpoint of given shapes"


def test_a_quick_design_takes_any_interval_as_it_only_states_a_period():
    assert Run(checkpoint=Checkpoint(interval=100_000)).checkpoint.interval == 100_000


def test_a_strategy_named_twice_is_refused():
    with pytest.raises(BadInput, match="names a strategy twice"):
        Checkpoint(arms=["none", "none"])


@pytest.mark.parametrize("interval", [0, -1, 1.5, "often", None])
def test_an_interval_is_a_whole_number_of_steps_or_auto(interval):
    with pytest.raises(BadInput, match=r"checkpoint\.interval: must be a whole number"):
        Checkpoint(interval=interval)


def test_a_run_cannot_be_changed_once_it_is_made():
    with pytest.raises(FrozenInstanceError):
        Run().seed = 1


def test_a_run_comes_back_from_json_as_it_was():
    run = Run(
        num_nodes=2,
        model=Model(name="own", target="package.Class", kwargs={"width": 3}),
        checkpoint=Checkpoint(arms=["none", "synthetic"], interval=7, synthetic={"block_s": 0.1}),
        cluster=Cluster(name="emulated", rehearsal=["model=small"]),
        budget=Budget(minutes=5.0),
    )
    assert run_from_json(json.loads(json.dumps(asdict(run)))) == run


def test_a_run_from_json_is_checked_again_and_unknown_fields_are_not_dropped():
    record = asdict(Run())
    with pytest.raises(BadInput, match="num_nodes"):
        run_from_json(record | {"num_nodes": 0})
    with pytest.raises(TypeError, match="invented"):
        run_from_json(record | {"invented": 1})


def test_the_parameters_of_the_decoder_are_counted_matrix_by_matrix():
    model = Model(vocab_size=10, dim=8, layers=2, heads=4, kv_heads=2, ffn_dim=16)
    queries_and_output, keys_and_values = 2 * 8 * 8, 2 * 8 * 4
    block = queries_and_output + keys_and_values + 3 * 8 * 16 + 2 * 8
    assert model.parameters == 2 * block + 2 * 10 * 8 + 8
    assert replace(model, tie_embeddings=True).parameters == model.parameters - 10 * 8


def test_checkpoint_bytes_are_weights_and_two_moments_in_their_own_type():
    model = Model(vocab_size=10, dim=8, layers=1, heads=2, kv_heads=2, ffn_dim=8)
    assert Run(model=model).predicted_checkpoint_bytes == model.parameters * 12
    halved = Run(model=model, train=Train(param_dtype="bfloat16"))
    assert halved.predicted_checkpoint_bytes == model.parameters * 6


def test_the_size_of_a_users_model_is_unknown_and_not_guessed():
    assert Run(model=Model(target="package.Class")).predicted_checkpoint_bytes is None


# --- faults and recovery
WITH_FAULTS = {
    "design": Design(name="recovery"),
    "checkpoint": Checkpoint(arms=["sync_dcp"], interval=6),
    "recovery": Recovery(layers=["in_process"]),
    "faults": Faults(given=[Fault("sigkill")]),
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recovery": Recovery()}, r"^recovery\.layers: goes with design=recovery"),
        ({"design": Design()}, r"^recovery\.layers: goes with design=recovery"),
        ({"design": Design(), "recovery": Recovery()}, r"^faults: strike in design=recovery only"),
        ({"faults": Faults()}, r"^faults: design=recovery needs at least one"),
        ({"checkpoint": Checkpoint(arms=["none"])}, r"^checkpoint\.arms: must name the one strategy"),
        ({"checkpoint": Checkpoint(arms=["sync_dcp", "none"])}, r"^checkpoint\.arms: must name the one strategy"),
        ({"recovery": Recovery(layers=["in_job", "in_job"])}, r"^recovery\.layers: names a layer twice"),
        ({"checkpoint": Checkpoint(arms=["sync_dcp"], interval=4)}, r"^checkpoint\.interval: must be at least 5"),
    ],
)
def test_what_a_run_with_faults_asks_of_its_parts_is_said_in_one_line(changes, message):
    assert Run(**WITH_FAULTS)
    with pytest.raises(BadInput, match=message):
        Run(**(WITH_FAULTS | changes))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fault("sigkill", at="stagging"), r"^faults\.at: unknown moment 'stagging' of sigkill; did you mean"),
        (lambda: Faults(count=3), r"^faults\.weights: faults\.count asks for drawn faults"),
        (lambda: Faults(count=3, weights={"sigkill": -1.0}), r"^faults\.weights"),
        (lambda: Faults(per_launch=0), r"^faults\.per_launch: must be greater than 0"),
        (lambda: Recovery(reserve=-1), r"^recovery\.reserve: must be 0 or more"),
        (lambda: Recovery(relaunch="me"), r"^recovery\.relaunch: must be coordinator or engine"),
        (lambda: Recovery(ft_monitoring="ears"), r"^recovery\.ft_monitoring: must be heartbeats or sections"),
        (lambda: Recovery(timeouts={"soft_s": 0}), r"^recovery\.timeouts\.soft_s: must be greater than 0"),
        (lambda: Cluster(container_runtime="docker"), r"^cluster\.container_runtime: must be pyxis or apptainer"),
    ],
)
def test_bad_values_of_faults_layers_and_engines_are_refused_by_name(make, message):
    with pytest.raises(BadInput, match=message):
        make()


def test_a_run_with_faults_survives_the_way_to_the_ranks():
    config = Run(**WITH_FAULTS)
    assert run_from_json(json.loads(json.dumps(asdict(config)))) == config
