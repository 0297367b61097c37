"""Probes: processes that find out what this one cannot, because it has neither torch nor a device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOK_S = 0.02
GOODBYE_S = 2.0  # after SIGTERM, before SIGKILL: srun needs it to end its tasks


@dataclass(frozen=True)
class Answer:
    """The JSON objects that a probe printed, one a line; `error`: why there are no more of them, or None."""

    lines: list[dict[str, Any]]
    error: str | None

    def find(self, key: str) -> Any:
        """The first value under `key`, or None."""
        return next((line[key] for line in self.lines if key in line), None)


def module(name: str, *arguments: object) -> list[str]:
    """The command that runs a module of this suite."""
    return [sys.executable, "-m", name, *map(str, arguments)]


def ask(
    commands: Sequence[Sequence[str]], patience_s: float, variables: Mapping[str, str] | None = None
) -> list[Answer]:
    """Run the commands side by side, each in a session of its own; none of their processes outlives this call."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    env = dict(os.environ) | {"PYTHONPATH": path} | dict(variables or {})
    with tempfile.TemporaryDirectory(prefix="bench-ask-") as folder:
        outputs = [(Path(folder, f"{number}.out"), Path(folder, f"{number}.err")) for number in range(len(commands))]
        started: list[subprocess.Popen[bytes]] = []
        try:
            for command, (out, err) in zip(commands, outputs, strict=True):
                started.append(_start(command, env, out, err))
            _wait(started, patience_s)
            late = [process.poll() is None for process in started]
        finally:
            _end(started)
        errors = [
            f"no answer within {patience_s:.0f} s" if overdue else _error(process.returncode, err)
            for process, overdue, (_, err) in zip(started, late, outputs, strict=True)
        ]
        return [Answer(_objects(out), error) for (out, _), error in zip(outputs, errors, strict=True)]


def _start(command: Sequence[str], env: Mapping[str, str], out: Path, err: Path) -> subprocess.Popen[bytes]:
    with open(out, "wb") as output, open(err, "wb") as errors:
        return subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=dict(env), start_new_session=True
        )


def _wait(processes: Sequence[subprocess.Popen[bytes]], patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while any(process.poll() is None for process in processes) and time.monotonic() < end:
        time.sleep(LOOK_S)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what still runs of the sessions, the children of ended probes included."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        _signal(process.pid, signal.SIGTERM)
    _wait(running, GOODBYE_S)
    for process in processes:
        _signal(process.pid, signal.SIGKILL)
        process.wait()


def _signal(group: int, signum: int) -> None:
    try:
        os.killpg(group, signum)
    except (ProcessLookupError, PermissionError):
        pass  # all of it has ended


def _error(code: int, err: Path) -> str | None:
    if code == 0:
        return None
    words = [line for line in err.read_text(errors="replace").splitlines() if line.strip()]
    return words[-1].strip() if words else f"ended with exit code {code}"


def _objects(out: Path) -> list[dict[str, Any]]:
    found = []
    for line in out.read_text(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue  # what a library or srun had to say
        if isinstance(value, dict):
            found.append(value)
    return found
