"""A plan on the terminal: the inputs with their kind, the answers with their label, and a paragraph for the review."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.plan.answer import Answer, AtPeriod
from bench.plan.inputs import Input
from bench.plan.savings import Saving
from bench.report.words import MISSING, digits, duration, percent, seconds, size

PLAIN_WIDTH = 120  # of output that goes to a file or a pipe
BAR_WIDTH = 24
TORNADO_ROWS = 8
PARTS_IN_WORDS = {
    "useful": "steps that counted",
    "replay": "steps that a failure made worthless",
    "ckpt_stall": "training stands inside a save",
    "interference": "slower steps while a write is in flight",
    "recovery": "from a failure to the first new step",
    "idle": "waiting for a node",
    "overhead": "fault-free price of the layers, idle spares",
}


class Planning:
    """Writes an answer to standard output, or to the console given. Computes no figure of its own."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        if console is None and not self.console.is_terminal:
            self.console.width = PLAIN_WIDTH

    def say(self, text: str = "", style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)

    def title(self, text: str, label: str = "") -> None:
        self.say(f"\n{text}{f' ({label})' if label else ''}", "bold")

    def show(self, found: Answer) -> None:
        for section in (
            self.headline,
            self.inputs,
            self.periods,
            self.time,
            self.savings,
            self.sensitivity,
            self.sizes,
            self.cost,
        ):
            section(found)
        self.title("For the review", found.label)
        self.say(paragraph(found))

    # --- sections
    def headline(self, found: Answer) -> None:
        cluster = found.inputs.plan.cluster
        self.say(f"Plan for {found.inputs.plan.gpus} GPUs in {cluster.nodes} nodes", "bold")
        if found.inputs.plan.about:
            self.say(f"  {found.inputs.plan.about}")
        for text in notes(found):
            self.say(f"  {text}", "yellow")
        self.title("The two honest lines", found.label)
        for line in honest_lines(found):
            self.say(f"  {line}")
        closed, simulated = found.closed, found.simulated
        error = simulated.standard_error * found.simulated_share
        self.say(
            f"  goodput at your period: {percent(closed.value)} by {closed.formula}{doubt(closed.in_range, closed.valid_for)}, "
            f"{percent(simulated.goodput * found.simulated_share)} +- {error * 100:.2f} simulated; "
            f"over the inputs' ranges {percent(found.goodput_range[0])} to {percent(found.goodput_range[1])}"
        )
        ettr = found.ettr
        linear = percent(ettr.value) if ettr.in_range else f"outside its range ({ettr.valid_for})"
        self.say(f"  linear effective training time ratio: {linear}")

    def inputs(self, found: Answer) -> None:
        self.title("Inputs")
        rows = [
            (each.name, quantity(each.value, each.unit), _range(each), each.kind, each.source)
            for each in found.inputs.by_name.values()
        ]
        self._table(("input", "value", "range", "kind", "source"), rows, wrap="source")

    def periods(self, found: Answer) -> None:
        self.title("Best period", found.label)
        self.say(f"  one failure in {long(found.mtbf_s)}")
        rows = [
            (
                best.save,
                long(best.period_s),
                f"{long(best.flat_low_s)} to {long(best.flat_high_s)}",
                percent(at.goodput),
            )
            for best, at in zip(found.best, found.at_best, strict=True)
        ]
        self._table(("saves by", "best period", "within 1 % of it", "goodput there"), rows)
        texts = []
        for name, each in found.intervals.items():
            texts.append(f"{name[:-2]} {long(each.value)}{'' if each.in_range else ' (out of range)'}")
        self.say(
            f"  work between saves of {seconds(found.inputs.by_name['save.blocking_s'].value)}: {', '.join(texts)}",
            "dim",
        )

    def time(self, found: Answer) -> None:
        self.title("Where the GPU time goes at your period, simulated", found.label)
        rows = [
            (
                part.category,
                percent(part.share),
                f"{percent(part.low)} to {percent(part.high)}",
                PARTS_IN_WORDS[part.category],
            )
            for part in found.parts
        ]
        self._table(("category", "share", "95 % of jobs", ""), rows)

    def savings(self, found: Answer) -> None:
        self.title(
            "What each layer saves at your period, against synchronous saves and a restart of the whole job",
            found.label,
        )
        rows = [
            (
                each.name,
                f"{percent(each.share)} [{each.low * 100:.2f}, {each.high * 100:.2f}]",
                digits(each.gpu_hours_a_month),
                digits(each.money_a_month),
                breakeven(each),
            )
            for each in found.savings
        ]
        self._table(("layer", "saves of all GPU time", "GPU-h a month", "money a month", "pays"), rows, wrap="pays")

    def sensitivity(self, found: Answer) -> None:
        self.title(f"What decides the saving of {found.decision}", found.label)
        bars = found.bars[:TORNADO_ROWS]
        widest = max((bar.swing for bar in bars), default=0.0)
        units = {name: each.unit for name, each in found.inputs.by_name.items()}
        rows = [
            (
                bar.name,
                bar.kind,
                f"{quantity(bar.low, units.get(bar.name, ''))} to {quantity(bar.high, units.get(bar.name, ''))}",
                f"{percent(bar.at_low)} to {percent(bar.at_high)}",
                "#" * max(round(BAR_WIDTH * bar.swing / widest), 1),
            )
            for bar in bars
        ]
        self._table(("input", "kind", "from ... to", "saving", ""), rows)

    def sizes(self, found: Answer) -> None:
        self.title("Over cluster sizes, each at its best period; bounds: perfect scaling and none")
        rows = [
            (
                str(row.gpus),
                long(row.mtbf_s),
                span(row.today.low, row.today.high, percent),
                span(row.together.low, row.together.high, percent),
                span(row.best_period_s.low, row.best_period_s.high, long),
                row.kind,
            )
            for row in found.sizes
        ]
        self._table(("GPUs", "a failure in", "goodput today", "all layers", "best period", "kind"), rows)

    def cost(self, found: Answer) -> None:
        self.title("Money, at your period", found.label)
        cost = found.cost
        useful = cost["per_useful_gpu_hour"]
        self.say(
            f"  {number(cost['idle_per_day'])} a day for GPU time that is not useful; "
            f"{MISSING if useful is None else digits(useful)} for a useful GPU-hour at {number(cost['price_per_gpu_hour'])}; "
            f"{number(cost['per_failure'])} for each failure"
        )

    def _table(self, heads: Sequence[str], rows: Iterable[Sequence[str]], wrap: str = "") -> None:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for head in heads:
            table.add_column(head, no_wrap=head != wrap, overflow="fold")
        for row in rows:
            table.add_row(*row)
        self.console.print(table)


