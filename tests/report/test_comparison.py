"""`compare`: one line a quantity, wording that promises nothing, exit codes that a pipeline can rely on."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bench.__main__ import main
from bench.errors import BadInput
from bench.measure.compare import Compared, Quantity
from bench.report.comparison import compare, reading
from bench.report.terminal import Terminal
from bench.schema import Figure
from tests.measure.results import BASE, slower, write_result

COST = Quantity("cost_s", "true cost K", "s", signed=True, cost=True)
ONE = Figure(1.0, 1.0, 1.0, 12, "ci95")


def save(folder: Path, *arguments, **options) -> Path:
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(write_result(folder, *arguments, **options)))
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return save(tmp_path_factory.mktemp("results") / "base")


@pytest.fixture(scope="module")
def dear(tmp_path_factory) -> Path:
    """The same work; saves of sync_local take half as long again."""
    return save(tmp_path_factory.mktemp("results") / "dear", slower(BASE, "sync_local", 1.5), launches=4)


def said(*words: str) -> tuple[int, str]:
    file = io.StringIO()
    code = compare(words, Terminal(Console(file=file, width=80, highlight=False)))
    return code, file.getvalue()


# --- words
def figure(median: float, low: float, high: float, interval: str = "ci95") -> Figure:
    return Figure(median, low, high, 12, interval)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (figure(1.12, 1.05, 1.19), "12.0 % higher (5.00 % higher to 19.0 % higher; 95 % interval, n = 12)"),
        (figure(0.8, 0.75, 0.9), "20.0 % lower (25.0 % lower to 10.0 % lower; 95 % interval, n = 12)"),
        (
            figure(1.01, 0.969, 1.042),
            "no difference resolved: 3.10 % lower to 4.20 % higher remains possible (95 % interval, n = 12)",
        ),
        (figure(3.2, 2.5, 4.0), "3.20 times as high (2.50 times as high to 4.00 times as high; 95 % interval, n = 12)"),
        (
            figure(1.0, 0.9, 1.1, "within_run"),
            "no difference resolved: 10.0 % lower to 10.0 % higher remains possible (within this run, n = 12)",
        ),
    ],
)
def test_a_ratio_is_read_as_what_it_leaves_possible(ratio, text):
    assert reading(Compared("a", COST, ONE, ONE, ratio=ratio)) == text


@pytest.mark.parametrize(
    ("unit", "difference", "text"),
    [
        ("s", figure(0.012, -0.003, 0.027), "no difference resolved: 3.00 ms lower to 27.0 ms higher remains possible"),
        ("share", figure(0.02, 0.01, 0.03), "2.00 points higher (1.00 points higher to 3.00 points higher;"),
    ],
)
def test_without_a_ratio_the_difference_stands_and_the_reason_is_given(unit, difference, text):
    found = reading(Compared("a", replace(COST, unit=unit), ONE, ONE, difference=difference))
    assert found.startswith(text)
    assert found.endswith("no ratio, as one side is not resolved from 0")


def test_what_was_not_measured_is_said_so():
    assert reading(Compared("a", COST, ONE, None)) == "not measured on both sides"


# --- the command
def test_a_result_against_itself_shows_no_difference_and_passes(base):
    code, text = said(f"base={base}", f"new={base}", "fail_above=0%")
    assert code == 0
    assert "no cost rose by more than 0 %" in text
    readings = [line for line in text.splitlines() if "->" in line]
    assert len(readings) == 1 + 2 * 5
    assert all("no difference resolved" in line for line in readings)


def test_a_rise_that_is_no_noise_fails_and_names_arm_and_quantity(base, dear):
    code, text = said(f"base={base}", f"new={dear}", "fail_above=5%")
    assert code == 1
    assert "FAILED: true cost K of sync_local is" in text
    assert "more than the 5 % that fail_above allows" in text
    assert "nvrx_async is" not in text


def test_a_fall_and_a_rise_within_the_limit_pass(base, dear):
    assert said(f"base={dear}", f"new={base}", "fail_above=5%")[0] == 0
    assert said(f"base={base}", f"new={dear}", "fail_above=80%")[0] == 0
    assert said(f"base={base}", f"new={dear}")[0] == 0


def test_a_cost_that_only_the_base_has_does_not_pass(base, tmp_path):
    unknown = save(tmp_path / "unknown", arms=("none", "sync_local"))
    run = json.loads((unknown / "run.json").read_text())
    run["config"]["checkpoint"]["arms"].append("nvrx_async")  # it was to be measured; the budget had other plans
    (unknown / "run.json").write_text(json.dumps(run))
    code, text = said(f"base={base}", f"new={unknown}", "fail_above=5%")
    assert code == 1
    assert "FAILED: true cost K of nvrx_async was measured in base and not in new" in text
    assert "no cost that was measured rose by more than 5 %" in text


def test_a_rise_within_noise_passes_and_is_called_that(tmp_path):
    one = save(tmp_path / "one", noise=0.3, arms=("none", "sync_local"))
    other = save(
        tmp_path / "other", slower(BASE, "sync_local", 1.3), noise=0.3, launches=4, arms=("none", "sync_local")
    )
    code, text = said(f"base={one}", f"new={other}", "fail_above=1%")
    assert code == 0
    assert "but within noise" in text
    assert "FAILED" not in text


def test_two_arms_of_one_result_are_compared_pair_by_pair(base):
    code, text = said(f"run={base}", "base_arm=sync_local", "new_arm=nvrx_async", "fail_above=5%")
    assert code == 0
    assert "pair by pair" in text
    line = next(line for line in text.splitlines() if line.startswith("  blocking S"))
    assert "92.0 % lower (92.0 % lower to 92.0 % lower; 95 % interval, n = 18)" in line
    assert said(f"run={base}", "base_arm=nvrx_async", "new_arm=sync_local", "fail_above=5%")[0] == 1


def test_stamps_settings_and_environment_are_told_before_any_figure(base, tmp_path):
    other = save(tmp_path / "other")
    run = json.loads((other / "run.json").read_text())
    run["environment"]["versions"] = {"torch": "3"}
    run["config"]["checkpoint"]["interval"] = 16
    (other / "run.json").write_text(json.dumps(run))
    text = said(f"base={base}", f"new={other}")[1]
    head = text[: text.index("new against base")]
    assert "cpu: no GPU took part" in head
    assert "measured differently: checkpoint.interval (auto against 16)" in head
    assert "environment differs: versions.torch (2 against 3)" in head


def test_an_invalid_result_is_shown_as_such_and_passes_nothing(base, tmp_path):
    other = save(tmp_path / "other", replace(BASE, gap_s=0.05))
    code, text = said(f"base={base}", f"new={other}", "fail_above=500%")
    assert code == 1
    assert "new is INVALID" in text[: text.index("new against base")]
    assert "FAILED: new invalid" in text
    assert said(f"base={base}", f"new={other}")[0] == 0


# --- refused
def test_other_work_is_refused_unless_asked_for(base, tmp_path):
    other = save(tmp_path / "other")
    run = json.loads((other / "run.json").read_text())
    run["config"]["storage"]["fsync"] = False
    (other / "run.json").write_text(json.dumps(run))
    with pytest.raises(BadInput, match=r"new: did other work than base: storage.fsync \(True against False\)"):
        said(f"base={base}", f"new={other}")
    code, text = said(f"base={base}", f"new={other}", "allow_unlike=true")
    assert code == 0
    assert "UNLIKE WORK, compared as asked: storage.fsync (True against False)" in text


def test_results_without_a_common_arm_are_refused(tmp_path):
    one, other = save(tmp_path / "one", arms=("sync_local",)), save(tmp_path / "other", arms=("nvrx_async",))
    with pytest.raises(BadInput, match="new: has no arm in common with base"):
        said(f"base={one}", f"new={other}")


def test_a_limit_needs_a_cost_on_both_sides(base):
    short = save(base.with_name("short"), replace(BASE, cycles=2), launches=1)
    with pytest.raises(BadInput, match="fail_above: no arm has a cost K on both sides"):
        said(f"base={base}", f"new={short}", "fail_above=5%")


BAD = {
    "nothing": ([], "bench: base: is missing; give base=PATH new=PATH, or run=PATH base_arm=NAME new_arm=NAME\n"),
    "one result": (["base=BASE"], "bench: new: is missing; give base=PATH"),
    "no result": (["base=nowhere", "new=BASE"], "bench: base: nowhere is no result folder"),
    "both forms": (["base=BASE", "new=BASE", "new_arm=x"], "bench: new_arm: does not go with base"),
    "an arm that is not there": (
        ["run=BASE", "base_arm=none", "new_arm=nvrx"],
        "bench: new_arm: BASE has no arm 'nvrx'",
    ),
    "a limit without a sign": (["base=BASE", "new=BASE", "fail_above=5"], "bench: fail_above: must be a percentage"),
    "an unknown key": (["baze=x"], "bench: baze: no such key; did you mean base"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(case, base, capsys):
    words, message = BAD[case]
    assert main(["compare", *(word.replace("BASE", str(base)) for word in words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message.replace("BASE", str(base)))
    assert err.count("\n") == 1


def test_help_is_at_hand(capsys):
    assert main(["compare", "--help"]) == 0
    assert "fail_above" in capsys.readouterr().out
