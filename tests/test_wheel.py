"""The wheel holds all that the commands need, as real files, and works where torch is not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("bench", "conf", "scenarios", "notebooks", "pyproject.toml", "setup.py", "LICENSE", "README.md")
# Python as on a machine that has only the base installed: these imports fail there.
WITHOUT_TORCH = """
import runpy, sys
sys.modules |= dict.fromkeys(("torch", "nvidia_resiliency_ext"))
sys.argv[0] = "bench"
runpy.run_module("bench", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, so that neither an old build folder gets in nor a new one stays behind."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def contents(wheel) -> dict[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info for info in archive.infolist()}


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def files_below(folder: Path, pattern: str, name: str) -> set[str]:
    """What the wheel must hold for the files of a folder of the checkout; follows the link to the scenarios."""
    return {f"{name}/{path.relative_to(folder)}" for path in folder.glob(pattern)}


def test_every_module_is_in_it(contents):
    modules = files_below(ROOT / "bench", "**/*.py", "bench")
    assert modules
    assert modules - contents.keys() == set()


def test_options_and_scenarios_are_in_it_as_real_files(contents):
    expected = files_below(ROOT / "conf", "*.yaml", "bench/conf") | files_below(ROOT / "conf", "*/*.yaml", "bench/conf")
    scenarios = files_below(ROOT / "scenarios", "*.yaml", "bench/conf/scenario")
    assert scenarios
    assert expected >= scenarios
    assert expected - contents.keys() == set()
    links = [name for name in expected if (contents[name].external_attr >> 16) & 0o170000 == 0o120000]
    assert links == []


def test_notebooks_are_in_it(contents):
    assert files_below(ROOT / "notebooks", "*.ipynb", "bench/notebooks") - contents.keys() == set()


def test_nothing_else_is_in_it(contents):
    assert {name.split("/")[0].split("-")[0] for name in contents} == {"bench", "ckpt_bench"}
    suffixes = {Path(name).suffix for name in contents if name.startswith("bench/")}
    assert suffixes <= {".py", ".yaml", ".ipynb"}


def test_its_base_asks_for_no_torch_and_its_licence_is_there(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    asked = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert asked
    assert not [line for line in asked if "torch" in line or "nvidia-resiliency-ext" in line]
    assert "License-Expression: Apache-2.0" in metadata
    assert any(name.endswith("/LICENSE") for name in names)


def test_a_run_is_planned_from_it_where_torch_is_not_installed(installed, tmp_path):
    overrides = ["scenario=ckpt_smoke", "dry_run=true", f"results_dir={tmp_path}/results", f"work_dir={tmp_path}/work"]
    command = [sys.executable, "-c", WITHOUT_TORCH, "run", *overrides]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_code_that_runs_from_it_is_its_own(installed, tmp_path):
    command = [sys.executable, "-c", "import bench; print(bench.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).is_relative_to(installed)
