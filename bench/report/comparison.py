"""`python -m bench compare`: two results, or two arms of one, in words that say no more than was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.errors import BadInput, near
from bench.measure.accounted import Accounted
from bench.measure.compare import Compared, Comparison, paired, unpaired
from bench.measure.likeness import Difference, likeness
from bench.report.accounts import read_account
from bench.report.arguments import help_text, key_values, percentage, yes_or_no
from bench.report.terminal import Terminal
from bench.report.words import INTERVAL_NAMES, MISSING, digits, percent, seconds, size
from bench.schema import Figure

USAGE = (
    "python -m bench compare base=RESULT new=RESULT [fail_above=5%] [allow_unlike=true]",
    "python -m bench compare run=RESULT base_arm=NAME new_arm=NAME [fail_above=5%]",
)
KEYS = {
    "base": "result folder that the other is held against",
    "new": "result folder that may be better or worse",
    "run": "one result folder, two of whose arms are compared, pair by pair",
    "base_arm": "with run: the arm that the other is held against",
    "new_arm": "with run: the arm that may be better or worse",
    "fail_above": "exit with 1 if K or its share rose by more than this and the rise is no noise, or is missing in new",
    "allow_unlike": "true: compare results that did not do the same work",
}
CODES = "0 compared, 1 worse than fail_above allows, or not known to be better, 2 bad input"


def usage() -> str:
    return help_text(USAGE, KEYS, CODES)


def compare(words: Sequence[str], terminal: Terminal | None = None) -> int:
    """Carry out the command. Returns the exit code. Raises BadInput."""
    given = key_values(words, KEYS)
    terminal = terminal or Terminal()
    limit = percentage("fail_above", given["fail_above"]) if "fail_above" in given else None
    results, comparison = compared(given)
    _head(given, results, comparison, terminal)
    _rows(comparison, terminal)
    return 0 if limit is None else _judge(comparison, results, limit, terminal)


def _require(given: dict[str, str], needed: Sequence[str], refused: Sequence[str]) -> None:
    for key in needed:
        if key not in given:
            raise BadInput(f"{key}: is missing; give base=PATH new=PATH, or run=PATH base_arm=NAME new_arm=NAME")
    for key in refused:
        if key in given:
            raise BadInput(f"{key}: does not go with {needed[0]}; python -m bench compare --help shows both forms")


# --- what is compared
Results = dict[str, Accounted]  # by the key that named them


def compared(given: dict[str, str]) -> tuple[Results, Comparison]:
    """What the words name: two results, or two arms of one. Raises BadInput."""
    results = _read_arms(given) if "run" in given else _read_results(given)
    return results, _compared(given, results)


def _read_results(given: dict[str, str]) -> Results:
    _require(given, ("base", "new"), ("run", "base_arm", "new_arm"))
    results = {key: read_account(Path(given[key]), key) for key in ("base", "new")}
    work = likeness(**results).work
    if work and not yes_or_no("allow_unlike", given.get("allow_unlike", "false")):
        raise BadInput(
            f"new: did other work than base: {'; '.join(map(str, work))}; "
            "compare results of the same work, or give allow_unlike=true"
        )
    return results


def _read_arms(given: dict[str, str]) -> Results:
    _require(given, ("run", "base_arm", "new_arm"), ("base", "new", "allow_unlike"))
    result = read_account(Path(given["run"]), "run")
    for key in ("base_arm", "new_arm"):
        if given[key] not in result.arms:
            raise BadInput(f"{key}: {given['run']} has no arm {given[key]!r}; {near(given[key], result.arms)}")
    return {"run": result}


def _compared(given: dict[str, str], results: Results) -> Comparison:
    if "run" in results:
        return paired(results["run"], given["base_arm"], given["new_arm"])
    comparison = unpaired(**results)
    if not comparison.rows:
        raise BadInput(
            f"new: has no arm in common with base ({', '.join(results['base'].arms)}); measure the same arms"
        )
    return comparison


# --- what a reader must know first
def _head(given: dict[str, str], results: Results, comparison: Comparison, terminal: Terminal) -> None:
    for stamp in dict.fromkeys(stamp for result in results.values() for stamp in result.summary.stamps):
        terminal.say(stamp, "bold yellow")
    for key, result in results.items():
        terminal.say(f"{key:4}  {given[key]}: {_about(result)}")
        if result.summary.status == "invalid":
            terminal.say(f"{key} is INVALID: do not rely on its figures; its own report says why", "bold red")
    if "new" not in results:
        return
    alike = likeness(**results)
    if alike.work:
        terminal.say(f"UNLIKE WORK, compared as asked: {'; '.join(map(str, alike.work))}", "bold yellow")
    _note(terminal, "measured differently", alike.settings)
    _note(terminal, "environment differs", alike.environment)
    if comparison.left_out:
        terminal.say(f"only in one of the two: {', '.join(comparison.left_out)}", "dim")


def _about(result: Accounted) -> str:
    summary = result.summary
    launches = max((arm.launches for arm in summary.arms), default=0)
    where = f"{summary.scenario} on {summary.machine}, {summary.world_size} ranks"
    return f"{where}, {summary.design} design, {launches} launches, {summary.status}"


def _note(terminal: Terminal, title: str, differences: Sequence[Difference]) -> None:
    if differences:
        terminal.say(f"{title}: {'; '.join(map(str, differences))}", "dim")


# --- rows
def _rows(comparison: Comparison, terminal: Terminal) -> None:
    kind = "pair by pair" if comparison.pairing == "paired" else "unpaired, so over launches"
    terminal.say(f"\nnew against base, {kind}; shares at {_period(comparison)}", "bold")
    arm = None
    for row in comparison.rows:
        if row.arm != arm:
            arm = row.arm
            terminal.say(f"\n{arm}", "bold")
        middle = [shown(figure, row) for figure in (row.base, row.new)]
        terminal.say(f"  {row.quantity.title:13} {middle[0]:>9} -> {middle[1]:<9}  {reading(row)}")


def _period(comparison: Comparison) -> str:
    period = comparison.period
    if period.compute_s is not None:
        return f"{seconds(period.compute_s)} of compute between saves: {period.text}"
    return f"a period of {seconds(period.wall_s)}: {period.text}" if period.wall_s is not None else "no known period"


def shown(figure: Figure | None, row: Compared) -> str:
    """The median in the quantity's unit."""
    if figure is None:
        return MISSING
    if row.quantity.unit == "bytes/s":
        return f"{size(figure.median)}/s"
    return percent(figure.median) if row.quantity.unit == "share" else seconds(figure.median)


