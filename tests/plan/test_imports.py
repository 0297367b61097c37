"""The planner is pure: it knows numpy, the schema and the errors, and reads samples in one place."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import bench.plan

ALLOWED = {*sys.stdlib_module_names, "numpy", "bench.schema", "bench.errors"}


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(f"bench.plan.{node.names[0].name}" if node.module == "bench.plan" else node.module)
    return found


def test_nothing_but_numpy_the_schema_and_the_errors_is_imported():
    strangers = {}
    for path in Path(bench.plan.__path__[0]).glob("*.py"):
        names = {name for name in imported(path) if not name.startswith("bench.plan.")}
        strangers[path.stem] = {name for name in names if name not in ALLOWED and name.split(".")[0] not in ALLOWED}
    assert {stem: names for stem, names in strangers.items() if names} == {"results": {"pyarrow"}}
