"""A plan on the terminal: the inputs with their kind, the answers with their label, and a paragraph for the review."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.plan.answer import Answer
from bench.report.planning_words import (
    breakeven,
    doubt,
    ends_of,
    honest_lines,
    long,
    notes,
    number,
    paragraph,
    price_limits,
    quantity,
    range_of,
    span,
)
from bench.report.words import digits, percent, seconds

WIDE = 100
LONG = ("source", "pays", "layer", "from ... to")  # columns that may take several lines
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

    @classmethod
    def plain(cls) -> Planning:
        """For a notebook: plain text of a fixed width instead of what rich makes of Jupyter."""
        return cls(Console(force_jupyter=False, force_terminal=False, width=PLAIN_WIDTH, highlight=False))

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
            self.review,
        ):
            section(found)

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
            f"  goodput at your period: {percent(closed.value)} by {closed.formula}"
            f"{doubt(closed.in_range, closed.valid_for)}, "
            f"{percent(simulated.goodput * found.simulated_share)} +- {error * 100:.2f} simulated; "
            f"over the inputs' ranges {percent(found.goodput_range[0])} to {percent(found.goodput_range[1])}"
        )
        ettr = found.ettr
        linear = percent(ettr.value) if ettr.in_range else f"outside its range ({ettr.valid_for})"
        self.say(f"  linear effective training time ratio: {linear}")

    def inputs(self, found: Answer) -> None:
        self.title("Inputs")
        rows = [
            (each.name, quantity(each.value, each.unit), range_of(each), each.kind, each.source)
            for each in found.inputs.by_name.values()
        ]
        self._table(("input", "value", "range", "kind", "source"), rows)

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
                f"{each.share * 100:.2f} %",
                f"{each.expected * 100:.2f} [{each.low * 100:.2f}, {each.high * 100:.2f}] %",
                digits(each.gpu_hours_a_month),
                digits(each.money_a_month),
                breakeven(each),
            )
            for each in found.savings
        ]
        heads = ("layer", "saves", "over the inputs' ranges", "GPU-h a month", "money a month", "pays")
        self._table(heads, rows)
        self.say(f"  {price_limits(found)}", "dim")

    def sensitivity(self, found: Answer) -> None:
        self.title(f"What decides the saving of {found.decision}", found.label)
        bars = found.bars[:TORNADO_ROWS]
        widest = max((bar.swing for bar in bars), default=0.0)
        units = {name: each.unit for name, each in found.inputs.by_name.items()}
        rows = [
            (
                bar.name,
                bar.kind,
                ends_of(bar, units.get(bar.name, "")),
                f"{bar.at_low * 100:.3f} to {bar.at_high * 100:.3f} %",
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
            f"{number(useful)} for a useful GPU-hour at {number(cost['price_per_gpu_hour'])}; "
            f"{number(cost['per_failure'])} for each failure"
        )

    def review(self, found: Answer) -> None:
        self.title("For the review", found.label)
        self.say(paragraph(found))

    def _table(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for head in heads:
            # In a narrow terminal every column gives way; nothing is ever cut off.
            table.add_column(head, overflow="fold", no_wrap=head not in LONG and self.console.width >= WIDE)
        for row in rows:
            table.add_row(*row)
        self.console.print(table)