def reading(row: Compared) -> str:
    """One comparison in words. What is not resolved is said as the differences that are still possible."""
    figure = row.ratio or row.difference
    if figure is None:
        return "not measured on both sides"
    middle, low, high = (_change(value, row) for value in (figure.median, figure.low, figure.high))
    kind = f"{INTERVAL_NAMES[figure.interval]}, n = {figure.n}"
    undefined = "" if row.ratio is not None else "; no ratio, as one side is not resolved from 0"
    if row.outcome == "not_resolved":
        return f"no difference resolved: {low} to {high} remains possible ({kind}){undefined}"
    return f"{middle} ({low} to {high}; {kind}){undefined}"


def _change(value: float, row: Compared) -> str:
    return _times(value) if row.ratio is not None else _plus(value, row.quantity.unit)


def _times(ratio: float) -> str:
    if ratio >= 2:
        return f"{digits(ratio)} times as high"
    change = abs(ratio - 1)
    return "equal" if change < 5e-5 else f"{percent(change)} {'higher' if ratio > 1 else 'lower'}"


def _plus(difference: float, unit: str) -> str:
    amount = abs(difference)
    text = f"{digits(100 * amount)} points" if unit == "share" else seconds(amount) if unit == "s" else size(amount)
    return f"{text} {'higher' if difference > 0 else 'lower'}"


# --- verdict
def _judge(comparison: Comparison, results: Results, limit: float, terminal: Terminal) -> int:
    if not comparison.judged:
        raise BadInput("fail_above: no arm has a cost K on both sides, so nothing can be judged; measure longer")
    worse = comparison.worse(limit)
    terminal.say()
    for row in worse:
        name = f"{row.quantity.title} of {row.arm}"
        figure = row.ratio or row.difference
        rise = _change(figure.median, row) if figure is not None else MISSING
        if row.outcome == "higher":
            terminal.say(
                f"FAILED: {name} is {rise}, more than the {100 * limit:g} % that fail_above allows", "bold red"
            )
        else:
            terminal.say(f"{name} is worse: {rise}, but within noise", "yellow")
    for row in comparison.lost:
        terminal.say(f"FAILED: {row.quantity.title} of {row.arm} was measured in base and not in new", "bold red")
    if not worse:
        terminal.say(f"no cost {'that was measured ' * bool(comparison.lost)}rose by more than {100 * limit:g} %")
    invalid = [key for key, result in results.items() if result.summary.status == "invalid"]
    if invalid:
        terminal.say(f"FAILED: {' and '.join(invalid)} invalid, so nothing can pass on these figures", "bold red")
    return 1 if invalid or comparison.lost or any(row.outcome == "higher" for row in worse) else 0
