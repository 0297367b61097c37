"""What a run is expected to take before anything was measured: every assumption is named and printed.

Once the pilot has run, its figures replace these (bench.node.pilot). Nothing here enters a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench import design
from bench.config import Run
from bench.design import Launch, settle_auto
from bench.node.pilot import FAULT_S, MIN_INTERVAL_STEPS, Pilot

H100_BF16_FLOPS = 989e12  # dense, per GPU (vendor's data sheet)
ASSUMED_MFU = 0.4
CPU_RANK_FLOPS = 60e9  # one core of a current server, fp32
GPU_STORE_BYTES_PER_S = 1e9  # per node, where storage.provisioned_bytes_per_s is not given
CPU_STORE_BYTES_PER_S = 0.4e9
STARTUP_S = {"cpu": 6.0, "cuda": 60.0}


@dataclass(frozen=True)
class Prediction:
    """Seconds, bytes and GPU-hours of a whole run, with the assumptions behind them in words."""

    checkpoint_bytes: int | None
    save_s: float | None
    seconds: float | None
    gpu_hours: float | None
    money: float | None
    assumptions: list[str]


def predict(config: Run, launches: Sequence[Launch], device: str) -> Prediction:
    """From sizes and assumed speeds. Unknown (None) for a user's model, whose size shows only when it is built."""
    size = config.predicted_checkpoint_bytes
    if size is None:
        return Prediction(
            None, None, None, None, None, ["a user's model is counted when it is built: see the pilot launch"]
        )
    pilot, (step_text, store_text) = _expected(config, size, device)
    save_s = max(pilot.blocking_s.values(), default=0.0)
    interval = config.checkpoint.interval if config.checkpoint.interval != "auto" else MIN_INTERVAL_STEPS
    seconds = sum(pilot.duration_s(settle_auto(launch, interval, config)) for launch in launches)
    hours = seconds * config.world_size / 3600
    money = hours * config.price_per_gpu_hour if config.price_per_gpu_hour is not None else None
    struck = sum(len(launch.faults) for launch in launches)
    texts = [
        step_text,
        store_text,
        f"{struck} faults, each a new start and {FAULT_S:.0f} s"
        if struck
        else "asynchronous arms as slow as synchronous ones",
        f"{STARTUP_S[device]:.0f} s from launch to first step",
    ]
    if config.checkpoint.interval == "auto" and config.design.name == "full":
        texts.append(f"checkpoint.interval=auto taken as {interval} steps")
    return Prediction(size, save_s, seconds, hours, money, texts)


def predict_design(config: Run, name: str) -> Prediction:
    """Of the same run in another design. Raises BadInput where its keys do not fit that design."""
    asked = config if name == config.design.name else replace(config, design=replace(config.design, name=name))
    return predict(asked, design.plan(asked), asked.device)


def expected_pilot(config: Run, device: str) -> Pilot | None:
    """What the pilot launch is expected to show; None for a user's model."""
    size = config.predicted_checkpoint_bytes
    return None if size is None else _expected(config, size, device)[0]


def expected_save_s(config: Run, size: int, device: str) -> float:
    """Of so many bytes, all ranks together."""
    return _save(config, size, device)[0]


def _expected(config: Run, size: int, device: str) -> tuple[Pilot, tuple[str, str]]:
    """As if all arms were synchronous; with the assumptions on steps and on the store in words."""
    step_s, step_text = _step(config, device)
    save_s, store_text = _save(config, size, device)
    blocking = {arm: 0.0 if arm == "none" else save_s for arm in config.checkpoint.arms}
    return Pilot(step_s, STARTUP_S[device], 2 * save_s + 5, blocking, blocking, blocking), (step_text, store_text)


def _step(config: Run, device: str) -> tuple[float, str]:
    if config.train.step_s is not None:
        return config.train.step_s, f"a paced step of {config.train.step_s} s"
    tokens = config.train.batch_size * config.train.seq_len
    flops = 6 * (config.model.parameters or 0) * tokens
    if device == "cuda":
        step_s = flops / (H100_BF16_FLOPS * ASSUMED_MFU)
        return step_s, f"a step of {step_s:.2f} s ({ASSUMED_MFU:.0%} of an H100's {H100_BF16_FLOPS / 1e12:.0f} TFLOP/s)"
    step_s = flops / CPU_RANK_FLOPS
    return step_s, f"a step of {step_s:.2f} s ({CPU_RANK_FLOPS / 1e9:.0f} GFLOP/s a rank)"


def _save(config: Run, size: int, device: str) -> tuple[float, str]:
    if config.storage.provisioned_bytes_per_s is not None:
        speed, source = config.storage.provisioned_bytes_per_s, "as provisioned"
    elif device == "cuda":
        speed, source = GPU_STORE_BYTES_PER_S * config.num_nodes, "1 GB/s a node; give storage.provisioned_bytes_per_s"
    else:
        speed, source = CPU_STORE_BYTES_PER_S, "a local disk"
    limit = config.storage.throttle_bytes_per_s
    if limit is not None and limit <= speed:
        return size / limit, f"a store of {limit / 1e6:.1f} MB/s (throttled)"
    return size / speed, f"a store of {speed / 1e9:.1f} GB/s ({source})"
