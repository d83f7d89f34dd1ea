"""Sessions of the console: signing in with a password or with an API key that has a role, finding whose a cookie is, signing out.

A session is a random token in the browser and its digest in SQL, so a stolen database opens nothing. It ends IDLE_S after its last use, at
the latest after its hours; at once when the member or the key ends, or signs out everywhere. Knows no cookie and no page.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import BigInteger, ColumnElement, Row, delete, insert, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway import audit, passwords, throttle
from gateway.access import ADMIN, FINANCE, MEMBER, TEAM_ADMIN, Actor, of_key
from gateway.auth import Keyring, present_keys, principal_from
from gateway.db.engine import clock_us, reading
from gateway.db.tables import api_keys, members, memberships, sessions, teams
from gateway.errors import InvalidKey, InvalidRequest, NotFound, NotReady, RateLimited
from gateway.people.common import alone
from gateway.people.members import link_digest, normal_email, put_password

IDLE_S = 12 * 3600
TOUCH_S = 60  # how old the last use may be told
TOKEN_BYTES = 32
TOKEN_MAX_CHARS = 100
HASHING = 2  # passwords that one worker looks at at once: each takes a core for a fifth of a second
HASHING_WAIT = 50  # sign-ins that may wait for that; beyond it 503
LOOKED_AT_CHARS = passwords.MAX_CHARS + 1  # of a password that is tried
PER_OWNER = 50  # sessions of one member or key; the oldest end first

T = TypeVar("T")


class Sessions:
    """One per worker. hours: how long a session lasts at most. now_us: the clock, for tests; without it the database's."""

    def __init__(self, engine: AsyncEngine, keyring: Keyring, hours: float, now_us: Callable[[], int] | None = None) -> None:
        self._engine = engine
        self._keyring = keyring
        self._clock = now_us
        self._hashing = asyncio.Semaphore(HASHING)
        self._waiting = 0
        self.seconds = int(hours * 3600)

    def _now(self) -> ColumnElement[int]:
        """Now, for use in a statement."""
        return clock_us(self._engine.dialect.name) if self._clock is None else literal(self._clock(), BigInteger)

    # ---- signing in ----------------------------------------------------------------------------------------------------------------
    async def with_password(self, email: str, password: str, address: str) -> str:
        """A session's token. InvalidKey says the same for an unknown e-mail, a wrong password and none set; RateLimited: throttle.py."""
        email = normal_email(email) if email.isprintable() else ""
        await self._admit(email, address)
        async with reading(self._engine).connect() as connection:
            known = select(members.c.id, members.c.password).where(members.c.email == email, members.c.deleted_at_us.is_(None))
            row = (await connection.execute(known)).one_or_none()
        good = await self._off_the_loop(passwords.matches, password[:LOOKED_AT_CHARS], None if row is None else row.password)
        if row is None or not good:
            raise _wrong()
        async with alone(self._engine) as (connection, _):
            still = members.c.id == row.id, members.c.deleted_at_us.is_(None), members.c.password == row.password
            if (await connection.execute(select(members.c.id).where(*still))).one_or_none() is None:  # ended or changed meanwhile
                raise _wrong()
            await throttle.take_back(connection, email, address)
            return await self._open(connection, Actor(name=email, role=MEMBER, member_id=row.id))

    async def with_key(self, key: str) -> str:
        """A session's token for an API key with a role; it ends with the secret that opened it. InvalidKey, Forbidden."""
        headers = {b"authorization": b"Bearer " + key.strip().encode(errors="replace")}
        principal = self._keyring.find(headers) or await self._keyring.find_slow(headers)
        who = of_key(principal)
        async with self._engine.begin() as connection:
            return await self._open(connection, who, principal.expires_at_us)

    async def with_link(self, link: str, password: str, address: str) -> str:
        """Set a password with a one-time link; a session's token. NotFound: no such link, used already or too old."""
        passwords.check(password)
        which = members.c.link_digest == link_digest(link), members.c.deleted_at_us.is_(None)
        known = select(members.c.id, members.c.email).where(*which, members.c.link_expires_at_us > self._now())
        await self._admit(None, address)
        async with reading(self._engine).connect() as connection:
            if (await connection.execute(known)).one_or_none() is None:
                raise _no_link()
        made = await self._off_the_loop(passwords.hashed, password)
        async with alone(self._engine) as (connection, _):
            row = (await connection.execute(known)).one_or_none()
            if row is None:
                raise _no_link()
            who = Actor(name=row.email, role=MEMBER, member_id=row.id)
            await put_password(connection, row.id, made)
            await audit.write(connection, who, action="member.password", kind="member", ident=row.email)
            return await self._open(connection, who)

    async def change_password(self, actor: Actor, old: str, new: str, address: str) -> str:
        """Another password for who is signed in; every session of theirs ends, the token of a new one. InvalidKey: `old` is not theirs."""
        passwords.check(new, "new")
        known = select(members.c.email, members.c.password).where(members.c.id == actor.member_id, members.c.deleted_at_us.is_(None))
        async with reading(self._engine).connect() as connection:
            row = (await connection.execute(known)).one_or_none()
        if row is None:
            raise InvalidRequest("A session that was opened with an API key has no password to change.")
        await self._admit(row.email, address)
        if not await self._off_the_loop(passwords.matches, old[:LOOKED_AT_CHARS], row.password):
            raise InvalidKey("This is not your present password.", code="wrong_password")
        made = await self._off_the_loop(passwords.hashed, new)
        async with alone(self._engine) as (connection, _):
            if (await connection.execute(known.where(members.c.password == row.password))).one_or_none() is None:  # changed meanwhile
                raise InvalidKey("Your password was changed meanwhile: sign in with it.", code="wrong_password")
            await throttle.take_back(connection, row.email, address)
            await put_password(connection, actor.member_id or 0, made)
            await audit.write(connection, actor, action="member.password", kind="member", ident=row.email)
            return await self._open(connection, actor)

    async def _admit(self, email: str | None, address: str) -> None:
        async with self._engine.begin() as connection:
            now_us = (await connection.execute(select(self._now()))).scalar_one()
            wait_s = await throttle.admit(connection, email, address, now_us)
        if wait_s:
            told = f"Too many sign-ins failed. Try again in {-(-wait_s // 60)} minutes."
            raise RateLimited(told, code="too_many_sign_ins", retry_after_s=wait_s)

    async def _off_the_loop(self, work: Callable[..., T], *arguments: Any) -> T:
        """A hash in a thread, a few at a time: whoever sends many passwords must not slow down those who stream answers."""
        if self._waiting >= HASHING_WAIT:
            raise NotReady("Many sign in at this moment: try again.", code="overloaded", retry_after_s=2)
        self._waiting += 1
        try:
            async with self._hashing:
                return await asyncio.to_thread(work, *arguments)
        finally:
            self._waiting -= 1

    async def _open(self, connection: AsyncConnection, who: Actor, ends_us: int | None = None) -> str:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        now_us = (await connection.execute(select(self._now()))).scalar_one()
        owner = sessions.c.member_id == who.member_id if who.member_id is not None else sessions.c.key_id == who.key_id
        spare = select(sessions.c.digest).where(owner).order_by(sessions.c.created_at_us.desc()).offset(PER_OWNER - 1)
        await connection.execute(delete(sessions).where(or_(sessions.c.expires_at_us <= now_us, sessions.c.digest.in_(spare))))
        values = {"member_id": who.member_id, "key_id": None if who.member_id is not None else who.key_id, "created_at_us": now_us}
        ends = now_us + self.seconds * 1_000_000
        until = {"seen_at_us": now_us, "expires_at_us": ends if ends_us is None else min(ends, ends_us)}
        await connection.execute(insert(sessions).values(digest=_digest(token), **values, **until))
        await audit.write(connection, who, action="session.open", kind="session", ident=who.name)
        return token

    # ---- while signed in -----------------------------------------------------------------------------------------------------------
    async def actor(self, token: str) -> Actor | None:
        """Whose session it is; None for none, one that has ended, or one whose member or key has."""
        if not 0 < len(token) <= TOKEN_MAX_CHARS:
            return None
        this = sessions.c.digest == _digest(token)
        async with reading(self._engine).connect() as connection:
            row = (await connection.execute(select(sessions, self._now().label("now_us")).where(this))).one_or_none()
            if row is None or row.expires_at_us <= row.now_us or row.seen_at_us + IDLE_S * 1_000_000 <= row.now_us:
                return None
            who = await (_member if row.member_id is not None else _key)(connection, row)
        if who is not None and row.seen_at_us + TOUCH_S * 1_000_000 <= row.now_us:
            async with self._engine.begin() as connection:
                await connection.execute(update(sessions).where(this).values(seen_at_us=row.now_us))
        return who

    async def end(self, token: str) -> None:
        """Sign out. Harmless when it has ended already."""
        async with self._engine.begin() as connection:
            await connection.execute(delete(sessions).where(sessions.c.digest == _digest(token)))

    async def end_all(self, actor: Actor) -> int:
        """Sign out everywhere; how many sessions ended."""
        owner = sessions.c.member_id == actor.member_id if actor.member_id is not None else sessions.c.key_id == actor.key_id
        async with self._engine.begin() as connection:
            ended = (await connection.execute(delete(sessions).where(owner))).rowcount
            await audit.write(connection, actor, action="session.end_all", kind="session", ident=actor.name, before={"sessions": ended})
        return ended


