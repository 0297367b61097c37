"""Validity of the measured saves: enough of them, warm, steady, and holding what they should."""

from __future__ import annotations

from statistics import median

from bench.measure.content import content_verified, unread
from bench.measure.evidence import Evidence, Level, answer, listed
from bench.measure.saves import CONTROL_ARM
from bench.measure.statistics import drift_p, outliers
from bench.schema import Check, Sample

LEAST_SAVES = 10
LEAST_WARMUP_SAVES = 2
DRIFT_P = 0.01
DIRTY_SHARE = 0.10
CLOCK_DIGITS = 6  # microseconds: what taking a time stamp costs; smaller differences say nothing


def enough_saves(evidence: Evidence) -> Check:
    """At least 10 measured saves of every arm over the result."""
    few = [f"{arm.name} ({arm.cycles})" for arm in evidence.arms if arm.cycles < LEAST_SAVES]
    reason = (
        f"fewer than {LEAST_SAVES} measured saves: {listed(few)}"
        if few
        else f"every arm has {LEAST_SAVES} measured saves or more"
    )
    return answer(
        "enough_saves",
        "warn" if few else "ok",
        reason,
        "raise launches or cycles (full design: blocks or train.steps), or append=PATH",
    )


def arms_present(evidence: Evidence) -> Check:
    """Was every configured arm measured?"""
    missing = [arm.name for arm in evidence.arms if not evidence.measured(arm.name)]
    reason = f"no measured save of {listed(missing)}" if missing else "every arm was measured"
    return answer(
        "arms_present", "warn" if missing else "ok", reason, "raise the budget, or take the arms out of checkpoint.arms"
    )


def warmup(evidence: Evidence) -> Check:
    """No measured save among the first two of an arm in a launch."""
    inside = [s for s in evidence.samples if s.measured and s.save < LEAST_WARMUP_SAVES]
    described = listed(f"{s.arm} save {s.save} of launch {s.launch}" for s in inside)
    reason = f"warm-up saves are measured: {described}" if inside else "no warm-up save is measured"
    return answer(
        "warmup", "invalid" if inside else "ok", reason, "keep design.warmup_saves at 2 or more and run again"
    )


def saturated(evidence: Evidence) -> Check:
    """Does a background write outlast the period, so that saves wait for each other?"""
    waiting = [f"{arm.name} (period {arm.period_s:.3g} s)" for arm in evidence.arms if arm.saturated and arm.period_s]
    reason = f"saves wait for each other: {listed(waiting)}" if waiting else "no write outlasts the period"
    return answer(
        "saturated", "warn" if waiting else "ok", reason, "save less often than a write takes, or use faster storage"
    )


def drift(evidence: Evidence) -> Check:
    """No trend over time in an arm's cost or control step, at p < 0.01 over all tests together."""
    tested: list[tuple[str, float]] = []
    for arm in evidence.arms:
        for name in ("cost_s", "control_step_s"):
            values = (getattr(sample, name) for sample in evidence.measured(arm.name))
            series = [round(value, CLOCK_DIGITS) for value in values if value is not None]
            p = drift_p(series)
            if p is not None:
                tested.append((f"{name} of {arm.name} (p = {p:.1g})", p))
    found = [text for text, p in tested if p < DRIFT_P / len(tested)]
    if not tested:
        return answer("drift", "note", "too few measured saves to test for a trend", "raise cycles or launches")
    reason = (
        f"a trend over the cycles: {listed(found)}" if found else f"no trend over the cycles in {len(tested)} tests"
    )
    return answer(
        "drift",
        "warn" if found else "ok",
        reason,
        "look for heating, filling storage or other load; run again when it is steady",
    )


