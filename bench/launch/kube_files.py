"""A result folder on its way out of the cluster: packed inside of a pod, unpacked on the machine that asked for it.

The stream is a gzipped tar archive: its checksum and end mark tell a whole one from one that broke off.
"""

from __future__ import annotations

import gzip
import json
import os
import tarfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from bench import occasions
from bench.results import ResultFolder
from bench.schema import UNFINISHED

FIRST_WORKER = "worker-n0-r0-*.jsonl"  # what progress is read from
RUN = "run.json"


class Broken(Exception):
    """The stream is not a whole archive."""


# --- inside a pod
def pack(result: Path, sink: BinaryIO, have: Collection[int] = (), live: bool = False) -> None:
    """Write the result to `sink`, without the launches in `have`.

    `live`: of a launch that still runs only what progress is read from. A launch's record comes after its events, so
    that whoever reads along never sees a finished launch without them.
    """
    with (
        gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=1) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        for path in chosen(result, have, live):
            _add(archive, path, path.relative_to(result))


def chosen(result: Path, have: Collection[int], live: bool) -> Iterator[Path]:
    if (result / RUN).is_file():
        yield result / RUN
    for folder in sorted((result / "launches").glob("[0-9]*"), key=lambda path: int(path.name)):
        if int(folder.name) in have:
            continue
        record = ResultFolder(result).read_launch(int(folder.name))
        running = record is None or record["status"] in UNFINISHED
        pattern = f"events/{FIRST_WORKER}" if live and running else "**/*"
        yield from sorted(path for path in folder.glob(pattern) if path.is_file() and not _apart(path))
        if record is not None:
            yield folder / "launch.json"


def _apart(path: Path) -> bool:
    """A launch's own record, which comes last, and files that are only being written."""
    return path.name.startswith(".") or (path.name == "launch.json" and path.parent.parent.name == "launches")


def _add(archive: tarfile.TarFile, path: Path, name: Path) -> None:
    """Add a file as long as it is now; a runner may be appending to it."""
    with suppress(FileNotFoundError), open(path, "rb") as file:  # set aside since it was listed
        entry = tarfile.TarInfo(name.as_posix())
        entry.size = os.fstat(file.fileno()).st_size
        entry.mtime = int(os.fstat(file.fileno()).st_mtime)
        archive.addfile(entry, file)


# --- on the machine that asked
def unpack(source: BinaryIO, result: Path) -> set[int]:
    """Bring the archive's files into `result`; returns the launches that have ended and are here now.

    Of the other side's run.json only the environment is taken over: it was found where the figures were measured.
    Raises Broken for a stream that broke off or is no archive.
    """
    ended: set[int] = set()
    names: set[Path] = set()
    try:
        with gzip.GzipFile(fileobj=source, mode="rb") as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
            for entry in archive:
                content = archive.extractfile(entry)
                if content is None or not _belongs(entry.name):
                    raise Broken(f"{entry.name!r} does not belong into a result")
                names.add(result / entry.name)
                ended |= _place(result, PurePosixPath(entry.name), content.read())
            while packed.read(1 << 20):  # to the end mark, where the checksum stands
                pass
    except (EOFError, OSError, tarfile.TarError, zlib.error) as error:
        raise Broken(f"the archive is not whole ({error})") from None
    for index in ended:
        _forget(result / "launches" / str(index), names)
    return ended


def _forget(launch: Path, names: Collection[Path]) -> None:
    """Remove what came here of an attempt that has been set aside over there since."""
    for folder in ("events", "faults", "logs"):
        for path in (launch / folder).glob("*"):
            if path not in names:
                path.unlink()


def _belongs(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and path.parts[0] in (RUN, "launches")


def _place(result: Path, name: PurePosixPath, content: bytes) -> set[int]:
    if name == PurePosixPath(RUN):
        _take_over_environment(ResultFolder(result), json.loads(content))
        return set()
    target = result / name
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.write_bytes(content)
    os.replace(temporary, target)
    if name.name != "launch.json" or len(name.parts) != 3:
        return set()
    return set() if json.loads(content)["status"] in UNFINISHED else {int(name.parts[1])}


def _take_over_environment(folder: ResultFolder, there: dict[str, Any]) -> None:
    here = folder.read_run()
    if there.get("token") == here["token"]:
        before = json.dumps(here)
        occasions.take_over_environments(here, there)
        if json.dumps(here) != before:
            folder.write_run(here)
