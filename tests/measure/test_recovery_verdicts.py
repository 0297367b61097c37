from __future__ import annotations

import pytest

from bench.measure.layers import recovery_figure
from bench.measure.recovery_verdicts import load_dominates, recovery_verdicts
from bench.schema import Recovery, Verdict
from tests.measure.made import recovery


def verdict(claim: str, recoveries: list[Recovery], on_cluster_gpus: bool = True) -> Verdict:
    return next(each for each in recovery_verdicts(recoveries, on_cluster_gpus) if each.claim == claim)


def three(layer: str, seconds: float, label: str = "sigkill") -> list[Recovery]:
    return [recovery(layer, seconds * factor, label, launch=i) for i, factor in enumerate((0.9, 1.0, 1.1))]


@pytest.mark.parametrize(
    ("seconds", "outcome"), [(10.0, "holds"), (15.0, "not_decided"), (6.7, "not_decided"), (30.0, "does_not_hold")]
)
def test_a_time_holds_within_a_factor_of_one_and_a_half(seconds: float, outcome: str) -> None:
    found = verdict("recovery_in_process", three("in_process", seconds))
    assert found.outcome == outcome
    assert found.published == "10 s"
    assert found.measured is not None
    assert f"{seconds:.3g} s (range" in found.measured


def test_without_gpus_of_a_cluster_times_are_told_and_not_judged_but_ratios_are() -> None:
    recoveries = [*three("in_process", 0.5), *three("in_job", 0.85), *three("requeue", 13.5)]
    found = verdict("recovery_in_job", recoveries, on_cluster_gpus=False)
    assert (found.outcome, found.measured) == ("not_measured", "0.85 s (range 0.765 to 0.935 s, n = 3)")
    assert "only ratios are judged" in found.text
    ratios = verdict("recovery_ratios", recoveries, on_cluster_gpus=False)
    assert ratios.outcome == "holds"
    assert "in_job / in_process = 1.7 (range 1.7 to 1.7, n = 1) (published 1.7)" in ratios.text
    assert "orchestrator / in_process = 27" in ratios.text


def test_a_ratio_that_is_off_decides_the_claim() -> None:
    recoveries = [*three("in_process", 0.5), *three("in_job", 5.0)]
    assert verdict("recovery_ratios", recoveries).outcome == "does_not_hold"


def test_layers_are_compared_on_the_faults_that_all_of_them_recovered_from() -> None:
    """In place a hang takes longer than an exception; the agent never saw the exception."""
    recoveries = [
        *three("in_process", 1.0, "exception"),
        *three("in_process", 10.0, "os_hang"),
        *three("in_job", 17.0, "os_hang"),
    ]
    assert verdict("recovery_in_process", recoveries).outcome == "holds"
    assert "paired over os_hang" in verdict("recovery_ratios", recoveries).text
    apart = [*three("in_process", 1.0, "exception"), *three("in_job", 17.0, "os_hang")]
    assert verdict("recovery_ratios", apart).outcome == "not_measured"
    assert verdict("recovery_in_job", apart).outcome == "holds"


def test_only_recoveries_of_the_layer_itself_stand_for_it() -> None:
    others = [
        recovery("nested", 10.0, layer_used="in_process"),
        recovery("torchrun", 17.0),
        recovery("in_job", None),
        recovery("in_job", 17.0, outcome="tolerated"),
        recovery("in_job", 17.0, layer_used=None),
    ]
    for claim in ("recovery_in_process", "recovery_in_job", "recovery_orchestrator", "recovery_ratios"):
        found = verdict(claim, others)
        assert (found.outcome, found.measured) == ("not_measured", None)
        assert found.text.startswith("Not measured")


def test_either_way_of_starting_the_whole_job_again_is_the_orchestrators() -> None:
    assert verdict("recovery_orchestrator", three("requeue", 270) + three("pod_restart", 270)).outcome == "holds"


@pytest.mark.parametrize(
    ("load_s", "outcome"), [((3.0, 4.0), "holds"), ((0.5, 0.6), "does_not_hold"), ((0.5, 4.0), "not_decided")]
)
def test_loading_dominates_where_it_is_the_largest_part_of_every_recovery(
    load_s: tuple[float, float], outcome: str
) -> None:
    found = [recovery(load_s=seconds, restart_s=1.0, launch=i) for i, seconds in enumerate(load_s)]
    assert load_dominates(found).outcome == outcome


def test_the_shares_of_loading_are_ratios_so_their_interval_never_reaches_0() -> None:
    shares = [[0.2, 0.21, 0.22], [0.2, 0.21, 0.22], [8.0, 8.1, 8.2]]
    found = load_dominates(
        [recovery(load_s=s, restart_s=1.0, launch=i) for i, launch in enumerate(shares) for s in launch]
    )
    assert found.outcome == "not_decided"
    assert found.measured is not None
    assert "95 % interval 0." in found.measured


def test_a_verdict_states_the_time_that_the_matrix_shows() -> None:
    records = [recovery("in_job", seconds, launch=i) for i, seconds in enumerate((1.0, 4.0))]
    shown = recovery_figure(records, "time_to_recover_s")
    assert shown is not None
    assert shown.median == pytest.approx(2.0)
    assert verdict("recovery_in_job", records).measured == "2 s (range 1 to 4 s, n = 2)"


def test_cascades_stand_for_no_recovery_time_and_no_share() -> None:
    """Planned as such or not: a second fault before the job has stepped is in the time of the first."""
    planned = [recovery("in_job", 17.0, "sigkill, 1 more in recovery", further_faults=1)]
    met = [recovery("in_job", 17.0, faults=["f0", "f1"])]
    for cascades in (planned, met):
        for claim in ("recovery_in_job", "load_dominates"):
            assert verdict(claim, cascades).outcome == "not_measured"
        both = verdict("recovery_in_job", [*cascades, *three("in_job", 1.0)])
        assert both.measured is not None
        assert both.measured.startswith("1 s")


def test_a_recovery_with_a_part_missing_or_nothing_to_load_says_nothing_about_parts() -> None:
    found = load_dominates([recovery(stop_s=None), recovery(load_s=0.0), recovery(seconds=None)])
    assert (found.outcome, found.measured) == ("not_measured", None)
