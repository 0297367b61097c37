"""The rules of the code base that no type checker knows: who may import whom, sizes, options, what is committed."""

from __future__ import annotations

import ast
import re
import socket
import subprocess
import sys
from dataclasses import fields, is_dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple, get_type_hints

import pytest
import yaml

import bench.config
from bench.__main__ import compose
from bench.errors import BadInput
from bench.launch import LAUNCHERS
from bench.recovery import LAYERS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bench"
CONF = ROOT / "conf"
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))
RECORDS = {name: hint for name, hint in get_type_hints(bench.config.Run).items() if is_dataclass(hint)}
OPTIONS = sorted(path for group in RECORDS for path in (CONF / group).glob("*.yaml"))  # other groups: other commands
BASE = "_base"  # keys that the options of a group share; not itself a choice

LONGEST_MODULE_LINES = 400
LONGEST_FUNCTION_LINES = 60

# Which parts may import torch; all the rest runs where it is not installed.
WITH_TORCH = re.compile(r"bench\.(train\.(?!(data_check|shapes)$)|checkpoint\.|node\.|recovery\.inside(\.|$)|probe\.)")

# A folder of option files offers exactly the variants that the code has.
REGISTRIES = {"cluster": LAUNCHERS, "recovery": LAYERS}


# --- the import graph
class Import(NamedTuple):
    module: str  # the one that imports
    name: str  # what it imports: "numpy.linalg", "bench.config"
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.name}"


def module_name(path: Path, root: Path = ROOT) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports_of(module: str, source: str, known: frozenset[str]) -> list[Import]:
    """Every import statement of a module but those for the type checker alone; deferred ones inside functions count.

    `from bench import config` is an import of bench.config where `known` has such a module, else of bench.
    """
    found: list[Import] = []
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            pending += node.orelse
            continue
        if isinstance(node, ast.Import):
            found += [Import(module, alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            longer = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [Import(module, name if name in known else node.module, node.lineno) for name in longer]
        pending += ast.iter_child_nodes(node)
    return found


@cache
def imports() -> list[Import]:
    known = frozenset(modules())
    return [found for name, path in modules().items() for found in imports_of(name, path.read_text(), known)]


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def forbidden(importers: tuple[str, ...], *targets: str) -> list[str]:
    return [str(i) for i in imports() if within(i.module, *importers) and within(i.name, *targets)]


def cycle_in(found: list[Import], known: frozenset[str]) -> list[str] | None:
    graph: dict[str, set[str]] = {}
    for each in found:
        if each.name in known and each.name != each.module:
            graph.setdefault(each.module, set()).add(each.name)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def test_the_reader_of_imports_sees_deferred_ones_and_leaves_out_those_for_the_type_checker():
    source = "if TYPE_CHECKING:\n    import torch\ndef f():\n    from bench import config\n"
    found = imports_of("bench.x", source, frozenset({"bench.config"}))
    assert [each.name for each in found] == ["bench.config"]


def test_the_search_for_cycles_finds_one():
    ring = [Import("bench.a", "bench.b", 1), Import("bench.b", "bench.c", 1), Import("bench.c", "bench.a", 1)]
    known = frozenset({"bench.a", "bench.b", "bench.c"})
    assert set(cycle_in(ring, known) or ()) == known
    assert cycle_in(ring[:2], known) is None


def test_no_module_imports_itself_in_a_circle():
    assert cycle_in(imports(), frozenset(modules())) is None


def test_measure_knows_the_schema_and_numpy_and_nobody_else():
    allowed = (*sys.stdlib_module_names, "numpy", "bench.schema", "bench.measure")
    strangers = [str(i) for i in imports() if within(i.module, "bench.measure") and not within(i.name, *allowed)]
    assert strangers == []


def test_strategies_faults_and_layers_know_neither_the_driver_nor_the_trainer_nor_the_reports():
    families = ("bench.checkpoint", "bench.faults", "bench.recovery")
    assert forbidden(families, "bench.driver", "bench.train", "bench.report", "bench.__main__") == []


def test_the_worker_imports_neither_hydra_nor_pandas():
    assert forbidden(("bench.train", "bench.checkpoint"), "hydra", "omegaconf", "pandas") == []


def changes_of_the_environment(tree: ast.AST) -> list[int]:
    """Lines that write os.environ or bind processes to cores; reading it is none."""
    places = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)]
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    lines = [place.lineno for place in places if ast.unparse(place.value).endswith("environ")]
    words = r"(^|\.)(environ\.(update|setdefault|pop|clear)|putenv|unsetenv|sched_setaffinity)$"
    return lines + [name.lineno for name in called if re.search(words, ast.unparse(name))]


