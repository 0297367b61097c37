"""Does a save take as long when it comes after more compute? The shares at a job's period rest on that."""

from __future__ import annotations

from statistics import median

from bench.measure.evidence import Evidence, Level, answer, listed
from bench.measure.saves import CONTROL_ARM
from bench.measure.statistics import shift_ratio
from bench.schema import Check, Figure, Sample

TOLERANCE = 0.10  # of S
RESOLUTION_S = 0.002  # what the instrument tells apart: smaller differences of S are none
REMEDY = (
    "burst credits, caches or clocks: trust shares at measured periods only (design=full at your interval, or sweep)"
)


def extrapolation(evidence: Evidence) -> Check:
    """S of the saves that came after three times the compute, against the others of the same launches."""
    if evidence.config["design"]["name"] != "quick":
        return answer("extrapolation", "ok", "saves come at the periods that the shares are stated for", "")
    stretched, arms = _stretched(evidence), [arm.name for arm in evidence.arms if arm.name != CONTROL_ARM]
    found = {arm: ratio for arm in arms if (ratio := _ratio(evidence.measured(arm), stretched)) is not None}
    if not found:
        reason = "no save came after three times the compute, so nothing says that S holds at longer periods"
        return answer("extrapolation", "note", reason, "raise cycles to 5 or more")
    told = {name: f"{name} {_times(ratio)}" for name, (ratio, _) in found.items()}
    differing = [told[name] for name, (ratio, far) in found.items() if far and _resolved(ratio)]
    if differing:
        reason = f"S depends on the period: after three times the compute a save blocks {listed(differing)} as long"
        return answer("extrapolation", "warn", reason, REMEDY)
    wide = [told[name] for name, (ratio, _) in found.items() if ratio.low < 1 - TOLERANCE or ratio.high > 1 + TOLERANCE]
    level: Level = "note" if wide else "ok"
    reason = "after three times the compute a save blocks as long as otherwise, within 10 %"
    if wide:
        reason = (
            f"no difference of S after three times the compute is resolved, but 10 % remain possible: {listed(wide)}"
        )
    return answer("extrapolation", level, reason, "raise launches or cycles, or append=PATH")


def _ratio(saves: list[Sample], stretched: set[tuple[int, int, str]]) -> tuple[Figure, bool] | None:
    """Ratio of S of an arm's stretched saves to its others, and whether they lie more than 10 % and 2 ms apart.

    None without both. Both kinds come from the same launches.
    """
    known = [sample for sample in saves if sample.blocking_s]
    long = [sample for sample in known if (sample.launch, sample.cycle, sample.arm) in stretched]
    launches = {sample.launch for sample in long}
    short = [sample for sample in known if sample not in long and sample.launch in launches]
    if not long or not short:
        return None
    ratio = shift_ratio(*_columns(short), *_columns(long))
    if ratio is None:
        return None
    apart, others_s = abs(ratio.median - 1), median(_columns(short)[0])
    return ratio, apart > TOLERANCE and apart * others_s > RESOLUTION_S


def _columns(samples: list[Sample]) -> tuple[list[float], list[int]]:
    return [sample.blocking_s or 0.0 for sample in samples], [sample.launch for sample in samples]


def _stretched(evidence: Evidence) -> set[tuple[int, int, str]]:
    """(launch, cycle, arm) of the measured segments with more control steps than others of their launch."""
    found = set()
    for launch in evidence.measured_launches:
        segments = [segment for segment in launch.launch["segments"] if segment["measured"]]
        least = min((segment["control_steps"] for segment in segments), default=0)
        found |= {(launch.index, s["cycle"], s["arm"]) for s in segments if s["control_steps"] > least}
    return found


def _resolved(ratio: Figure) -> bool:
    return ratio.low > 1 or ratio.high < 1


def _times(ratio: Figure) -> str:
    return f"{ratio.median:.2f} times [{ratio.low:.2f}, {ratio.high:.2f}]"
