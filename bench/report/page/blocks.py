"""The parts of a report that are words and tables, as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.measure.accounted import Accounted
from bench.report import dictionary
from bench.report.data import damage, dates, unfinished
from bench.report.page.first import FirstPage
from bench.report.page.markup import Block, folded, listed, table, tag, text
from bench.report.page.objections import objections
from bench.report.terminal import LEVEL, MARK, ROWS
from bench.report.words import MISSING, duration, percent, seconds, size, with_interval
from bench.schema import Arm, Summary, Verdict


def stamps(result: Accounted) -> Block:
    """What every reader must know before the first figure, and what is not whole."""
    found = list(result.summary.stamps)
    if result.summary.rehearsal and not any("REHEARSAL" in stamp for stamp in found):
        found.insert(0, "REHEARSAL on emulated nodes: these are not figures of a cluster")
    if (left := unfinished(result)) is not None:
        found.append(f"UNFINISHED: {left}; this report says what is on record so far")
    if not result.launches:
        found.append("the events of this result were not kept: figures that need them are missing here")
    if (broken := damage(result)) is not None:
        found.append(f"damaged event files: {broken}; dropped and counted, never repaired")
    return Block("".join(text("p", stamp, class_="stamp") for stamp in found))


def first(page: FirstPage) -> Block:
    answers = "".join(text("li", each) for each in page.answers)
    advice = text("strong", "Recommendation: ") + tag("span", text("span", page.advice.text), class_="advice")
    small = [
        ("Measured: ", page.measured),
        ("Extrapolated: ", page.extrapolated),
        ("What would change it: ", page.advice.input),
        ("Status: ", page.status),
    ]
    rest = "".join(tag("p", text("strong", head) + text("span", told), class_="small") for head, told in small)
    return Block(tag("section", tag("ul", answers) + tag("p", advice) + rest, class_="first"))


def claims(verdicts: Sequence[Verdict]) -> Block:
    """The claims card: published, here, outcome."""
    return Block(tag("div", "".join(map(_claim, verdicts)), class_="cards"))


def _claim(verdict: Verdict) -> str:
    rows = (("published", verdict.published), ("here", verdict.measured or MISSING), ("outcome", MARK[verdict.outcome]))
    told = tag("dl", "".join(text("dt", head) + text("dd", value) for head, value in rows))
    more = folded("in words", text("p", verdict.text, class_="small"))
    return tag("article", text("h3", verdict.claim) + told + more, class_=f"card {verdict.outcome}")


def status(summary: Summary) -> Block:
    """The status with every doubt, worst first, each with its reason and its remedy; passed checks are folded."""
    partial = " (interrupted: a partial result)" if summary.interrupted else ""
    doubts = sorted((c for c in summary.checks if c.level in LEVEL), key=lambda check: list(LEVEL).index(check.level))
    items = [
        tag(
            "li",
            text("span", check.level, class_=f"level {check.level}")
            + text("strong", check.name)
            + text("span", f": {check.reason}.")
            + (text("div", f"Remedy: {check.remedy}.", class_="remedy") if check.remedy else ""),
        )
        for check in doubts
    ]
    passed = [f"{check.name}: {check.reason}" for check in summary.checks if check.level not in LEVEL]
    head = tag("p", text("strong", f"Status: {summary.status}{partial}."))
    more = folded(f"{len(passed)} checks passed", listed(passed)) if passed else ""
    return Block(head + tag("ul", "".join(items), class_="checks") + more)


def arms(found: Sequence[Arm], heads: Sequence[str] | None = None) -> Block:
    """One column an arm, one line a figure; a figure that no arm has takes no line. `heads`: other column titles."""
    lines = [(label.strip(), [tell(arm) for arm in found]) for label, tell in ROWS]
    rows = [(label, *cells) for label, cells in lines if any(cell != MISSING for cell in cells)]
    return Block(table(["", *(heads or [arm.name for arm in found])], rows, "numbers"))


def facts(result: Accounted) -> Block:
    """What was measured, where, when and with which software."""
    summary, environment = result.summary, result.run["environment"]
    mount: Mapping[str, Any] = environment.get("checkpoint_mount") or {}
    written = max((arm.written_bytes for arm in summary.arms if arm.written_bytes), default=None)
    config = result.config
    rows = [
        ("question", str(config.get("about") or MISSING)),
        ("scenario, design", f"{summary.scenario}, {summary.design}"),
        ("machine", f"{summary.machine}: {_hardware(environment)}"),
        (
            "slots",
            f"{summary.world_size} on {summary.num_nodes} node{'s' * (summary.num_nodes > 1)} ({summary.device})",
        ),
        ("checkpoint", f"{size(written)} on {mount.get('type', 'a file system not recorded')}, fsync {_fsync(config)}"),
        ("measured on", ", ".join(dates(result)) or MISSING),
        ("period P", _periods(summary)),
        ("time used", _used(summary)),
        ("versions", ", ".join(f"{name} {value}" for name, value in summary.versions.items() if value)),
    ]
    return Block(table(["", ""], rows, "words"))


def _hardware(environment: Mapping[str, Any]) -> str:
    gpus = [str(gpu.get("name")) for gpu in environment.get("gpus") or []]
    cpu = f"{environment.get('cpu', 'a CPU not recorded')}, {environment.get('cpus', '?')} CPUs"
    return f"{len(gpus)} x {gpus[0]}, {cpu}" if gpus else cpu


def _fsync(config: Mapping[str, Any]) -> str:
    return "on" if config["storage"]["fsync"] else "off"


def _periods(summary: Summary) -> str:
    periods = sorted({arm.period_s for arm in summary.arms if arm.period_s is not None})
    return " to ".join(dict.fromkeys(seconds(each) for each in (periods[:1] + periods[-1:]))) or MISSING


def _used(summary: Summary) -> str:
    used, hours = summary.budget.get("used_s"), summary.budget.get("used_gpu_hours")
    unit = "GPU-hours" if summary.device == "cuda" else "slot-hours"
    return f"{duration(used)}{f', {hours:.3g} {unit}' if hours is not None else ''}" if used is not None else MISSING


def objection_table(result: Accounted) -> Block:
    rows = [(each.objection, each.here, each.shown_by, each.level) for each in objections(result)]
    return Block(table(["objection", "here", "shown by", "checks"], rows, "words"))


def sweep(result: Accounted) -> Block:
    """Every measured interval beside what the longest one predicts."""
    rows = [
        (
            str(point["arm"]),
            str(point["interval_steps"]),
            seconds(point["period_s"]) + " *" * bool(point["saturated"]),
            _share(point["share"]),
            _share(point["predicted_share"]),
            {True: "yes", False: "NO", None: MISSING}[point["agree"]],
        )
        for point in result.summary.sweep
    ]
    if not rows:
        return Block(text("p", "One interval was measured; several need design=sweep.", class_="gap"))
    heads = ["arm", "steps", "period", "measured", "predicted", "agree"]
    return Block(table(heads, rows, "numbers") + text("p", "* saves waited for each other", class_="small"))


def _share(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return MISSING
    return f"{percent(figure['median'])} [{100 * figure['low']:.2f}, {100 * figure['high']:.2f}]"


def episodes(result: Accounted) -> Block:
    """Every episode a line, planned faults that did not strike among them."""
    rows = [
        (
            f"{each.launch}.{MISSING if each.episode is None else each.episode}",
            each.label,
            each.layer,
            each.outcome.replace("_", " "),
            each.layer_used or each.reason or MISSING,
            seconds(each.time_to_recover_s),
            seconds(each.time_to_catch_up_s),
            MISSING if each.lost_steps is None else str(each.lost_steps),
            {True: "yes", False: "NO", None: MISSING}[each.resume_exact],
        )
        for each in result.summary.recoveries
    ]
    if not rows:
        return Block(text("p", "No fault was injected in this result.", class_="gap"))
    heads = ["launch.episode", "fault", "layer", "outcome", "by", "recovered", "caught up", "lost steps", "exact"]
    return Block(table(heads, rows, "numbers"))


def layers(result: Accounted) -> Block:
    """What each layer costs when nothing fails, and how often it restarts for no reason."""
    rows = [
        (
            each.layer,
            str(each.launches),
            with_interval(each.overhead_share, percent) if each.overhead_share else MISSING,
            percent(each.goodput),
            str(each.false_alarms),
        )
        for each in result.summary.layers
    ]
    if not rows:
        return Block(text("p", "No recovery layer was measured in this result.", class_="gap"))
    return Block(table(["layer", "launches", "price without faults", "goodput", "false alarms"], rows, "numbers"))


def columns() -> Block:
    """The data dictionary, folded."""
    heads = ["table", "column", "unit", "meaning"]
    return Block(folded("what every column means", table(heads, dictionary.rows(), "words")))
