"""A plan as people read it: labelled, complete at 80 columns, and honest about what it does not know."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from bench.plan.answer import Answer, answer
from bench.plan.config import Cluster, Recovery, Save, Simulation
from bench.report import planning_figures
from bench.report.planning import Planning
from bench.report.planning_words import honest_lines, long, notes, paragraph, quantity, span
from tests.plan.made import failures, plan, result


@pytest.fixture(scope="module")
def found() -> Answer:
    return answer(plan(simulation=Simulation(replicates=20)))


def shown(found: Answer, width: int = 120) -> str:
    file = io.StringIO()
    Planning(Console(file=file, width=width, highlight=False)).show(found)
    return file.getvalue()


def test_every_input_stands_there_with_its_kind(found):
    section = shown(found).split("\nInputs\n")[1].split("\nBest period")[0]
    lines = {line.split()[0]: line for line in section.splitlines() if line[:1].isalpha()}
    assert set(found.inputs.by_name) <= set(lines)
    assert all(" assumed " in lines[name] for name in found.inputs.by_name)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_nothing_is_cut_off_at_any_width(found, width):
    text = shown(found, width)
    assert "…" not in text
    for name in ("extrapolated", "For the review", "asynchronous"):
        assert name in text


def test_every_row_of_another_size_ends_with_its_label(found):
    rows = [line.split() for line in shown(found).splitlines() if line.split(" ")[0].isdigit()]
    kinds = {row[0]: row[-1] for row in rows}
    assert kinds.pop("512") == "assumed"
    assert len(kinds) == 8
    assert set(kinds.values()) == {"extrapolated"}


def test_the_two_honest_lines_name_the_period_and_each_best_one(found):
    user, best = honest_lines(found)
    assert user.startswith("At your period of 30 min 00 s checkpoints cost, of GPU time: nvrx_async")
    assert "sync_local" in user
    assert best.startswith("Each at its own best period: nvrx_async every")
    assert "choice of that period" in best


def test_a_period_that_the_baseline_cannot_keep_is_said(found):
    tight = answer(plan(save=Save(1.0, 2.0, 100.0), period_s=90.0, simulation=Simulation(replicates=20)))
    line = honest_lines(tight)[0]
    assert "sync_local cannot keep it, a save takes longer" in line
    assert "waits for its writes: every 100 s" in line
    assert "No number of GPUs makes today's set-up useful" in paragraph(tight)


def test_the_paragraph_says_what_to_buy_or_do_what_it_is_worth_and_what_decides(found):
    text = paragraph(found)
    best = found.saving(found.decision)
    assert text.startswith((f"Buy {best.gpus:.1f} GPUs (", f"Buy {best.gpus:.0f} GPUs ("))
    for part in (
        f"by {best.name}",
        "GPU-hours",
        "a month",
        f"decided by {found.bars[0].name} (assumed)",
        "failure rate is assumed",
    ):
        assert part in text


def test_the_paragraph_decides_nothing_where_the_range_holds_a_loss(found):
    best = replace(found.saving(found.decision), low=-0.01)
    doubtful = replace(found, savings=[best])
    assert paragraph(doubtful).startswith(
        f"Not decided: on 512 GPUs {best.name} saves most, but anything from -1.00 % to"
    )


def test_the_paragraph_says_so_where_nothing_pays():
    slow = Recovery(in_job_s=900.0, in_process_s=900.0)
    text = paragraph(answer(plan(save=Save(blocking_s=5.0), recovery=slow, simulation=Simulation(replicates=20))))
    assert text.startswith("On 512 GPUs no layer saves GPU time at this period (best: asynchronous saves, 0.00 %")


def test_a_ratio_outside_its_range_is_not_printed_as_an_answer():
    large = plan(
        cluster=Cluster(nodes=12_500),
        failures=failures(per_1000_node_days=6.5),
        save=Save(blocking_s=0.0),
        recovery=Recovery(seconds=300.0),
        period_s=420.0,
        simulation=Simulation(replicates=20),
    )
    found = answer(large)
    text = shown(found)
    assert "linear effective training time ratio: outside its range" in text
    assert f"{found.ettr.value * 100:.1f} %" not in text


def test_the_notes_say_what_stands_behind_the_figures(found, tmp_path):
    assert notes(found)[-1].startswith("Nothing here was measured")
    rehearsed = answer(plan(simulation=Simulation(replicates=20)), [result(tmp_path, rehearsal=True)])
    text = " ".join(notes(rehearsed))
    assert "REHEARSAL" in text
    assert "count as extrapolated" in text
    alike = answer(plan(save=Save(blocking_s=5.0), simulation=Simulation(replicates=20)))
    assert "no asynchronous one to compare" in notes(alike)[0]


def test_quantities_speak_in_their_units():
    assert quantity(0.002, "share") == "0.2 %"
    assert quantity(3e9, "B/s") == "3.00 GB/s"
    assert quantity(70e9, "parameters") == "70.0e9"
    assert quantity(7200, "s") == "2 h 00 min"
    assert quantity(64, "nodes") == "64"
    assert long(90) == "90.0 s"
    assert span(1.0, 1.0, str) == "1.0"
    assert span(1.0, 2.0, str) == "1.0 to 2.0"


# --- figures
def test_the_figure_over_sizes_names_every_other_size_extrapolated(found):
    figure = planning_figures.sizes_figure(found)
    (axes,) = figure.axes
    assert "extrapolated" in figure.get_suptitle()
    assert [text.get_text() for text in axes.get_legend().get_texts()][-1] == "planned size (assumed)"
    assert axes.get_xscale() == "log"


def test_the_tornado_has_a_bar_for_each_input_with_its_kind(found):
    figure = planning_figures.sensitivity_figure(found)
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[-1] == f"{found.bars[0].name} ({found.bars[0].kind})"
    assert found.decision in figure.get_suptitle()
    assert axes.patches[-1].get_width() == pytest.approx(found.bars[0].swing * 100)


def test_figures_are_written_as_files(found, tmp_path):
    paths = planning_figures.write_figures(found, tmp_path)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert len(paths) == 2


def test_an_answer_without_anything_uncertain_has_an_empty_tornado(found, tmp_path):
    empty = replace(found, bars=[])
    assert "decided by" not in paragraph(empty)
    assert planning_figures.write_figures(empty, tmp_path)
    assert "For the review" in shown(empty)
