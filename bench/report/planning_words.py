"""A plan in words: the two honest lines, the paragraph for a planning review, and quantities in their units."""

from __future__ import annotations

from collections.abc import Callable

from bench.plan.answer import Answer, AtPeriod
from bench.plan.label import Input
from bench.plan.savings import Breakeven, Saving
from bench.plan.sensitivity import Bar
from bench.report.words import MISSING, digits, duration, percent, seconds, size


def notes(found: Answer) -> list[str]:
    """What a reader must know before any figure."""
    results = found.inputs.results
    same = found.inputs.by_name["save.cost_s"].value == found.inputs.by_name["baseline.cost_s"].value
    alike = ["save.* is a synchronous save, there is no asynchronous one to compare; give save.durable_s."] * same
    if not results:
        nothing = "Nothing here was measured: every input is an assumption or was stated."
        return [*alike, f"{nothing} Give run=RESULT of `bench run`."]
    texts = [*alike, *(f"from {each.name}" for each in results)]
    if any(each.summary["rehearsal"] for each in results):
        texts.append("A REHEARSAL on emulated nodes stands behind this: no cluster's figures.")
    if not all(each.on_gpus for each in results):
        texts.append("Saves were not measured on GPUs of this cluster: all of them count as extrapolated.")
    return texts


def honest_lines(found: Answer) -> list[str]:
    """The cost at the user's period, and each kind of save at its own best one."""
    period_s = found.inputs.period_s
    at = "; ".join(_at_period(each) for each in found.at_period)
    best = "; ".join(
        f"{each.save} every {long(each.period_s)}: {percent(each.checkpoint_share)}, goodput {percent(each.goodput)}"
        for each in found.at_best
    )
    return [
        f"At your period of {long(period_s)} checkpoints cost, of GPU time: {at}.",
        f"Each at its own best period: {best}. A large share at one period is a choice of that period.",
    ]


def _at_period(each: AtPeriod) -> str:
    if each.checkpoint_share is None:
        return f"{each.save} cannot keep it, a save takes longer"
    waits = f" (waits for its writes: every {long(each.period_s)})" if each.waits_for_writes else ""
    return f"{each.save} {percent(each.checkpoint_share)}{waits}, goodput {percent(each.goodput)}"


def paragraph(found: Answer) -> str:
    """Buy GPUs or deploy a layer: for a planning review."""
    best, gpus = found.saving(found.decision), found.inputs.plan.gpus
    shares = f"{percent(best.low)} to {percent(best.high)}"
    if best.low <= 0 < best.high and best.share > 0:
        text = (
            f"Not decided: on {gpus} GPUs {best.name} saves most, but anything from {shares} of GPU time; "
            f"{percent(best.share)} with the inputs as listed. Narrow the deciding input first."
        )
    elif best.share <= 0:
        outcome = f"best: {best.name}, {percent(best.share)}; {shares}"
        text = f"On {gpus} GPUs no layer saves GPU time at this period ({outcome})."
    else:
        text = (
            f"{_buy(best)} save {percent(best.share)} of {gpus} GPUs by {best.name} "
            f"({shares} over the inputs' ranges). "
            f"That is {digits(best.gpu_hours_a_month)} GPU-hours and {digits(best.money_a_month)} in money a month, at "
            f"{number(found.cost['price_per_gpu_hour'])} a GPU-hour."
        )
    label = f"Figures are {found.label}; the failure rate is assumed, as no short test can measure one."
    return f"{text} {_decided(found)}{label}"


def _buy(best: Saving) -> str:
    if best.gpus is None or best.gpus_low is None or best.gpus_high is None:
        return "No number of GPUs makes today's set-up useful at this period:"
    return f"Buy {count(best.gpus)} GPUs ({count(best.gpus_low)} to {count(best.gpus_high)}), or"


def _decided(found: Answer) -> str:
    if not found.bars:
        return ""
    top, share = found.bars[0], found.saving(found.decision).share
    reverses = ", which alone can reverse it" if min(top.at_low, top.at_high) <= 0 < share else ""
    return f"The answer is decided by {top.name} ({top.kind}){reverses}. "


def breakeven(each: Saving) -> str:
    """At which failure rates a layer pays, and at which sizes if its times stay as they are."""
    dear = "" if each.pays_if_dear is None else f"; at the upper end of its price {_rate(each.pays_if_dear)}"
    return f"{_rate(each.pays)}{dear}"


def _rate(found: Breakeven) -> str:
    if found.rate is None or found.nodes is None:
        return found.pays
    return f"{found.pays} {digits(found.rate)} per 1,000 node-days, or {digits(found.nodes)} nodes"


def price_limits(found: Answer) -> str:
    """The fault-free prices (shares of GPU time) from which on the layers no longer pay."""
    limits = [
        f"{each.name} {each.breakeven_overhead_share * 100:.3f} %"
        for each in found.savings
        if each.breakeven_overhead_share > 0
    ]
    return f"Pays only while its fault-free price, in GPU time, is below: {', '.join(limits) or MISSING}."


def doubt(in_range: bool, valid_for: str) -> str:
    return "" if in_range else f" (valid only for {valid_for})"


# --- quantities
def quantity(value: float, unit: str) -> str:
    """A value in its unit's own words."""
    words: dict[str, Callable[[float], str]] = {
        "s": long,
        "share": lambda v: f"{v * 100:.3g} %",
        "B/s": lambda v: f"{size(v)}/s",
        "B": size,
        "parameters": lambda v: f"{digits(v / 1e9)}e9",
    }
    return words[unit](value) if unit in words else f"{value:g}"


def long(value: float) -> str:
    """Seconds up to two minutes, then coarser."""
    return seconds(value) if value < 120 else duration(value)


def number(value: float | None) -> str:
    return MISSING if value is None else digits(value)


def count(value: float) -> str:
    """GPUs: whole ones from 10 on."""
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}"


def span(low: float, high: float, form: Callable[[float], str]) -> str:
    return form(low) if low == high else f"{form(low)} to {form(high)}"


def ends_of(bar: Bar, unit: str) -> str:
    if bar.low is None or bar.high is None:
        return bar.ends or MISSING
    return f"{quantity(bar.low, unit)} to {quantity(bar.high, unit)}"


def range_of(each: Input) -> str:
    if each.low is None or each.high is None:
        return ""
    return f"{quantity(each.low, each.unit)} to {quantity(each.high, each.unit)}"