async def _member(connection: AsyncConnection, session: Row[Any]) -> Actor | None:
    live = members.c.id == session.member_id, members.c.deleted_at_us.is_(None)
    row = (await connection.execute(select(members.c.email, members.c.role).where(*live))).one_or_none()
    if row is None:
        return None
    places = select(memberships.c.team_id, memberships.c.role).join(teams, teams.c.id == memberships.c.team_id)
    mine = memberships.c.member_id == session.member_id, teams.c.deleted_at_us.is_(None)
    held = {row.team_id: row.role for row in await connection.execute(places.where(*mine))}
    if row.role in (ADMIN, FINANCE):
        return Actor(name=row.email, role=row.role, member_id=session.member_id)
    role = TEAM_ADMIN if TEAM_ADMIN in held.values() else MEMBER
    return Actor(name=row.email, role=role, teams=held, member_id=session.member_id)


async def _key(connection: AsyncConnection, session: Row[Any]) -> Actor | None:
    row = (await connection.execute(present_keys().where(api_keys.c.id == session.key_id))).first()
    if row is None or (row.expires_at_us is not None and row.expires_at_us <= session.now_us):
        return None
    return of_key(principal_from(row)[1])


def _digest(token: str) -> bytes:
    return hashlib.sha256(b"session\0" + token.encode()).digest()


def _wrong() -> InvalidKey:
    return InvalidKey("This e-mail address and password do not belong together.", code="wrong_password")


def _no_link() -> NotFound:
    return NotFound("This link was used already or is too old: ask for a new one.", code="not_found")
