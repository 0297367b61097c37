"""report.html: one file that needs nothing else, with everything a reader asks for, figures and tables beside it."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bench.errors import BadInput
from bench.measure.accounted import Accounted
from bench.report.data import read_result
from bench.report.html import fitting, write_report
from tests.report.made import checkpoint_result, references

VOID = {"meta", "link", "img", "br", "hr"}


class Balanced(HTMLParser):
    """Raises AssertionError on elements that are not closed in their order; collects ids and references."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given[key] for key in ("href", "src") if key in given]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


def parsed(html: str) -> Balanced:
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def page(checkpoints, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    return write_report(checkpoints, folder)


def test_the_page_is_whole_and_fetches_nothing(page):
    html = page.read_text()
    found = parsed(html)
    assert len(set(found.ids)) == len(found.ids)
    for link in found.links:
        assert link.startswith(("data:", "#")), link
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert "<script" not in html
    assert re.search(r"url\(|@import", html) is None
    assert 'name="viewport" content="width=device-width' in html


def test_management_comes_first_then_the_claims_then_what_is_in_doubt(page):
    html = page.read_text()
    order = [
        "no GPU took part",
        "Recommendation: ",
        "<h3>sync_share_40",
        'id="can-this-result-be-trusted"',
        'id="what-does-one-save-cost"',
        "You measured the page cache",
    ]
    places = [html.index(part) for part in order]
    assert places == sorted(places)


def test_code_is_folded_and_words_for_those_with_the_notebook_open_are_left_out(page):
    html = page.read_text()
    assert html.count('<details class="code">') == html.count("<pre><code>") > 5
    assert "Set `run`" not in html
    assert "run all cells" not in html


def test_figures_and_tables_lie_beside_the_page(page):
    figures = {path.stem for path in (page.parent / "figures").glob("*.svg")}
    assert {"gpu_time", "share_period", "save_quantities", "step_trace", "drift"} <= figures
    html = page.read_text()
    assert html.count("data:image/svg+xml") == len(figures)
    assert "No figure “Memory while training and saving”: memory was not sampled" in html
    tables = {path.stem for path in (page.parent / "tables").glob("*.csv")}
    assert {"arms", "samples", "ledger", "checks", "verdicts", "objections", "dictionary"} == tables


def test_every_picture_has_a_text_for_those_who_do_not_see_it(page):
    for alternative in re.findall(r'<img [^>]*alt="([^"]*)"', page.read_text()):
        assert len(alternative) > 30


def test_a_result_with_faults_gets_the_notebook_on_recovery(recoveries, checkpoints, tmp_path):
    assert (fitting(recoveries), fitting(checkpoints)) == ("recovery", "report")
    html = write_report(recoveries, tmp_path).read_text()
    parsed(html)
    for part in ("How long does it take to come back", "in_process: from a fault", "false alarms", "Every episode"):
        assert part in html
    assert {path.stem for path in (tmp_path / "figures").glob("*.svg")} == {"matrix", "waterfall", "ranks", "gpu_time"}


def test_another_notebook_can_be_asked_for(checkpoints, tmp_path):
    html = write_report(checkpoints, tmp_path, "claim_40_percent").read_text()
    assert "Do synchronous checkpoints cost 40 % of a training run?" in html
    assert {path.stem for path in (tmp_path / "figures").glob("*.svg")} == {"share_period", "save_quantities"}


def test_a_damaged_unfinished_result_is_reported_with_what_is_missing(tmp_path):
    folder = checkpoint_result(tmp_path / "result")
    worker = next((folder / "launches" / "1" / "events").glob("worker-*"))
    worker.write_text(worker.read_text()[:-20])
    shutil.rmtree(folder / "launches" / "3")
    html = write_report(read_result(folder, "run"), tmp_path / "out").read_text()
    assert "UNFINISHED: 2 of 3 launches have ended" in html
    assert "damaged event files: 1 torn; dropped and counted" in html


def test_missing_arms_are_named(checkpoints, tmp_path):
    summary = replace(checkpoints.summary, arms=[arm for arm in checkpoints.summary.arms if arm.name == "none"])
    alone = Accounted(checkpoints.run, checkpoints.launches, summary, checkpoints.samples, checkpoints.ledger)
    html = write_report(alone, tmp_path).read_text()
    assert "None: the choice needs a synchronous and an asynchronous arm" in html
    assert "No figure “What saving costs, by how often one saves”" in html


def test_a_folder_that_cannot_be_written_is_one_line(checkpoints, tmp_path):
    (tmp_path / "figures").write_text("in the way")
    with pytest.raises(BadInput, match=r"out: .* cannot be written \(File exists\); give out=FOLDER"):
        write_report(checkpoints, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted(references()))
def test_the_reference_results_have_whole_reports(scenario, tmp_path):
    html = write_report(read_result(references()[scenario], "run"), tmp_path).read_text()
    parsed(html)
    assert "Recommendation: " in html
