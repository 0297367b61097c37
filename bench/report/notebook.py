"""Runs a notebook without Jupyter: parameters in, cells from top to bottom, what each last expression shows out.

The notebooks of this suite define nothing themselves, so plain Python runs them as Jupyter would. That keeps a report
to what every installation has: no kernel, no ports, and the same text and figures as papermill makes of the file.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import BadInput, near

PARAMETERS = "parameters"  # the tag of the cell whose values are replaced, as papermill has it


@dataclass(frozen=True)
class Cell:
    kind: str  # "markdown" | "code"
    source: str
    tags: tuple[str, ...]
    shown: Any = None  # value of a code cell's last expression


@dataclass(frozen=True)
class Executed:
    cells: list[Cell]
    variables: dict[str, Any]


def folder() -> Path:
    """The notebooks: beside the package in a checkout, inside it when installed."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "notebooks"
    return inside if inside.is_dir() else package.parent / "notebooks"


def path_of(name: str) -> Path:
    """The notebook `name`. Raises BadInput."""
    path = folder() / f"{name}.ipynb"
    if not path.is_file():
        raise BadInput(
            f"notebook: no notebook {name!r}; {near(name, [each.stem for each in folder().glob('*.ipynb')])}"
        )
    return path


def read(path: Path) -> Iterator[Cell]:
    for cell in json.loads(path.read_text())["cells"]:
        yield Cell(cell["cell_type"], "".join(cell["source"]), tuple(cell["metadata"].get("tags", ())))


def execute(path: Path, parameters: Mapping[str, Any]) -> Executed:
    """Run all cells. `parameters` must be variables of the cell tagged so; what a cell raises is raised."""
    variables: dict[str, Any] = {"__name__": "__main__"}
    done = []
    for cell in read(path):
        shown = _run(cell.source, variables, path) if cell.kind == "code" else None
        if PARAMETERS in cell.tags:
            unknown = set(parameters) - set(variables)
            if unknown:
                raise KeyError(f"{path.name} has no parameter {', '.join(sorted(unknown))}")
            variables |= parameters
        done.append(Cell(cell.kind, cell.source, cell.tags, shown))
    return Executed(done, variables)


def _run(source: str, variables: dict[str, Any], path: Path) -> Any:
    """Execute the statements; the value of the last one if it is an expression."""
    tree = ast.parse(source, path.name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, path.name, "exec"), variables)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), path.name, "eval"), variables)
