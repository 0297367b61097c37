"""The storage probe: how fast the checkpoint store takes plain sequential writes, as a ceiling to hold saves against.

`python -m bench.checkpoint.probe DIRECTORY NAME BYTES FSYNC PROCESSES REPEATS START_AT` lets PROCESSES processes write
a file of BYTES each, at the same time, with the suite's own fsync setting; so many times, from START_AT on (monotonic
seconds). Prints {"seconds": [...]}: for each repeat from the first begin to the last end. As many processes as ranks
and the same bytes per process as a save make it comparable. The first repeat finds the client cold, like a first save,
and is left out.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

CHUNK_BYTES = 8 << 20
LARGE_BYTES = 256 << 20
SHORT_REPEATS = 3  # where writes with and without fsync are probed, one after the other
Span = tuple[float, float]


def write_once(path: Path, total_bytes: int, fsync: bool) -> Span:
    """Begin and end (monotonic seconds) of writing `total_bytes` to a new file at `path`, which is removed again."""
    chunk = memoryview(os.urandom(1 << 20) * (CHUNK_BYTES >> 20))  # incompressible: some stores cheat on zeros
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


def write_together(path: Path, total_bytes: int, fsync: bool, processes: int, repeats: int) -> list[float]:
    """Seconds of each repeat but the first, over all processes, which begin every repeat together."""
    context = multiprocessing.get_context("fork")  # this process has imported nothing that minds
    barrier, answers = context.Barrier(processes), context.SimpleQueue()
    writers = [
        context.Process(target=_write, args=(path, number, total_bytes, fsync, repeats, barrier, answers))
        for number in range(processes)
    ]
    for writer in writers:
        writer.start()
    by_process = [answers.get() for _ in writers]
    for writer in writers:
        writer.join()
    together = list(zip(*by_process, strict=True))[1:]
    return [max(t1 for _, t1 in spans) - min(t0 for t0, _ in spans) for spans in together]


def _write(
    path: Path,
    number: int,
    total_bytes: int,
    fsync: bool,
    repeats: int,
    barrier: Barrier,
    answers: SimpleQueue[list[Span]],
) -> None:
    spans = []
    try:
        for _ in range(repeats):
            barrier.wait()
            spans.append(write_once(path.with_name(f"{path.name}-{number}"), total_bytes, fsync))
    except BaseException:
        barrier.abort()  # the others would wait for ever
        raise
    finally:
        answers.put(spans)


def main(arguments: list[str]) -> int:
    directory, name, total, fsync, processes, repeats, start_at = arguments
    while time.monotonic() < float(start_at):
        time.sleep(0.001)
    path = Path(directory) / f".probe-{name}"
    seconds = write_together(path, int(total), fsync == "True", int(processes), int(repeats))
    print(json.dumps({"seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
