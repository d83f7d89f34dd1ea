"""Which memory is put into huge pages, and that it is the same memory afterwards."""

from __future__ import annotations

import ctypes
import mmap
import sys

import pytest

from local_engine import huge_pages
from local_engine.huge_pages import PAGE_BYTES, Region

MIB = 1 << 20


def entry(start: int, mib: int, resident_mib: int, rights: str = "rw-p", path: str = "") -> str:
    """As proc(5) has it."""
    kib = resident_mib * 1024
    return (
        f"{start:x}-{start + mib * MIB:x} {rights} 00000000 00:00 0   {path}\n"
        f"Size:  {mib * 1024} kB\nRss:   {kib} kB\nPss:   {kib} kB\nVmFlags: rd wr mr mw me ac\n"
    )


def test_large_private_memory_in_use_is_found() -> None:
    start = 0x7F0000000000
    smaps = (
        entry(start, 128, 128)
        + entry(start + 1 << 30, 128, 64)  # half of it untouched
        + entry(start + 2 << 30, 32, 32)
        + entry(start + 3 << 30, 128, 128, rights="r--p")
        + entry(start + 4 << 30, 128, 128, rights="rw-s", path="/dev/zero (deleted)")
        + entry(start + 5 << 30, 128, 128, path="/models/with space/model.safetensors")
        + entry(0x555500001000, 100, 95, path="[heap]")
    )
    heap = Region(0x555500200000, 0x555506400000, 95 * MIB)
    assert list(huge_pages.large(smaps)) == [Region(start, start + 128 * MIB, 128 * MIB), heap]


def test_nothing_happens_where_the_system_tells_no_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "SMAPS", huge_pages.SMAPS / "none")
    assert huge_pages.gather() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_collapsed_memory_keeps_its_contents() -> None:
    with mmap.mmap(-1, 4 * PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        written = bytes(range(256)) * (len(memory) // 256)
        memory[:] = written
        view = ctypes.c_char.from_buffer(memory)
        start = -(-ctypes.addressof(view) // PAGE_BYTES) * PAGE_BYTES
        done = huge_pages.collapse(Region(start, start + 2 * PAGE_BYTES, 2 * PAGE_BYTES))
        counted = huge_kib(start)
        del view
        assert memory[:] == written
    if not done:
        pytest.skip("this kernel has no huge pages to give")
    assert counted >= 2 * PAGE_BYTES // 1024


def huge_kib(address: int) -> int:
    inside = False
    for line in huge_pages.SMAPS.read_text(encoding="utf-8").splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            first, last = (int(one, 16) for one in name.split("-"))
            inside = first <= address < last
        elif inside and name == "AnonHugePages:":
            return int(rest[0])
    return 0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_memory_that_is_not_there_is_refused() -> None:
    assert not huge_pages.collapse(Region(PAGE_BYTES, 2 * PAGE_BYTES, PAGE_BYTES))
