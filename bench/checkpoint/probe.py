"""The storage probe: how fast the checkpoint store takes plain sequential writes, as a ceiling to hold saves against.

`python -m bench.checkpoint.probe DIRECTORY NAME BYTES FSYNC START_AT REPEATS` writes a file of BYTES with the suite's
own fsync setting, so many times, from START_AT on (monotonic seconds) so that all processes of a node write together,
and prints [{"t0", "t1"}, ...]. As many processes as ranks and the same bytes per process as a save make it comparable.
The first write finds the client cold, like the first save, and is not counted where there are others.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

CHUNK_BYTES = 8 << 20
LARGE_BYTES = 256 << 20


def write_once(path: Path, total_bytes: int, fsync: bool, start_at: float) -> tuple[float, float]:
    """Begin and end (monotonic seconds) of writing `total_bytes` to a new file at `path`, which is removed again."""
    chunk = memoryview(os.urandom(1 << 20) * (CHUNK_BYTES >> 20))  # incompressible: some stores cheat on zeros
    while time.monotonic() < start_at:
        time.sleep(0.001)
    t0 = time.monotonic()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        left = total_bytes
        while left > 0:
            left -= os.write(file, chunk[: min(left, CHUNK_BYTES)])
        if fsync:
            os.fsync(file)
        t1 = time.monotonic()
    finally:
        os.close(file)
        path.unlink()
    return t0, t1


def repeats_for(total_bytes: int) -> int:
    """How often to write: large writes average over themselves, and cost too much to be repeated much."""
    return 5 if total_bytes <= LARGE_BYTES else 2


def main(arguments: list[str]) -> int:
    directory, name, total, fsync, start_at, repeats = arguments
    path = Path(directory) / f".probe-{name}"
    spans = [write_once(path, int(total), fsync == "True", float(start_at)) for _ in range(int(repeats))]
    print(json.dumps([{"t0": t0, "t1": t1} for t0, t1 in spans]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