def sweep_agrees(evidence: Evidence) -> Check:
    """Does the longest interval predict what was measured at the shorter ones?"""
    if evidence.config["design"]["name"] != "sweep":
        return answer("sweep_agrees", "ok", "not a sweep: there is no other interval to predict", "")
    compared = [point for point in evidence.sweep if point.agree is not None]
    if not compared:
        reason = "no share at a shorter interval could be held against what the longest one predicts"
        remedy = (
            "see which launches failed (launches/<k>/logs) or had no room in the budget, and finish them by resume="
        )
        return answer("sweep_agrees", "warn", reason, remedy)
    differing = [f"{point.arm} every {point.interval_steps} steps" for point in compared if not point.agree]
    reason = (
        f"the share predicted from K and L of the longest interval meets the measured one at {len(compared)} points"
    )
    if differing:
        reason = (
            f"the share predicted from K and L of the longest interval misses the measured one: {listed(differing)}"
        )
    remedy = "S or K depends on the period (burst, caches, interference): trust the share at a measured period only"
    return answer("sweep_agrees", "warn" if differing else "ok", reason, remedy)


def outlying(evidence: Evidence) -> Check:
    """Marks saves whose cost lies far outside the others'; they stay in every figure."""
    found = []
    for arm in evidence.arms:
        costed = [s for s in evidence.measured(arm.name) if s.cost_s is not None]
        values = [s.cost_s for s in costed if s.cost_s is not None]
        found += [_named(costed[i]) for i in outliers(values, 10.0**-CLOCK_DIGITS)]
    reason = f"far from the others, and kept: {listed(found)}" if found else "no save is far from the others"
    return answer(
        "outliers", "note" if found else "ok", reason, "look at these saves in samples.parquet and in the trace"
    )


def _named(sample: Sample) -> str:
    return f"{sample.arm} save {sample.save} of launch {sample.launch} (K {sample.cost_s:.3g} s)"


def content(evidence: Evidence) -> Check:
    """Do the files hold the state at the moment of the call?"""
    writing = [arm.name for arm in evidence.arms if arm.written_bytes]
    verified = {name: content_verified(evidence.launches, name) for name in writing}
    wrong = [name for name, result in verified.items() if result is False]
    unchecked = [_unread(evidence, name) for name, result in verified.items() if result is None]
    level: Level = "invalid" if wrong else "warn" if unchecked else "ok"
    parts = [f"the files differ from the state that was saved: {listed(wrong)}"] if wrong else []
    parts += [f"not read back: {listed(unchecked)}"] if unchecked else []
    reason = "; ".join(parts) or "files read back equal the state that was saved"
    return answer(
        "content", level, reason, "do not use an arm that differs; read back with checkpoint.verify_content=true"
    )


def _unread(evidence: Evidence, arm: str) -> str:
    """The arm, with the reason where reading it was tried."""
    reasons = unread(evidence.launches, arm)
    return f"{arm} ({listed(reasons, 1)})" if reasons else arm


def client_memory(evidence: Evidence) -> Check:
    """How much of a checkpoint was only in the page cache when the save returned?

    The memory's figure is the whole host's, so what the arm without saves shows in the same launch is taken off.
    """
    shares = {arm.name: share for arm in evidence.arms if (share := _dirty_share(evidence, arm.name)) is not None}
    if not shares:
        reason = "bytes in the client's memory were not measured"
        return answer("client_memory", "note", reason, "needs a readable /proc/meminfo on every node")
    high = [f"{name} {share:.0%}" for name, share in shares.items() if share > DIRTY_SHARE]
    level: Level = "ok" if not high else "warn" if evidence.config["storage"]["fsync"] else "note"
    reason = f"written bytes that were still in memory when the save returned: {listed(high)}"
    if not high:
        reason = f"at most {DIRTY_SHARE:.0%} of the written bytes were still in memory when a save returned"
    remedy = (
        "see that fsync reaches the storage and nothing else writes; without storage.fsync durable_s is the cache's"
    )
    return answer("client_memory", level, reason, remedy)


def _dirty_share(evidence: Evidence, arm: str) -> float | None:
    """Median share of the written bytes, above the background of the same launch; None if not measured."""
    background: dict[int, list[int]] = {}
    for sample in evidence.measured(CONTROL_ARM):
        if sample.dirty_bytes is not None:
            background.setdefault(sample.launch, []).append(sample.dirty_bytes)
    found = [
        (s.dirty_bytes - median(background.get(s.launch, [0]))) / s.written_bytes
        for s in evidence.measured(arm)
        if s.dirty_bytes is not None and s.written_bytes
    ]
    return median(found) if found else None
