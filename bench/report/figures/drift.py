"""Whether anything changed from the first save to the last: costs, steps and the store itself, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from bench.measure.accounted import Accounted
from bench.measure.check_storage import job_probes_bytes_per_s
from bench.measure.statistics import drift_p
from bench.report.data import counted, measured
from bench.report.figures.base import Missing, Picture
from bench.report.figures.style import INK, below, canvas, look, plain_seconds
from bench.schema import Sample

PANELS = (("blocking_s", "S"), ("cost_s", "K"), ("control_step_s", "step without a write"))


def draw(result: Accounted) -> Picture:
    saves = [save for arm in result.arms for save in measured(result, arm)]
    if not saves:
        raise Missing("no save was measured; the checks say why")
    order = _order(saves)
    synced = bool(result.config["storage"]["fsync"])
    probes = [(launch.index, job_probes_bytes_per_s(launch, synced)) for launch in result.launches]
    figure, rows = canvas(4.9, rows=len(PANELS) + 1)
    for axes, (name, title) in zip(rows, PANELS, strict=False):
        for arm in result.arms:
            _line(axes, [save for save in saves if save.arm == arm], name, order, arm)
        axes.set_ylabel(title, fontsize=7.5)
        axes.yaxis.set_major_formatter(lambda value, _: plain_seconds(value))
        _launches(axes, saves, order)
    rows[len(PANELS) - 1].set_xlabel("save of the result, in the order of time; lines: a new launch")
    _probe(rows[-1], [(index, rates) for index, rates in probes if rates])
    below(rows[0], figure, 4)
    caption = (
        f"Seconds; {counted(result)}; single values, so no interval. Bottom: the storage probe of each launch (fsync "
        f"{'on' if synced else 'off'}), all ranks together, before (left) and after (right) it."
    )
    return Picture(figure, caption, _says(result, saves))


def _order(saves: Sequence[Sample]) -> dict[tuple[int, int, str, int], int]:
    """The place of each save in the order of time: by launch, then by the steps before it."""
    ordered = sorted(saves, key=lambda save: (save.launch, save.step))
    return {_key(save): place for place, save in enumerate(ordered, start=1)}


def _key(save: Sample) -> tuple[int, int, str, int]:
    return save.launch, save.cycle, save.arm, save.save


def _line(
    axes: Axes, saves: Sequence[Sample], name: str, order: dict[tuple[int, int, str, int], int], arm: str
) -> None:
    known = sorted((order[_key(save)], value) for save in saves if (value := getattr(save, name)) is not None)
    style = look(arm)
    axes.plot(
        [place for place, _ in known],
        [value for _, value in known],
        color=style.colour,
        marker=style.marker,
        markersize=3.2,
        linewidth=0.7,
        linestyle=style.line,
        label=arm,
    )
    axes.grid(axis="y")


def _launches(axes: Axes, saves: Sequence[Sample], order: dict[tuple[int, int, str, int], int]) -> None:
    firsts: dict[int, int] = {}
    for save in saves:
        firsts[save.launch] = min(firsts.get(save.launch, order[_key(save)]), order[_key(save)])
    for place in sorted(firsts.values())[1:]:
        axes.axvline(place - 0.5, color=INK, linewidth=0.5, alpha=0.5)


def _probe(axes: Axes, probes: Sequence[tuple[int, dict[str, float]]]) -> None:
    axes.set_ylabel("probe, MB/s", fontsize=7.5)
    axes.set_xlabel("launch")
    axes.grid(axis="y")
    if not probes:
        axes.text(0.5, 0.5, "the storage was not probed", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    for when, shift, marker in (("before", -0.15, "o"), ("after", 0.15, "s")):
        known = [(index + shift, rates[when] / 1e6) for index, rates in probes if when in rates]
        axes.scatter([x for x, _ in known], [y for _, y in known], s=16, marker=marker, color=INK)
    axes.set_xticks([index for index, _ in probes])
    axes.set_ylim(bottom=0)


def _says(result: Accounted, saves: Sequence[Sample]) -> str:
    """The smallest p of a test for a trend, and how much the probe varies: as the checks see it."""
    ps = []
    for arm in result.arms:
        mine = sorted(
            (save for save in saves if save.arm == arm), key=lambda save: (save.launch, save.cycle, save.save)
        )
        values = [round(save.cost_s, 9) for save in mine if save.cost_s is not None]
        p = drift_p(values)
        if p is not None:
            ps.append(f"{arm} p = {p:.2g}")
    told = {check.name: check.reason for check in result.summary.checks}
    trend = f"Test for a trend of K (Mann-Kendall): {', '.join(ps)}. " if ps else ""
    noted = [told[name] for name in ("drift", "probe_drift") if name in told]
    return f"{trend}The checks: {'; '.join(noted)}." if noted else trend.strip()
