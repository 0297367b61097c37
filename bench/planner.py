"""`bench plan`: read the results that a plan names, answer it, print the answer, write plan.json and the figures."""

from __future__ import annotations

from pathlib import Path

from bench.errors import BadInput
from bench.plan.answer import Answer, answer, to_json
from bench.plan.config import Plan
from bench.plan.results import read
from bench.report.planning import Planning
from bench.results import write_json


def answered(plan: Plan) -> Answer:
    """The answer to a plan, with the results that it names. Raises BadInput."""
    return answer(plan, [read(Path(path)) for path in plan.runs])


def run(plan: Plan) -> int:
    """Answer, print and write; the exit code."""
    outputs = [
        ("out", Path(plan.out).parent if plan.out else None),
        ("figures", Path(plan.figures) if plan.figures else None),
    ]
    found = answered(plan)
    for key, folder in outputs:
        _make(key, folder)
    screen = Planning()
    screen.show(found)
    if plan.out:
        write_json(Path(plan.out), to_json(found))
        screen.say(f"\nplan: {plan.out}")
    if plan.figures:
        from bench.report.planning_figures import write_figures  # half a second for matplotlib

        for path in write_figures(found, Path(plan.figures)):
            screen.say(f"figure: {path}")
    return 0


def _make(key: str, folder: Path | None) -> None:
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"{key}: {folder} cannot be made ({error.strerror}); give a path that you may write to"
        ) from None
