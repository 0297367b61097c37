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
    found = answered(plan)
    out = _file("out", plan.out)
    figures = _folder("figures", Path(plan.figures)) if plan.figures else None
    screen = Planning()
    screen.show(found)
    if out:
        write_json(out, to_json(found))
        screen.say(f"\nplan: {out}")
    if figures:
        from bench.report.planning_figures import write_figures  # half a second for matplotlib

        for path in write_figures(found, figures):
            screen.say(f"figure: {path}")
    return 0


def _file(key: str, name: str | None) -> Path | None:
    if not name:
        return None
    path = Path(name)
    if path.is_dir():
        raise BadInput(f"{key}: {name} is a folder; give a file, e.g. {key}=plan.json")
    _folder(key, path.parent)
    return path


def _folder(key: str, path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{key}: {path} cannot be made ({error.strerror}); give a path that you may write to") from None
    return path
