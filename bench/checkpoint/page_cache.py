"""Cold reads: putting a checkpoint's files out of the client's page cache, and seeing whether they went.

No rights are needed. Dirty pages stay, so files are flushed first; on a network file system the server's cache is out
of reach, which is why the share that stayed is reported beside every cold load.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def flush(files: list[Path]) -> int:
    """Make these files durable; returns their bytes. Takes as long as they were only in memory. Raises OSError."""
    size = 0
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            size += os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    return size


def evict(files: list[Path]) -> None:
    """Ask the kernel to drop the pages of these files, which are flushed (dirty pages would stay). Raises OSError."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def cached_share(files: list[Path]) -> float | None:
    """Share of the files' pages that are in the page cache now; None if there are none, or the kernel does not say."""
    total = resident = 0
    for path in files:
        pages = _resident(path)
        if pages is None:
            return None
        total, resident = total + pages[1], resident + pages[0]
    return resident / total if total else None


def _resident(path: Path) -> tuple[int, int] | None:
    """(pages in the cache, pages) of one file."""
    size = path.stat().st_size
    if size == 0:
        return 0, 0
    pages = -(-size // mmap.PAGESIZE)
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as mapped,
    ):
        held = ctypes.create_string_buffer(pages)
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        if _libc.mincore(address, size, held) != 0:
            return None
        return sum(byte & 1 for byte in held.raw[:pages]), pages
