"""The storage probe: how fast the checkpoint store takes plain sequential writes, as a ceiling to hold saves against.

`python -m bench.checkpoint.probe DIRECTORY NAME BYTES FSYNC START_AT` writes one file of BYTES with the suite's
own fsync setting, starting at START_AT (monotonic seconds) so that all processes of a node write together, removes it
and prints {"t0", "t1"}. As many processes as ranks and the same bytes per process as a save make the comparison fair.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

CHUNK_BYTES = 8 << 20


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


def main(arguments: list[str]) -> int:
    directory, name, total, fsync, start_at = arguments
    t0, t1 = write_once(Path(directory) / f".probe-{name}", int(total), fsync == "True", float(start_at))
    print(json.dumps({"t0": t0, "t1": t1}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
