"""Takes over the journals of processes that have died: rows first, money back last. A kernel lock says who lives, not a heartbeat.

Safe to abort anywhere, to repeat, or to run twice: the sequence number and the row ids decide what is applied.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from uuid import UUID

from gateway.db.session import Away, Refused, Session
from gateway.money import sync
from gateway.money.journal import UNBORN, Header, boot_id, remove_directory, take_lock
from gateway.money.journal_reading import Corrupt, Newer, Reading, header, verify
from gateway.money.quarantine import Quarantine, SetAside, unstorable, without
from gateway.money.records import UsageRecord
from gateway.settings import Money

UNBORN_S = 3600.0  # a folder that never got its name is litter after this

log = logging.getLogger("tollway.money")


class Adopter:
    """Scans the siblings of a journal. adopted: processes closed here. corrupt: folders left alone, their leases stay held."""

    def __init__(self, session: Session, settings: Money, root: Path, now_us: Callable[[], int], boot: str | None = None) -> None:
        self.session = session
        self.settings = settings
        self.root = root
        self.adopted = 0
        self.corrupt: set[Path] = set()
        self.quarantine = Quarantine(root)
        self._now_us = now_us
        self._boot = boot_id() if boot is None else boot

    async def run(self) -> None:
        """At start and every adopt_scan_s."""
        while True:
            await self.scan()
            await asyncio.sleep(self.settings.adopt_scan_s)

    async def scan(self) -> None:
        """Adopt every dead sibling that there is."""
        try:
            found = sorted(path for path in self.root.iterdir() if path.is_dir())
        except OSError:
            return
        for directory in found:
            if directory in self.corrupt:
                continue
            try:
                await self.adopt(directory)
            except (Away, Refused, sync.Moved, OSError) as error:
                log.warning("journal %s: adoption put off: %s", directory, error)
            except Newer as error:
                log.warning("journal %s is left to a newer program: %s", directory, error)
            except Corrupt as error:
                self.corrupt.add(directory)
                log.error("journal %s is not adopted and its leases stay held: %s. See `tollway processes`.", directory, error)

    async def adopt(self, directory: Path) -> bool:
        """True when the process was dead and its journal is settled and gone. False: it lives, or there is nothing to adopt."""
        if directory.name.startswith(UNBORN):
            _sweep(directory)
            return False
        try:
            process = UUID(directory.name)
        except ValueError:
            return False
        lock = take_lock(directory)
        if lock is None:
            return False
        try:
            await self._settle(directory, process)
            remove_directory(directory)
        finally:
            os.close(lock)
        self.adopted += 1
        log.warning("adopted the journal of process %s", process)
        return True

    async def _settle(self, directory: Path, process: UUID) -> None:
        head = await asyncio.to_thread(header, directory)
        await asyncio.to_thread(verify, directory)
        sql = self.session.dialect
        reading = Reading(directory)
        rows = iter(reading)
        batch = await asyncio.to_thread(self._next, rows)
        known = await self.session.run(sync.process_state(sql, process), reads=True)
        written = False
        while batch:
            await self._write(process, batch, directory, head)
            written = True
            batch = await asyncio.to_thread(self._next, rows)
        unknown = reading.unknown(self._now_us())
        for start in range(0, len(unknown), self.settings.batch_rows):
            await self._write(process, unknown[start : start + self.settings.batch_rows], directory, head)
            written = True
        if known is None and not written:
            return  # it never registered, and nothing was admitted before it did
        state = await self.session.run(sync.process_state(sql, process), reads=True)
        if state is None or state[1] != "live":
            return
        await self._close(process, state[0], head)

    def _next(self, rows: Iterator[UsageRecord]) -> list[UsageRecord]:
        return list(islice(rows, self.settings.batch_rows))

    async def _write(self, process: UUID, rows: list[UsageRecord], directory: Path, head: Header | None) -> None:
        """Rows in the dead process's name, under its guard; a late transaction of its own may move the number once or twice."""
        sql = self.session.dialect
        bad: list[SetAside] = []
        for _ in range(5):
            state = await self.session.run(sync.process_state(sql, process), reads=True)
            if state is None:  # the database was restored to before its birth
                boot = "" if head is None else head.boot_id
                await self.session.run(sync.register(sql, process, socket.gethostname(), boot, str(directory)))
                continue
            payload = sync.Payload(process=process, seq=state[0], rows=tuple(rows), owner=False, fenced=state[1] != "live")
            try:
                await self.session.run(sync.sync(sql, without(payload, bad)))
                return
            except sync.Moved:
                continue
            except Refused:
                bad = await unstorable(self.session, payload, self._now_us())
                if not bad:
                    raise
                self.quarantine.add(bad)
                log.error("journal %s: %d rows are set aside, the database does not take them: %s", directory, len(bad), bad[0].why)
        raise sync.Moved(f"process {process} does not hold still")

    async def _close(self, process: UUID, seq: int, head: Header | None) -> None:
        """After a reboot a journal that was not fsynced may lack its tail: what it does not explain is booked, not released."""
        rebooted = head is not None and head.fsync != "power" and head.boot_id != self._boot
        await self.session.run(sync.close_process(self.session.dialect, process, seq, charge=sync.REBOOT if rebooted else ""))


def _sweep(directory: Path) -> None:
    """A process died between making its folder and naming it: nothing can stand in it."""
    lock = take_lock(directory)
    if lock is None:
        return
    try:
        if time.time() - directory.stat().st_mtime > UNBORN_S:
            remove_directory(directory)
    except OSError as error:
        log.warning("cannot remove %s: %s", directory, error)
    finally:
        os.close(lock)
