"""Sites as they are: no root, a home and an installation that cannot be written to, no compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole_runs import carried_through

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534
COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "clang++", "nvcc")
QUICK = ["model.layers=1", "train.seq_len=16", "train.batch_size=1", "cycles=3", "design.control_steps=2"]


class Site:
    """A user without rights, and the little that is theirs: one folder."""

    def __init__(self, path: Path) -> None:
        self.work = path / "work"
        self.home = path / "home"
        self.programs = path / "bin"
        for folder in (self.work, self.home, self.programs):
            folder.mkdir()
        self._link_programs()
        if os.geteuid() == 0:
            os.chown(self.work, NOBODY, NOBODY)
            self.become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all"]
        else:
            self.become = []
        self.home.chmod(0o555)

    def _link_programs(self) -> None:
        """All programs of this machine but compilers. The search path holds nothing else."""
        for folder in reversed(["/usr/bin", "/bin", "/usr/sbin", "/sbin"]):
            for program in Path(folder).glob("*"):
                link = self.programs / program.name
                if not link.exists() and not any(each in program.name for each in ("gcc", "g++", "clang", "c++")):
                    link.symlink_to(program)
        for name in COMPILERS:
            (self.programs / name).unlink(missing_ok=True)

    @property
    def env(self) -> dict[str, str]:
        paths = [str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        return {
            "PATH": str(self.programs),
            "HOME": str(self.home),
            "TMPDIR": str(self.work),
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.become, "env", "-C", str(self.work), *command],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def python(self) -> str | None:
        """An interpreter of this version that the user may run; the tests' own may lie in somebody's closed home."""
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        for candidate in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
            if self.run("sh", "-c", f"exec {candidate} -c 'import bench, torch, hydra'").returncode == 0:
                return candidate
        return None


@pytest.fixture
def site() -> Iterator[Site]:
    """Below the system's temporary folder, for pytest's own folders are closed to other users."""
    with tempfile.TemporaryDirectory(prefix="site-") as path:
        os.chmod(path, 0o755)
        yield Site(Path(path))


@pytest.mark.slow
def test_a_run_needs_no_rights_no_home_to_write_to_and_no_compiler(site):
    python = site.python()
    if python is None:
        pytest.skip("no interpreter with the suite's packages can be run by another user here")
    assert site.run("sh", "-c", "command -v gcc cc clang g++").stdout == ""
    assert site.run("sh", "-c", f"touch {site.home}/x || touch {ROOT}/bench/x").returncode != 0
    before = set(site.home.rglob("*"))

    done = site.run(
        python, "-m", "bench", "run", "scenario=ckpt_smoke", "machine=box", f"work_dir={site.work}/w", *QUICK
    )
    assert carried_through(done.returncode, site.work / "results" / "latest"), done.stdout + done.stderr
    summary = json.loads((site.work / "results" / "latest" / "summary.json").read_text())
    assert [arm["content_verified"] for arm in summary["arms"]] == [None, True, True]
    assert set(site.home.rglob("*")) == before
    assert [path for path in (site.work / "w").rglob("*") if path.name != "checkpoints"] == []


def test_the_site_of_these_tests_is_as_poor_as_it_claims(site):
    if site.become and shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed (util-linux)")
    asked = "id -u; command -v gcc cc clang g++ nvcc; touch $HOME/x 2>/dev/null && echo written; pwd"
    told = site.run("sh", "-c", asked).stdout.split()
    assert told == [str(NOBODY if site.become else os.geteuid()), str(site.work)]
