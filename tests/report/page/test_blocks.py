"""Parts of the page: stamps first, doubts with remedies, claims with outcomes, nothing unescaped."""

from __future__ import annotations

from dataclasses import replace

from bench.measure.accounted import Accounted
from bench.report.page import blocks, markup
from bench.report.page.markup import Block
from bench.schema import Check, Verdict
from tests.measure.made import recovery


def of(result: Accounted, **changes) -> Accounted:
    return Accounted(result.run, result.launches, replace(result.summary, **changes), result.samples, result.ledger)


def test_text_of_a_result_cannot_become_markup():
    assert markup.text("p", "<b>&") == "<p>&lt;b&gt;&amp;</p>"
    assert markup.tag("a", "x", href='"><script>') == '<a href="&quot;&gt;&lt;script&gt;">x</a>'
    table = markup.table(["a", "<b>"], [["1", "<script>"]])
    assert "<script>" not in table
    assert 'data-label="&lt;b&gt;"' in table


def test_stamps_name_a_rehearsal_what_is_damaged_and_what_is_missing(checkpoints):
    assert "cpu: no GPU took part" in blocks.stamps(checkpoints).html
    rehearsal = of(checkpoints, rehearsal=True, stamps=["cpu: no GPU"])
    assert blocks.stamps(rehearsal).html.index("REHEARSAL") < blocks.stamps(rehearsal).html.index("cpu")
    kept = Accounted(checkpoints.run, [], checkpoints.summary, [], [])
    assert "the events of this result were not kept" in blocks.stamps(kept).html


def test_the_status_lists_doubts_worst_first_with_remedies_and_folds_what_passed(checkpoints):
    checks = [
        Check("fine", "ok", "all whole"),
        Check("small", "note", "n is small", "raise cycles"),
        Check("bad", "invalid", "bytes differ", "report it"),
    ]
    html = blocks.status(replace(checkpoints.summary, checks=checks, status="invalid", interrupted=True)).html
    assert html.index("bad") < html.index("small") < html.index("1 checks passed") < html.index("fine: all whole")
    assert "Remedy: report it." in html
    assert "Status: invalid (interrupted: a partial result)." in html


def test_a_claim_shows_what_was_published_what_is_here_and_the_outcome():
    html = blocks.claims([Verdict("sync_share_40", "up to 40 %", None, "not_measured", "No arm.")]).html
    for part in ("sync_share_40", "up to 40 %", "<dd>-</dd>", "not measured", "No arm."):
        assert part in html


def test_the_table_of_arms_has_a_column_an_arm_and_no_empty_line(checkpoints):
    html = blocks.arms(checkpoints.summary.arms).html
    for part in ("share K/P", "true cost K", "sync_local", "nvrx_async"):
        assert part in html
    assert "host memory" not in html


def test_the_facts_name_machine_software_and_period(checkpoints):
    html = blocks.facts(checkpoints).html
    for part in ("synthetic, quick", "torch 2", "fsync on", "2026-11-29"):
        assert part in html


def test_episodes_are_listed_with_those_that_did_not_strike(recoveries):
    unavailable = recovery(seconds=None, episode=None, outcome="unavailable", layer_used=None, reason="needs root")
    html = blocks.episodes(of(recoveries, recoveries=[*recoveries.summary.recoveries, unavailable])).html
    assert html.count("<tr>") == 1 + 6 + 1
    assert "needs root" in html
    assert "No fault was injected" in blocks.episodes(of(recoveries, recoveries=[])).html


def test_a_sweep_shows_both_shares_and_where_saves_wait(checkpoints):
    share = {"median": 0.25, "low": 0.2, "high": 0.3, "n": 12, "interval": "ci95"}
    point = {"arm": "nvrx_async", "interval_steps": 2, "compute_s": 1.5, "period_s": 2.0, "share": share}
    html = blocks.sweep(
        of(checkpoints, sweep=[point | {"predicted_share": share, "saturated": True, "agree": False}])
    ).html
    for part in ("2.00 s *", "25.0 % [20.00, 30.00]", ">NO<"):
        assert part in html
    assert "One interval was measured" in blocks.sweep(checkpoints).html


def test_jupyter_gets_a_box_and_the_page_the_bare_part():
    block = Block("<p>x</p>", "<style>y</style>")
    assert block._repr_html_() == '<style>y</style><div class="bench"><p>x</p></div>'
    assert (block + Block("<p>z</p>")).html == "<p>x</p><p>z</p>"
