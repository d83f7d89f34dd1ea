"""The memory of this process in pages of 2 MiB: a step reads every weight once, and with 4 KiB pages their addresses cost up to two
fifths of that (docs/local-engine.md).

Linux only (6.1 and later), elsewhere nothing happens. Knows no tensor: it finds large memory in use by the
process's own list of mappings.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE_BYTES = 2 << 20
LEAST_BYTES = 64 << 20  # of a region
LEAST_SHARE = 0.9  # of a region is in use: what nobody has touched must not become memory
MADV_COLLAPSE = 25  # linux/mman.h
SMAPS = Path("/proc/self/smaps")


class Region(NamedTuple):
    """Addresses [start, stop) of one mapping, and how much of it is in memory."""

    start: int
    stop: int
    resident: int


def gather() -> int:
    """Put the large regions of this process that are in use into huge pages, a second for a gigabyte or so. Returns their bytes.

    What the kernel refuses (an old one, no memory left in one piece) stays as it is: it is slower and just as right.
    """
    try:
        text = SMAPS.read_text(encoding="utf-8")
    except OSError:  # no Linux
        return 0
    return sum(region.stop - region.start for region in large(text) if collapse(region))


def large(smaps: str) -> Iterator[Region]:
    """The private anonymous mappings of a process that have LEAST_BYTES and are in use, whole huge pages of each."""
    for found in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", smaps):
        addresses, rights, _, _, _, *path = found.partition("\n")[0].split(maxsplit=5)
        resident = re.search(r"^Rss:\s+(\d+) kB$", found, re.MULTILINE)
        if rights != "rw-p" or resident is None or path not in ([], ["[heap]"]):
            continue
        start, stop = (int(address, 16) for address in addresses.split("-"))
        region = Region(-(-start // PAGE_BYTES) * PAGE_BYTES, stop // PAGE_BYTES * PAGE_BYTES, int(resident[1]) * 1024)
        if stop - start >= LEAST_BYTES and region.resident >= LEAST_SHARE * (stop - start):
            yield region


def collapse(region: Region) -> bool:
    """Contents stay what they are, and may be read and written meanwhile."""
    libc = ctypes.CDLL(None)
    done: int = libc.madvise(ctypes.c_void_p(region.start), ctypes.c_size_t(region.stop - region.start), MADV_COLLAPSE)
    return done == 0