# --- sentences
def notes(found: Answer) -> list[str]:
    """What a reader must know before any figure."""
    results = found.inputs.results
    if not results:
        return [
            "Nothing here was measured: every input is an assumption or was stated. Give run=RESULT of `bench run`."
        ]
    texts = [f"from {each.name}" for each in results]
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
    best = found.saving(found.decision)
    gpus = found.inputs.plan.gpus
    decided = f" The answer is decided by {found.bars[0].name} ({found.bars[0].kind})" if found.bars else ""
    if decided and min(found.bars[0].at_low, found.bars[0].at_high) <= 0 < best.share:
        decided += ", which alone can reverse it"
    if best.share <= 0:
        return (
            f"On {gpus} GPUs none of the layers saves GPU time at this period (best: {best.name}, {percent(best.share)}; "
            f"range {percent(best.low)} to {percent(best.high)}).{decided}."
        )
    return (
        f"Buy {count(best.gpus)} GPUs, or save {percent(best.share)} of {gpus} GPUs by {best.name}: the same useful time. "
        f"Range {percent(best.low)} to {percent(best.high)}, or {count(best.gpus_low)} to {count(best.gpus_high)} GPUs. "
        f"That is {digits(best.gpu_hours_a_month)} GPU-hours and {digits(best.money_a_month)} in money a month, at "
        f"{number(found.cost['price_per_gpu_hour'])} a GPU-hour.{decided}. "
        f"Figures are {found.label}; the failure rate is assumed, as no short test can measure one."
    )


def breakeven(each: Saving) -> str:
    if each.breakeven_rate is None or each.breakeven_nodes is None:
        text = each.pays
    else:
        way = "from" if each.pays.startswith("from") else "up to"
        text = f"{way} {digits(each.breakeven_rate)} per 1,000 node-days, or {digits(each.breakeven_nodes)} nodes"
    if each.breakeven_overhead_share <= 0:
        return text
    return f"{text}; while its fault-free price is below {each.breakeven_overhead_share * 100:.3f} %"


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


def _range(each: Input) -> str:
    if each.low is None or each.high is None:
        return ""
    return f"{quantity(each.low, each.unit)} to {quantity(each.high, each.unit)}"