def test_no_strategy_and_nothing_of_the_trainer_changes_the_environment_that_all_arms_share():
    sample = "os.environ['A'] = 'b'\nos.environ.setdefault('A', 'b')\nos.sched_setaffinity(0, {1})\nos.environ['A']\n"
    assert changes_of_the_environment(ast.parse(sample)) == [1, 2, 3]
    shared = [name for name in modules() if within(name, "bench.checkpoint", "bench.train")]
    found = {name: changes_of_the_environment(ast.parse(modules()[name].read_text())) for name in shared}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_only_the_command_line_imports_hydra():
    importers = {i.module for i in imports() if within(i.name, "hydra", "omegaconf")}
    assert importers <= {"bench.__main__"}


def test_reports_never_import_torch():
    assert forbidden(("bench.report",), "torch", "nvidia_resiliency_ext") == []


def test_all_that_plans_drives_and_reports_loads_without_torch_even_indirectly():
    names = [name for name in modules() if not WITH_TORCH.match(name)]
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    loaded = {'torch', 'nvidia_resiliency_ext'} & set(sys.modules)\n"
        "    assert not loaded, f'{name} loads {loaded}'\n"
    )
    result = subprocess.run([sys.executable, "-c", code, *names], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_the_worker_loads_without_hydra_and_pandas_even_indirectly():
    pytest.importorskip("torch")
    code = "import bench.train.worker, sys; print({'hydra', 'omegaconf', 'pandas'} & set(sys.modules) or 'neither')"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.stdout == "neither\n", result.stderr


# --- modules
@pytest.mark.parametrize("name", modules())
def test_a_module_says_what_it_is_and_postpones_annotations(name):
    tree = ast.parse(modules()[name].read_text())
    assert ast.get_docstring(tree), f"{name} has no docstring"
    statements = [node for node in tree.body if not isinstance(node, ast.Expr)]
    postponed = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in statements)
    assert postponed or not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in statements)


def test_every_folder_with_code_is_a_package_that_the_wheel_takes_along():
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_modules_and_functions_stay_readable_in_length():
    too_long = []
    for name, path in modules().items():
        source = path.read_text()
        if (lines := source.count("\n")) > LONGEST_MODULE_LINES:
            too_long.append(f"{name}: {lines} lines")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION_LINES:
                    too_long.append(f"{name}.{node.name}: {lines} lines")
    assert too_long == []


# --- configuration
@pytest.mark.parametrize("group", REGISTRIES)
def test_a_group_of_options_names_exactly_what_the_code_has(group):
    stems = {path.stem for path in (CONF / group).glob("*.yaml")}
    assert stems - {BASE} == set(REGISTRIES[group])


def test_no_group_of_options_is_empty():
    groups = [folder for folder in CONF.iterdir() if folder.is_dir()]
    assert groups, "conf/ has no groups"
    assert [folder.name for folder in groups if not list(folder.glob("*.yaml"))] == []


