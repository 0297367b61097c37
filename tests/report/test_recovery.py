"""What a user sees of recoveries: the plan, a line after each launch, the matrix, the parts, the price of a layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench.config import Budget, Checkpoint, Cluster, Design, Fault, Faults, Run
from bench.config import Recovery as RecoveryConfig
from bench.design import Launch, plan
from bench.measure.layers import EXACT, recovery_figure
from bench.measure.recovery_verdicts import recovery_verdicts
from bench.recovery.timeouts import derive
from bench.report import recovery as words
from bench.report.terminal import Terminal
from bench.schema import Check, FaultFigures, Figure, LayerFigures, Recovery, Summary
from tests.measure.made import recovery
from tests.report.test_terminal import EXPECTED, Screen, summary

LAYERS = ("in_process", "in_job", "nested", "torchrun", "pod_restart", "requeue")
SECONDS = dict(zip(LAYERS, (0.61, 4.6, 2.8, 5.4, 23.0, 9.75), strict=True))


def episodes(layers: tuple[str, ...] = LAYERS) -> list[Recovery]:
    found = []
    for number, layer in enumerate(layers):
        for launch, factor in enumerate((0.9, 1.0, 1.25)):
            by = {"nested": "in_process"}.get(layer, layer)
            about = {"launch": 10 * number + launch, "layer_used": by}
            found.append(recovery(layer, SECONDS[layer] * factor, "exception", **about))
            hang = "collective_hang, not interruptible"
            found.append(recovery(layer, None if layer == "torchrun" else 12.345, hang, **about, resume_exact=False))
        reason = "no memory cgroup can be made here: Permission denied"
        about = {"launch": 10 * number, "episode": None, "outcome": "unavailable", "reason": reason}
        found.append(recovery(layer, None, "oom_host", **about))
    return found


def cell(label: str, found: list[Recovery]) -> FaultFigures:
    recovered = [each for each in found if each.outcome == "recovered"]
    parts = ("detect_s", "stop_s", "restart_s", "load_s", "first_step_s", "catch_up_s")
    return FaultFigures(
        fault=label,
        episodes=sum(each.episode is not None for each in found),
        outcomes=dict(Counter(each.outcome for each in found)),
        layers_used=dict(Counter(each.layer_used for each in recovered if each.layer_used)),
        exact=dict(Counter(EXACT[each.resume_exact] for each in recovered)),
        time_to_recover_s=recovery_figure(recovered, "time_to_recover_s"),
        time_to_catch_up_s=recovery_figure(recovered, "time_to_catch_up_s"),
        parts={part: recovery_figure(recovered, part) for part in parts},
        lost_steps=recovery_figure(recovered, "lost_steps"),
        gpu_seconds_lost=recovery_figure(recovered, "gpu_seconds_lost"),
    )


def figures(records: list[Recovery]) -> list[LayerFigures]:
    found = []
    for name in dict.fromkeys(each.layer for each in records):
        own = [each for each in records if each.layer == name]
        labels = dict.fromkeys(each.label for each in own)
        cells = [cell(label, [each for each in own if each.label == label]) for label in labels]
        price = None if name == "requeue" else Figure(0.0123, -0.004, 0.021, 3, "range")
        found.append(LayerFigures(name, 3, price, 0.4567, int(name == "in_job"), cells))
    return found


def result(layers: tuple[str, ...] = LAYERS) -> Summary:
    found = episodes(layers)
    checks = [Check("faults_fired", "note", "unavailable here: oom_host (no memory cgroup)", "see the reason")]
    content = {"recoveries": found, "layers": figures(found), "verdicts": recovery_verdicts(found, False)}
    return summary(design="recovery", arms=[], checks=checks, **content)


def shown(width: int, layers: tuple[str, ...] = LAYERS) -> str:
    screen = Screen(width)
    screen.terminal.result(result(layers), Path("results/x"))
    return screen.text


def tables_of(text: str) -> str:
    """Everything but the sentences, which a terminal wraps by itself."""
    tables = text.split("\nVerdicts", maxsplit=1)[0].splitlines()
    return "\n".join(line for line in tables if "definitions: METHOD.md" not in line)


# --- the result
@pytest.mark.parametrize("width", [80, 100])
def test_all_tables_fit(width: int) -> None:
    assert max(map(len, tables_of(shown(width)).splitlines())) <= width


def test_the_matrix_says_of_each_fault_and_layer_what_came_of_it_by_whom_and_how_fast() -> None:
    matrix = shown(80).split("Where the time went")[0]
    for part in ("recovered 3", "by in_process", "610 ms [549, 762]", "caught up 810 ms", "NOT RECOVERED 3"):
        assert part in matrix, part
    assert "4.60 s [4.14, 5.75]" in matrix
    rows = [line.split() for line in matrix.splitlines() if line.startswith("exception")]
    assert len(rows) == 3  # six layers, two a table at this width


def test_a_fault_that_is_unavailable_is_listed_once_with_its_reason() -> None:
    text = shown(100)
    assert text.count("oom_host was unavailable: no memory cgroup can be made here: Permission denied") == 1
    rows = [line.split() for line in text.split("Where the time went")[0].splitlines()]
    assert ["oom_host", "unavailable", "unavailable", "unavailable"] in rows


def test_an_outcome_stands_without_a_count_only_where_it_is_the_only_one() -> None:
    silent = recovery(seconds=None, outcome="not_fired", episode=None)
    for records, text in (
        ([recovery()], "recovered"),
        ([silent], "did not strike"),
        ([silent, recovery()], "did not strike 1, recovered 1"),
        ([recovery(), recovery(launch=2)], "recovered 2"),
    ):
        assert words.outcome_words(cell("sigkill", records)) == text


def test_parts_stand_in_a_table_for_each_fault_with_a_row_a_layer() -> None:
    text = shown(80).split("Where the time went, s")[1].split("What each layer costs")[0]
    assert text.index("collective_hang, not interruptible") < text.index("exception"), "in the order of the alphabet"
    assert "oom_host" not in text
    first, second = text.split("\nexception\n")[1], text.split("\nexception\n")[0]
    in_job = next(line.split()[1:] for line in first.splitlines() if line.startswith("in_job"))
    assert in_job == ["0.92", "0.46", "1.84", "1.15", "0.23", "0.20", "2", "9.20", "3/3"]
    assert [line.split()[-2:] for line in second.splitlines() if line.startswith("in_job")] == [["NO", "0/3"]]
    assert "torchrun" not in second  # it did not recover


def test_the_price_of_layers_and_their_false_alarms_are_shown() -> None:
    text = shown(80).split("What each layer costs")[1]
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith(LAYERS)}
    assert "1.23 % [-0.40, 2.10]" in rows["in_job"]
    assert rows["in_job"].split()[-1] == "1"
    assert rows["requeue"].split()[2] == "-"
    assert "45.7 %" in rows["torchrun"]


def test_verdicts_and_doubts_follow_as_for_any_result() -> None:
    text = shown(100)
    assert "recovery_in_process: not measured. A recovery by in_process takes" in text
    assert "recovery_ratios: does not hold." in text
    assert "note: faults_fired" in text
    assert "What a checkpoint costs" not in text


def test_a_result_without_a_launch_that_was_struck_says_so() -> None:
    screen = Screen()
    screen.terminal.result(summary(design="recovery", arms=[], verdicts=[]), Path("r"))
    assert "no launch with a fault was measured" in screen.text


def test_gpu_seconds_are_named_so_on_gpus() -> None:
    (_, table), *_ = words.parts(result().layers, "GPU-seconds")
    assert "GPU-s lost" in [str(column.header) for column in table.columns]


# --- while it runs
def test_one_line_tells_what_came_of_the_launch_that_ended_last() -> None:
    screen = Screen(200)
    records = [recovery(seconds=9.0), recovery("nested", 2.5, launch=2, layer_used="in_process")]
    screen.terminal.provisional(summary(design="recovery", recoveries=records))
    assert screen.text == "  sigkill under nested: recovered by in_process in 2.50 s, caught up after 2.70 s\n"


def test_the_line_tells_of_faults_that_were_not_recovered_from_and_of_those_that_could_not_be() -> None:
    screen = Screen(200)
    records = [
        recovery("none", None),
        recovery(seconds=None, label="oom_host", outcome="unavailable", reason="no cgroup", episode=None),
    ]
    screen.terminal.provisional(summary(design="recovery", recoveries=records))
    assert screen.text.strip() == ("sigkill under none: NOT RECOVERED; oom_host under in_job: unavailable (no cgroup)")


def test_nothing_is_said_after_a_twin() -> None:
    screen = Screen()
    screen.terminal.provisional(summary(design="recovery"))
    assert screen.text == ""
    struck = summary(design="recovery", recoveries=[recovery()])
    screen.terminal.provisional(struck)
    told = screen.text
    screen.terminal.provisional(struck)  # nothing was struck since
    assert screen.text == told


# --- before
def configured() -> Run:
    given = [Fault("exception", rank=1), Fault("sigkill", at="commit", rank=0)]
    return Run(
        scenario="recovery_local",
        about="How fast?",
        device="cpu",
        blocks=2,
        budget=Budget(),
        cluster=Cluster(name="local"),
        checkpoint=Checkpoint(arms=["sync_local"], interval=6),
        design=Design(name="recovery"),
        recovery=RecoveryConfig(layers=["in_process", "in_job"]),
        faults=Faults(given=given),
    )


def test_the_plan_names_layers_and_faults() -> None:
    screen, config = Screen(200), configured()
    screen.terminal.plan(config, plan(config), EXPECTED)
    assert "arms: sync_local; layers: in_process, in_job; faults: " in screen.text
    assert "2 blocks" in screen.text


def test_a_dry_run_says_of_every_launch_what_strikes_it_and_when() -> None:
    screen, config = Screen(200), configured()
    launches = plan(config)
    screen.terminal.dry_run(launches, EXPECTED, [], None)
    lines = [line.split() for line in screen.text.splitlines() if line[:5].strip().isdigit()]
    kinds = Counter(line[1] for line in lines)
    assert kinds == {"pilot": 1, "twin": 2, "recovery": 8}
    assert "sync_local, no fault" in screen.text
    assert "in_job: exception after step " in screen.text
    assert "in_job: sigkill in commit after step 12 on node 0 rank 0" in screen.text or (
        "sigkill in commit after step" in screen.text
    )


def test_a_fault_whose_step_the_pilot_has_to_settle_is_told_by_its_save() -> None:
    config = replace(configured(), checkpoint=Checkpoint(arms=["sync_local"], interval="auto"))
    struck = next(launch for launch in plan(config) if launch.faults)
    assert "after save 1 on node 0 rank" in words.launch_words(struck)


def test_a_fault_within_a_recovery_is_told_as_such() -> None:
    given = [Fault("exception", rank=1), Fault("sigkill", at="recovery", rank=0)]
    config = replace(configured(), faults=Faults(given=given, per_launch=2))
    struck: Launch = next(launch for launch in plan(config) if launch.faults)
    assert "; sigkill in the recovery after it, on node 0 rank 0" in words.launch_words(struck)


def test_the_terminal_takes_a_recovery_plan_and_a_checkpoint_plan_alike() -> None:
    screen = Screen(200)
    terminal: Terminal = screen.terminal
    terminal.plan(Run(), plan(Run()), EXPECTED)
    assert "layers:" not in screen.text


def test_the_timeouts_are_told_once_in_groups_with_their_units() -> None:
    values = derive(0.1, 0.2, 4.0).to_json()
    screen = Screen(100)
    for _ in range(2):
        screen.terminal.timeouts({"timeouts": values})
        screen.terminal.timeouts({"timeouts": None})
    assert screen.text.count("timeouts, from the pilot") == 1
    for part in ("from: step 100 ms, save 200 ms, startup 4.00 s", "soft 5.00 s, hard 10.0 s", "collective 60.0 s"):
        assert part in " ".join(screen.text.split())


def test_a_job_that_did_not_come_back_is_listed_with_what_it_died_of() -> None:
    lost = recovery("in_job", None, "sigkill", launch=3, outcome="not_recovered", reason="no heartbeat could be sent")
    silent = recovery("in_job", None, "oom_host", outcome="not_fired", episode=None, reason="the kernel killed nobody")
    assert words.left_out([silent]) == ["oom_host under in_job: did not strike (the kernel killed nobody)"]
    assert words.left_out([lost, lost]) == ["sigkill under in_job: not recovered (no heartbeat could be sent)"]
