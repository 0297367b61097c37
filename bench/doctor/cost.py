"""What the run would take: duration, GPU-hours and money of the quick and the full design; timeouts in order."""

from __future__ import annotations

from collections.abc import Iterator

from bench.config import Run
from bench.doctor.base import Case, Check
from bench.errors import BadInput
from bench.measure.mfu import flops_per_token
from bench.predict import ASSUMED_MFU, CPU_RANK_FLOPS, H100_BF16_FLOPS, STARTUP_S, Prediction, predict, predict_design
from bench.recovery import timeouts

DESIGNS = ("quick", "full")


def examine(case: Case) -> Iterator[Check]:
    own = case.config.design.name
    for name in (own, *(each for each in DESIGNS if each != own)) if own in DESIGNS else (own,):
        yield cost(case.config, name)
    yield order(case.config)


def cost(config: Run, name: str) -> Check:
    """By assumptions that a dry run prints; a pilot launch replaces them."""
    title = f"cost, {name}"
    try:
        expected = predict_design(config, name)
    except BadInput as error:
        return Check(title, "skip", f"not with these keys: {error}")
    if expected.seconds is None:
        return Check(title, "skip", expected.assumptions[0])
    found = _amount(config, expected)
    if name == config.design.name:
        found += f"; assumed until the pilot launch: {'; '.join(expected.assumptions[:2])}"
    limit = config.budget.minutes
    if limit is not None and expected.seconds > limit * 60:
        remedy = "fewer launches or cycles, or a larger budget.minutes; what no longer fits is not started"
        return Check(title, "warn", f"{found}; the budget ends it after {limit:g} min", remedy)
    return Check(title, "ok", found)


def _amount(config: Run, expected: Prediction) -> str:
    minutes, unit = (expected.seconds or 0.0) / 60, "GPU-hours" if config.device == "cuda" else "slot-hours"
    money = "money: give price_per_gpu_hour" if expected.money is None else f"{expected.money:.2f} in your currency"
    return f"about {minutes:.1f} min, {expected.gpu_hours:.2f} {unit}, {money}"


# --- timeouts
def order(config: Run) -> Check:
    """Of the set that follows from predicted times and recovery.timeouts; the pilot's times replace the predicted."""
    name, times = "timeouts", predicted_times(config)
    layers = {config.recovery.layer, *config.recovery.layers} - {"none"}
    if not layers and not config.recovery.timeouts:
        return Check(name, "skip", "the run has no recovery layer")
    if times is None:
        return Check(name, "skip", "a user's model is timed by the pilot launch")
    step_s, save_s, startup_s = times
    derived = timeouts.derive(step_s, save_s, startup_s, config.recovery.timeouts)
    wrong = derived.problems()
    if wrong:
        found, _, remedy = wrong[0].rpartition("; ")
        return Check(name, "fail", found, remedy)
    limits = {"in_job": derived.rank_heartbeat_s, "in_process": derived.soft_s, "others": derived.collective_alone_s}
    text = ", ".join(f"{limit_s:.0f} s ({layer})" for layer, limit_s in limits.items())
    return Check(name, "ok", f"in order; a hang is found after {text}, by predicted times")


def predicted_times(config: Run) -> tuple[float, float, float] | None:
    """(step, longest save, start) in seconds, by the assumptions of bench.predict; None for a user's model."""
    save_s = predict(config, [], config.device).save_s
    if save_s is None:
        return None
    startup_s = STARTUP_S[config.device]
    if config.train.step_s is not None:
        return config.train.step_s, save_s, startup_s
    flops = flops_per_token(vars(config.model), config.train.seq_len)
    if flops is None:
        return None
    speed = H100_BF16_FLOPS * ASSUMED_MFU if config.device == "cuda" else CPU_RANK_FLOPS
    return flops * config.train.batch_size * config.train.seq_len / speed, save_s, startup_s