@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_an_option_file_holds_the_fields_of_its_record_and_values_that_it_accepts(path):
    record = RECORDS[path.parent.name]
    values = yaml.safe_load(path.read_text())
    defaults = values.pop("defaults", None)
    missing = {field.name for field in fields(record)} - set(values)
    assert defaults or not missing, f"{path.name} leaves out {missing}"
    if values.get("name") != "tokens":  # the one option that is valid only together with the user's own path
        record(**values)
    assert path.stem == BASE or values.get("name", path.stem) == path.stem


@pytest.mark.parametrize("cluster", sorted(LAUNCHERS))
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_scenario_composes_for_every_launcher(path, cluster):
    if cluster not in ("local", "emulated") and "throttle_bytes_per_s" in path.read_text():
        with pytest.raises(BadInput, match=r"^storage\.throttle_bytes_per_s: works on this machine only"):
            compose([f"scenario={path.stem}", f"cluster={cluster}"])
        return
    run = compose([f"scenario={path.stem}", f"cluster={cluster}"])
    assert (run.scenario, run.cluster.name) == (path.stem, cluster)
    assert run.about, "a scenario says in one line what it answers"


def test_there_are_scenarios():
    assert "ckpt_local" in {path.stem for path in SCENARIOS}


def test_every_group_that_a_run_is_composed_of_has_a_record():
    defaults = yaml.safe_load((CONF / "config.yaml").read_text())["defaults"]
    groups = {name for entry in defaults if isinstance(entry, dict) for name in entry if " " not in name}
    assert groups - {"scenario"} <= set(RECORDS)


def test_the_link_to_the_scenarios_leads_to_them():
    link = CONF / "scenario"
    assert link.is_symlink(), "a checkout without symbolic links? git config core.symlinks true"
    assert link.resolve() == ROOT / "scenarios"


# --- what is committed
def git(*arguments: str) -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    output = subprocess.run(["git", *arguments, "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in output.split("\0") if name]


def text_of(path: Path) -> str:
    """Content of a text file; empty for what is not one, or is a link or gone."""
    if path.is_symlink() or not path.is_file():
        return ""
    content = path.read_bytes()
    return "" if b"\0" in content[:8192] else content.decode(errors="replace")


def test_nothing_that_is_ignored_is_committed():
    assert git("ls-files", "--cached", "--ignored", "--exclude-standard")[:10] == []


def test_no_file_names_a_place_on_the_machine_it_was_written_on():
    ignored = set(git("ls-files", "--cached", "--ignored", "--exclude-standard"))
    committed = set(git("ls-files", "--cached", "--others", "--exclude-standard")) - ignored
    somebodys_home = r"(?<![\w.}])/(?:home|root|Users|work)/\w+"
    patterns = [somebodys_home, re.escape(str(ROOT)) + r"\b"]
    if len(socket.gethostname()) >= 8:  # shorter ones are words
        patterns.append(rf"\b{re.escape(socket.gethostname())}\b")
    anywhere = re.compile("|".join(patterns))
    found = {name: hit.group() for name in sorted(committed) if (hit := anywhere.search(text_of(ROOT / name)))}
    assert found == {}


# --- the distribution
def test_every_declared_dependency_is_pinned():
    declared = names_in(dependency_lists((ROOT / "pyproject.toml").read_text()), r'"([A-Za-z][\w.-]*)(?:[>=]=[\w.]+)?"')
    pinned = names_in((ROOT / "constraints.txt").read_text(), r"(?m)^([\w.-]+)==")
    assert {"torch", "hydra-core", "pytest", "jupyter"} <= declared
    assert declared - pinned == set()


def names_in(text: str, pattern: str) -> set[str]:
    """Distribution names in the form that PyPI compares."""
    return {re.sub(r"[-_.]+", "-", name).lower() for name in re.findall(pattern, text)}


def dependency_lists(pyproject: str) -> str:
    """The text of `dependencies` and of the extras; the standard library reads TOML from Python 3.11 on only."""
    start = pyproject.index("dependencies = [")
    return re.sub(r"#.*", "", pyproject[start : pyproject.index("[tool.", start)])
