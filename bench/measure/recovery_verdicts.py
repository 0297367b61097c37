"""Published recovery times held against a result (metrics.md 3): by rule on the interval's ends, in words.

A time holds if the whole interval lies within a factor 1.5 of it, does not if the whole interval lies outside. Times of
CPU ranks and of rehearsals are not a cluster's, so only ratios are judged there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import exp, log

from bench.measure.layers import recovery_figure
from bench.measure.statistics import clustered_figure, figure
from bench.measure.verdicts import Outcome
from bench.schema import Figure, Recovery, Verdict

FACTOR = 1.5
PUBLISHED_S = {"recovery_in_process": 10.0, "recovery_in_job": 17.0, "recovery_orchestrator": 270.0}
# Whose recoveries a claim is about: the layer of the launch, which must also be the one that brought the job back.
LAYERS = {
    "recovery_in_process": ("in_process",),
    "recovery_in_job": ("in_job",),
    "recovery_orchestrator": ("requeue", "pod_restart"),
}
_WORDS = {
    "holds": "holds here",
    "does_not_hold": "does not hold here",
    "not_decided": "is not decided: the interval spans the limit, so more episodes are needed",
    "not_measured": "was not measured",
}


def recovery_verdicts(recoveries: Sequence[Recovery], on_cluster_gpus: bool) -> list[Verdict]:
    """The verdicts on recovery times, their ratios and what they consist of."""
    groups = {claim: _representative(recoveries, layers) for claim, layers in LAYERS.items()}
    common = _common_faults([records for records in groups.values() if records])
    chosen = {
        claim: [r for r in records if r.label in common] if common else records for claim, records in groups.items()
    }
    times = [_time(claim, records, on_cluster_gpus) for claim, records in chosen.items()]
    return [*times, _ratios(chosen, common), load_dominates(recoveries)]


def _representative(recoveries: Sequence[Recovery], layers: Sequence[str]) -> list[Recovery]:
    return [
        record
        for record in recoveries
        if record.layer in layers
        and record.layer_used == record.layer
        and record.outcome == "recovered"
        and record.single
        and record.time_to_recover_s is not None
    ]


def _common_faults(groups: Sequence[Sequence[Recovery]]) -> set[str]:
    """The faults that all of them recovered from: a median over others would compare faults and not layers."""
    found = [{record.label for record in records} for records in groups]
    return set.intersection(*found) if found else set()


# --- times ------------------------------------------------------------------------------------------------------------
def _time(claim: str, records: Sequence[Recovery], on_cluster_gpus: bool) -> Verdict:
    published_s = PUBLISHED_S[claim]
    published, who = f"{published_s:g} s", " and ".join(LAYERS[claim])
    found = recovery_figure(records, "time_to_recover_s")
    if found is None:
        text = f"Not measured: no fault was recovered from by {who} with a known time."
        return Verdict(claim, published, None, "not_measured", text)
    measured = _in_seconds(found)
    text = f"A recovery by {who} takes {measured} from the fault to the first step, over {_faults(records)}"
    if not on_cluster_gpus:
        text += "; no GPUs of a cluster took part, so only ratios are judged."
        return Verdict(claim, published, measured, "not_measured", text)
    outcome = within(found, published_s)
    text += f"; {published} within a factor {FACTOR} {_WORDS[outcome]}."
    return Verdict(claim, published, measured, outcome, text)


def within(found: Figure, published: float) -> Outcome:
    """Whether an interval lies within a factor FACTOR of what is published."""
    low, high = published / FACTOR, published * FACTOR
    if low <= found.low and found.high <= high:
        return "holds"
    return "does_not_hold" if found.high < low or found.low > high else "not_decided"


# --- ratios -----------------------------------------------------------------------------------------------------------
def _ratios(chosen: dict[str, list[Recovery]], common: set[str]) -> Verdict:
    """10 : 17 : 270, each pair fault by fault in logs; all pairs that were measured must hold."""
    claim, published = "recovery_ratios", " : ".join(f"{seconds:g}" for seconds in PUBLISHED_S.values())
    measured = [name for name in PUBLISHED_S if chosen[name]]
    if len(measured) < 2 or not common:
        text = "Not measured: two layers with a recovery from the same fault are needed."
        return Verdict(claim, published, None, "not_measured", text)
    parts, outcomes = [], []
    for faster, slower in combinations(measured, 2):
        found, expected = _ratio(chosen[faster], chosen[slower], common), PUBLISHED_S[slower] / PUBLISHED_S[faster]
        outcomes.append(within(found, expected))
        names = (name.removeprefix("recovery_") for name in (slower, faster))
        parts.append(f"{' / '.join(names)} = {_ratio_words(found)} (published {expected:.3g})")
    outcome = _all_of(outcomes)
    text = f"{'; '.join(parts)}; paired over {_names(common)}; within a factor {FACTOR} {_WORDS[outcome]}."
    return Verdict(claim, published, "; ".join(parts), outcome, text)


def _ratio(faster: Sequence[Recovery], slower: Sequence[Recovery], common: set[str]) -> Figure:
    """Ratio of the medians of each fault, and their median over the faults. `common` is not empty."""
    logs = []
    for label in sorted(common):
        a, b = (_time_of(label, records) for records in (faster, slower))
        if a is not None and b is not None:
            logs.append(log(b.median / a.median))
    found = figure(logs)
    assert found is not None, "every common fault has a time on both sides"
    return Figure(exp(found.median), exp(found.low), exp(found.high), found.n, found.interval)


def _time_of(label: str, records: Sequence[Recovery]) -> Figure | None:
    return recovery_figure([record for record in records if record.label == label], "time_to_recover_s")


def _all_of(outcomes: Sequence[Outcome]) -> Outcome:
    if "does_not_hold" in outcomes:
        return "does_not_hold"
    return "not_decided" if "not_decided" in outcomes else "holds"


# --- parts ------------------------------------------------------------------------------------------------------------
def load_dominates(recoveries: Sequence[Recovery]) -> Verdict:
    """Is loading the checkpoint the largest part of a recovery from one fault?

    On load over the largest other part, per episode.
    """
    claim, published = "load_dominates", "loading the checkpoint is the largest part of a recovery"
    recovered = [record for record in recoveries if record.outcome == "recovered" and record.single]
    ratios = [(ratio, record.launch) for record in recovered if (ratio := _load_ratio(record))]
    found = clustered_figure([ratio for ratio, _ in ratios], [launch for _, launch in ratios], positive=True)
    if found is None:
        text = "Not measured: no recovery loaded a checkpoint and has all of its parts."
        return Verdict(claim, published, None, "not_measured", text)
    outcome: Outcome = "holds" if found.low > 1 else "does_not_hold" if found.high < 1 else "not_decided"
    measured = f"{_ratio_words(found)} times the largest other part"
    return Verdict(claim, published, measured, outcome, f"Loading takes {measured}; the claim {_WORDS[outcome]}.")


def _load_ratio(record: Recovery) -> float | None:
    """None where a part is missing or nothing was loaded."""
    others = [record.detect_s, record.stop_s, record.restart_s, record.first_step_s]
    others += [] if record.queue_s is None else [record.queue_s]
    known = [seconds for seconds in others if seconds is not None]
    if not record.load_s or len(known) < len(others) or max(known) <= 0:
        return None
    return record.load_s / max(known)


# --- words ------------------------------------------------------------------------------------------------------------
_INTERVALS = {"ci95": "95 % interval", "range": "range", "within_run": "within one run"}


def _in_seconds(found: Figure) -> str:
    return _with_interval(found, lambda value: f"{value:.3g}", " s")


def _ratio_words(found: Figure) -> str:
    return _with_interval(found, lambda value: f"{value:.3g}", "")


def _with_interval(found: Figure, form: Callable[[float], str], unit: str) -> str:
    ends = f"{_INTERVALS[found.interval]} {form(found.low)} to {form(found.high)}{unit}"
    return f"{form(found.median)}{unit} ({ends}, n = {found.n})"


def _faults(records: Sequence[Recovery]) -> str:
    return _names({record.label for record in records})


def _names(labels: set[str]) -> str:
    shown = sorted(labels)
    return "; ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")
