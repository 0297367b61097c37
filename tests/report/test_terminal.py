"""What a user sees: the plan, one line of progress, the table, the verdicts and the doubts, readable at 80 columns."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bench.config import Budget, Cluster, Run
from bench.design import plan
from bench.predict import Prediction
from bench.progress import Progress
from bench.report import terminal
from bench.report.terminal import Terminal
from bench.schema import Arm, Check, Figure, Summary, Verdict

EXPECTED = Prediction(137_000_000, 0.3, 130.0, 0.072, None, ["a step of 0.10 s", "a store of 0.4 GB/s"])
UNKNOWN = Prediction(None, None, None, None, None, ["see the pilot launch"])
UNDER_WAY = Progress(2, 4, "quick", "nvrx_async", 3, 6, 7, 5.25, 130.0)


class Screen:
    def __init__(self, width: int = 80, **options) -> None:
        self.file = io.StringIO()
        self.terminal = Terminal(Console(file=self.file, width=width, highlight=False, **options))

    @property
    def text(self) -> str:
        return self.file.getvalue()


@pytest.fixture
def screen() -> Screen:
    return Screen()


def figure(median: float, low: float, high: float, n: int = 12) -> Figure:
    return Figure(median, low, high, n, "ci95")


def arm(name: str, **changes) -> Arm:
    figures = {
        "share": figure(0.25, 0.2, 0.3),
        "stall_share": figure(0.05, 0.04, 0.06),
        "cost_s": figure(0.5, 0.4, 0.6),
        "blocking_s": figure(0.1, 0.09, 0.11),
        "step_s": figure(0.2, 0.19, 0.21),
        "period_s": 2.0,
        "period_at_40_s": 1.25,
        "written_bytes": 137_000_000,
        "write_bytes_per_s": figure(400e6, 300e6, 500e6),
        "storage_ceiling_share": 0.8,
        "content_verified": True,
    }
    return Arm(name=name, strategy=name, cycles=12, launches=3, **(figures | changes))


def summary(**changes) -> Summary:
    content = {
        "scenario": "ckpt_local",
        "machine": "machine",
        "device": "cpu",
        "rehearsal": False,
        "design": "quick",
        "world_size": 2,
        "num_nodes": 1,
        "versions": {},
        "status": "warn",
        "interrupted": False,
        "checks": [
            Check("clocks", "ok", "resolved"),
            Check("one_file_system", "note", "results and checkpoints share one", "give storage.dir=PATH"),
            Check("content", "invalid", "sync_local read back other bytes", "report it"),
            Check("machine_busy", "warn", "load 3.4 on 2 CPUs", "wait"),
        ],
        "budget": {},
        "arms": [arm("none"), arm("sync_local")],
        "ledger": [],
        "verdicts": [Verdict("sync_share_40", "up to 40 %", "25 %", "does_not_hold", "It costs 25 % here.")],
    }
    return Summary(**(content | changes))


def test_the_plan_says_what_runs_where_how_long_and_how_much(screen):
    config = Run(scenario="ckpt_local", about="What does it cost?", device="cpu", budget=Budget(minutes=5.0))
    screen.terminal.plan(config, plan(config), replace(EXPECTED, money=1.5))
    for part in ("ckpt_local: What does it cost?", "1 node x 2 ranks on cpu", "checkpoint 137 MB", "4 launches"):
        assert part in screen.text
    assert (
        "expected 2 min 10 s, 0.0720 slot-hours, 1.50 in your currency; the budget ends it after 5 minutes"
        in screen.text
    )
    assert "REHEARSAL" not in screen.text


def test_hours_of_gpus_are_named_so(screen):
    config = Run(device="cuda")
    screen.terminal.plan(config, plan(config), EXPECTED)
    assert "0.0720 GPU-hours" in screen.text


def test_a_rehearsal_is_stamped_in_the_plan_and_in_the_result(screen):
    config = Run(cluster=Cluster(name="emulated"))
    screen.terminal.plan(config, plan(config), EXPECTED)
    screen.terminal.result(summary(stamps=["REHEARSAL on emulated nodes", "paced: no interference"]), Path("result"))
    assert screen.text.count("REHEARSAL") == 2
    assert screen.text.index("paced: no interference") < screen.text.index("What a checkpoint costs")


def test_what_is_unknown_is_said_to_be_unknown(screen):
    screen.terminal.plan(Run(), plan(Run()), UNKNOWN)
    assert "checkpoint - over" in screen.text
    assert "expected unknown, GPU-hours unknown" in screen.text


def test_a_dry_run_lists_launches_assumptions_and_commands_that_a_shell_takes(screen):
    launches = plan(Run(launches=2))
    screen.terminal.dry_run(launches, EXPECTED, [["python", "-m", "bench.node", "--result", "a folder"]], None)
    for part in ("0  pilot", "1  quick", "2  quick", "a store of 0.4 GB/s", "bench.node --result 'a folder'"):
        assert part in screen.text
    assert screen.text.rstrip().endswith("Nothing was started (dry_run=true).")


def test_a_dry_run_of_what_cannot_run_here_says_why(screen):
    screen.terminal.dry_run(plan(Run()), EXPECTED, [], "num_nodes: 8 nodes, and this is one machine")
    assert "not to be run like this: num_nodes: 8 nodes, and this is one machine" in screen.text
    assert "commands" not in screen.text


def test_progress_is_a_line_now_and_then_where_nothing_can_be_redrawn(screen, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    screen.terminal.progress(UNDER_WAY)
    now[0] += terminal.LINE_EVERY_S / 2
    screen.terminal.progress(UNDER_WAY)
    now[0] += terminal.LINE_EVERY_S
    screen.terminal.progress(replace(UNDER_WAY, arm=None, left_s=None))
    assert screen.text.splitlines() == [
        "launch 2 of 4 (quick), nvrx_async, cycle 3 of 6, 7 saves, 5.25 steps/s, about 2 min 10 s left",
        "launch 2 of 4 (quick), starting",
    ]


def test_progress_is_redrawn_on_a_terminal_and_cleared_when_a_launch_has_ended():
    screen = Screen(force_terminal=True)
    screen.terminal.progress(UNDER_WAY)
    screen.terminal.launch_ended({"index": 1, "kind": "quick", "status": "ok", "started": 0.0, "ended": 45.0}, 4)
    assert screen.terminal._live is None
    assert "launch 1 (quick) ok, 45 s" in screen.text


def test_an_ended_launch_says_why_it_did_not_go_well(screen):
    screen.terminal.launch_ended({"index": 2, "kind": "quick", "status": "skipped", "reason": "no room [for] it"}, 4)
    assert screen.text == "launch 2 (quick) skipped: no room [for] it\n"


def test_a_provisional_line_gives_the_shares_so_far_but_not_the_controls(screen):
    screen.terminal.provisional(summary())
    assert "so far, 12 saves an arm: sync_local 25.0 % [20.0 % to 30.0 %] of the period" in screen.text
    assert "none" not in screen.text


def test_nothing_provisional_is_said_without_a_share(screen):
    screen.terminal.provisional(summary(arms=[arm("none"), arm("sync_local", share=None)]))
    assert screen.text == ""


def test_the_table_holds_a_column_an_arm_and_figures_with_their_intervals(screen):
    screen.terminal.result(summary(), Path("result"))
    rows = {line[:18].strip(): line[18:].split("  ") for line in screen.text.splitlines()}
    assert [cell.strip() for cell in rows["share K/P"] if cell.strip()] == ["25.0 % [20.0, 30.0]"] * 2
    assert [cell.strip() for cell in rows["true cost K"] if cell.strip()] == ["500 ms [400, 600]"] * 2
    assert [cell.strip() for cell in rows["write speed"] if cell.strip()] == ["400 MB/s, 80 % of probe"] * 2
    assert "period P 2.00 s; step 200 ms; medians [95 % interval] over 3 launches" in " ".join(screen.text.split())


def test_probes_with_and_without_fsync_are_both_told_where_there_are_both(screen):
    probes = {"probe_bytes_per_s": figure(900e6, 800e6, 990e6), "synced_probe_bytes_per_s": figure(60e6, 50e6, 70e6)}
    screen.terminal.result(summary(**probes), Path("result"))
    assert "storage probe 900 MB/s; with fsync 60.0 MB/s" in " ".join(screen.text.split())


def test_a_missing_figure_is_a_dash_and_content_that_differs_is_shouted(screen):
    screen.terminal.result(
        summary(arms=[arm("sync_local", cost_s=None, durable_s=None, content_verified=False), arm("nvrx_async")]),
        Path("r"),
    )
    rows = {line[:18].strip(): line[18:].split() for line in screen.text.splitlines()}
    assert (rows["true cost K"][0], rows["content verified"][0]) == ("-", "NO")


def test_a_figure_that_no_arm_has_takes_no_line(screen):
    screen.terminal.result(summary(arms=[arm("sync_local", peak_host_bytes=None)]), Path("r"))
    assert "host memory" not in screen.text
    assert "true cost K" in screen.text


def test_many_arms_are_split_into_tables_that_fit():
    screen = Screen(width=80)
    screen.terminal.result(summary(arms=[arm(f"arm_{number}") for number in range(5)]), Path("result"))
    table = screen.text.split("period P")[0]
    assert table.count("true cost K") == 3
    assert max(map(len, table.splitlines())) <= 80


def test_what_limits_an_arm_is_a_row_of_the_table(screen):
    screen.terminal.result(summary(arms=[arm("sync_local", limited_by="slowest rank")]), Path("r"))
    rows = {line[:18].strip(): line[18:].strip() for line in screen.text.splitlines()}
    assert rows["limited by"] == "slowest rank"


def test_a_sweep_shows_the_measured_share_beside_the_predicted_one(screen):
    share = {"median": 0.25, "low": 0.2, "high": 0.3, "n": 12, "interval": "ci95"}
    point = {"arm": "nvrx_async", "compute_s": 1.5, "period_s": 2.0, "share": share}
    longest = point | {"interval_steps": 16, "predicted_share": None, "saturated": False, "agree": None}
    short = point | {"interval_steps": 2, "predicted_share": share, "saturated": True, "agree": False}
    screen.terminal.result(summary(sweep=[short, longest]), Path("r"))
    short_row, long_row = (line.split() for line in screen.text.splitlines() if " steps " in line)
    assert short_row[:5] == ["2", "steps", "2.00", "s", "*"]
    assert (short_row.count("25.0"), short_row[-1]) == (2, "DIFFER")
    assert (long_row[:4], long_row.count("25.0"), long_row[-1]) == (["16", "steps", "2.00", "s"], 1, "-")
    assert "* saturated" in screen.text
    table = screen.text[screen.text.index("share measured") : screen.text.index("* saturated")]
    assert max(map(len, table.splitlines())) <= 80


def test_verdicts_are_words_and_a_sentence(screen):
    screen.terminal.result(summary(), Path("result"))
    assert "  sync_share_40: does not hold. It costs 25 % here.\n" in screen.text


def test_doubts_are_listed_worst_first_with_their_remedy_and_passed_checks_are_counted(screen):
    screen.terminal.result(summary(), Path("result"))
    assert "status: warn; 1 checks passed\n" in screen.text
    levels = [
        line.split(":")[0].strip()
        for line in screen.text.splitlines()
        if line.startswith(("  invalid", "  warn", "  note"))
    ]
    assert levels == ["invalid", "warn", "note"]
    assert "machine_busy: load 3.4 on 2 CPUs. wait" in screen.text


def test_a_partial_result_is_said_to_be_partial_and_where_it_is(screen):
    screen.terminal.result(summary(interrupted=True, arms=[], verdicts=[]), Path("results/x"))
    for part in ("no save was measured", "(interrupted: partial result)", "result: results/x"):
        assert part in screen.text
