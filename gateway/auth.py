"""API keys: their form, their digest, and the worker's snapshot that turns a request's header into a Principal.

`find` is a plain function over dictionaries. A key that the snapshot lacks costs one look-up that all who wait share, and is remembered
as missing for a moment. Knows no route and no budget.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import re
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog
from msgspec import Struct
from sqlalchemy import BigInteger, Row, Select, Subquery, cast, func, null, select, union_all
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.engine import reading
from gateway.db.tables import api_keys, former_secrets, organisations, teams
from gateway.errors import InvalidKey, NotReady
from gateway.labels import Labels, stored
from gateway.settings import ConfigError, Settings

SCOPES = ("inference", "admin", "finance", "team_admin")  # the last three are roles: access.py
SECRET_FILE = "tollway.secret"
SECRET_MIN_BYTES = 32
SECRET_MAX_BYTES = 4096
PUBLIC_CHARS = 12
RECENT = 4096  # headers whose digest is remembered
MISSING = 10_000  # unknown keys that are remembered
MISSING_S = 5.0
WAITING = 1000  # unknown keys that may wait for the database at once; beyond it 503
BATCH = 200  # keys in one look-up
LOOK_UP_S = 2.0
HEADER_MAX_BYTES = 256  # longer than any key in its header

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY = re.compile(rb"tw-[0-9A-Za-z]{12}-[0-9A-Za-z]{32,64}")
_BEARER = re.compile(rb"bearer[ \t]+", re.IGNORECASE)

log = structlog.get_logger("tollway.auth")


class Principal(Struct, frozen=True, kw_only=True):
    """Who asks. models: names the key may use (routes or upstream), None = all. salt: the tenant's, for prefix caches.

    labels: its team's and its own, which every backend of its requests must carry.
    """

    org_id: int
    team_id: int
    key_id: int
    org: str = ""
    team: str = ""
    scopes: frozenset[str] = frozenset(("inference",))
    models: frozenset[str] | None = None
    salt: str = ""
    tag: str = ""
    labels: Labels = ()
    key_public: str = ""
    expires_at_us: int | None = None


class Minted(Struct, frozen=True):
    """A new key. `text` is shown once and stored nowhere."""

    text: str
    public: str
    digest: bytes


def mint(secret: bytes) -> Minted:
    """A new key of 12 public and 43 secret characters (256 bits), its digest under `secret`."""
    public = "".join(secrets.choice(_ALPHABET) for _ in range(PUBLIC_CHARS))
    text = f"tw-{public}-" + "".join(secrets.choice(_ALPHABET) for _ in range(43))
    return Minted(text, public, digest_of(text.encode(), secret))


def digest_of(key: bytes, secret: bytes) -> bytes:
    """HMAC-SHA256: what the database holds of a key."""
    return hmac.digest(secret, key, hashlib.sha256)


def _held() -> Subquery:
    """Every secret that a key has: its own, and those from before it was rotated, each until its day."""
    own = select(api_keys.c.id.label("key_id"), api_keys.c.digest, api_keys.c.public, cast(null(), BigInteger).label("until_us"))
    former = select(former_secrets.c.key_id, former_secrets.c.digest, former_secrets.c.public, former_secrets.c.until_us)
    return union_all(own, former).subquery("held")


held = _held()


def live_keys() -> Select[Any]:
    """The statement that every load of keys uses: not revoked, not blocked, team not deleted. Expired ones are left to `find`."""
    return (
        select(
            held.c.digest,
            api_keys.c.id,
            api_keys.c.team_id,
            teams.c.org_id,
            teams.c.name,
            organisations.c.name.label("org"),
            api_keys.c.scopes,
            api_keys.c.models,
            api_keys.c.tag,
            api_keys.c.labels,
            teams.c.labels.label("team_labels"),
            held.c.public,
            teams.c.salt,
            api_keys.c.expires_at_us,
            held.c.until_us,
        )
        .join(api_keys, api_keys.c.id == held.c.key_id)
        .join(teams, teams.c.id == api_keys.c.team_id)
        .join(organisations, organisations.c.id == teams.c.org_id)
        .where(api_keys.c.revoked_at_us.is_(None), api_keys.c.blocked_at_us.is_(None), teams.c.deleted_at_us.is_(None))
    )


def present_keys() -> Select[Any]:
    """Of `live_keys` one row for each key: that of its present secret."""
    return live_keys().where(held.c.until_us.is_(None))


def principal_from(row: Row[Any]) -> tuple[bytes, Principal]:
    """(digest, principal) of one row of `live_keys`."""
    ends = [at_us for at_us in (row.expires_at_us, row.until_us) if at_us is not None]
    return bytes(row.digest), Principal(
        org_id=row.org_id,
        team_id=row.team_id,
        key_id=row.id,
        org=row.org,
        team=row.name,
        scopes=frozenset(row.scopes.split()),
        models=None if row.models is None else frozenset(msgspec.json.decode(row.models, type=list[str])),
        salt=row.salt,
        tag=row.tag,
        labels=stored(row.team_labels, row.labels),
        key_public=row.public,
        expires_at_us=min(ends, default=None),
    )


class Keyring:
    """One per worker. The snapshot is swapped whole by `replace`; what is remembered beside it can never outlive a revocation."""

    def __init__(self, accepted: Sequence[bytes], engine: AsyncEngine) -> None:
        if not accepted:
            raise ValueError("a keyring needs at least one secret")
        self._secrets = tuple(accepted)
        self._engine = reading(engine)
        self._keys: Mapping[bytes, Principal] = {}
        self._found: dict[bytes, Principal] = {}  # looked up since the snapshot was taken; dropped with it
        self._recent: dict[bytes, bytes] = {}  # header -> digest of a key that was found: a pure function, so it needs no revocation
        self._missing: dict[bytes, float] = {}  # digest -> monotonic second until which nobody asks again
        self._waiting: dict[bytes, _Waiter] = {}
        self._task: asyncio.Task[None] | None = None
        self._generation = 0
        self.look_ups = 0  # statements sent for unknown keys

    def __len__(self) -> int:
        return len(self._keys)

    def replace(self, keys: Mapping[bytes, Principal]) -> None:
        """Take over a new snapshot, digest -> principal. Everything that was looked up before it is forgotten."""
        self._generation += 1
        self._keys = keys
        self._found = {}

    def find(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """The principal of a request; None = not in the snapshot: ask `find_slow`. InvalidKey: no key, no key's form, unknown, expired."""
        raw = headers.get(b"authorization") or headers.get(b"x-api-key") or headers.get(b"api-key") or b""
        digest = self._recent.get(raw)
        if digest is not None:
            principal = self._keys.get(digest) or self._found.get(digest)
            if principal is not None:
                return principal if principal.expires_at_us is None else _unexpired(principal)
        return self._find_new(headers)

    def _find_new(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """`find` for a header that is not remembered, or whose key has gone."""
        sent, key = _key_in(headers)
        digests = self._digests(key)
        for digest in digests:
            principal = self._keys.get(digest) or self._found.get(digest)
            if principal is not None:
                if len(self._recent) >= RECENT:
                    self._recent.clear()
                self._recent[sent] = digest
                return _unexpired(principal)
        if self._missing.get(digests[-1], 0.0) > time.monotonic():
            raise _unknown()
        return None

    def _digests(self, key: bytes) -> list[bytes]:
        """The digests that a key may be stored under, one per accepted secret."""
        return [hmac.digest(secret, key, hashlib.sha256) for secret in self._secrets]

    async def find_slow(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Ask the database for a key that the snapshot lacks. InvalidKey: there is none. NotReady: nobody could be asked."""
        digests = self._digests(_key_in(headers)[1])
        waiter = self._waiting.get(digests[-1])
        if waiter is None:
            if len(self._waiting) >= WAITING:
                raise _away("too many unknown keys wait to be looked up")
            waiter = _Waiter(digests, asyncio.get_running_loop().create_future())
            self._waiting[digests[-1]] = waiter
            if self._task is None:
                self._task = asyncio.create_task(self._look_up_all())
        answered, found = await asyncio.shield(waiter.future)
        if not answered:
            raise _away("the database does not answer")
        if found is None:
            raise _unknown()
        return _unexpired(found)

    async def _look_up_all(self) -> None:
        """One statement at a time for all who wait, until nobody does."""
        try:
            while self._waiting:
                batch = [self._waiting[name] for name in list(self._waiting)[:BATCH]]
                answered = await self._look_up(batch)
                for waiter in batch:
                    del self._waiting[waiter.digests[-1]]
                    waiter.future.set_result((answered is not None, None if answered is None else _first(answered, waiter.digests)))
        finally:
            self._task = None
            for waiter in self._waiting.values():  # nobody may wait for ever, whatever went wrong
                waiter.future.set_result((False, None))
            self._waiting.clear()

    async def _look_up(self, batch: Sequence[_Waiter]) -> dict[bytes, Principal] | None:
        """The live keys among those asked for; None when the database did not answer. Remembers both, unless a snapshot came between."""
        generation = self._generation
        self.look_ups += 1
        statement = live_keys().where(held.c.digest.in_([digest for waiter in batch for digest in waiter.digests]))
        try:
            async with asyncio.timeout(LOOK_UP_S), self._engine.connect() as connection:
                rows = (await connection.execute(statement)).all()
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            log.warning("keys cannot be looked up", error=str(error))
            return None
        found = dict(principal_from(row) for row in rows)
        if generation == self._generation:  # a snapshot that came meanwhile may have revoked one of these
            self._found.update(found)
        for waiter in batch:
            if _first(found, waiter.digests) is None:
                self._remember_missing(waiter.digests[-1])
        return found

    def _remember_missing(self, digest: bytes) -> None:
        while len(self._missing) >= MISSING:
            del self._missing[next(iter(self._missing))]  # oldest first
        self._missing.pop(digest, None)
        self._missing[digest] = time.monotonic() + MISSING_S


class _Waiter(NamedTuple):
    """An unknown key that is being looked up, and all who wait for it. Result: (the database answered, the key's principal)."""

    digests: list[bytes]
    future: asyncio.Future[tuple[bool, Principal | None]]


def _first(found: Mapping[bytes, Principal], digests: Sequence[bytes]) -> Principal | None:
    return next((found[digest] for digest in digests if digest in found), None)


def _unexpired(principal: Principal) -> Principal:
    if principal.expires_at_us is not None and time.time_ns() >= principal.expires_at_us * 1000:
        raise InvalidKey("This API key has expired: ask for a new one.")
    return principal


def _key_in(headers: Mapping[bytes, bytes]) -> tuple[bytes, bytes]:
    """(the header value that holds the key, the key), checked for its form alone; InvalidKey otherwise. Nothing sent is repeated."""
    for name in (b"authorization", b"x-api-key", b"api-key"):
        sent = headers.get(name, b"")
        scheme = _BEARER.match(sent)
        key = (sent[scheme.end() :] if scheme is not None else sent).rstrip(b" \t")
        if len(sent) <= HEADER_MAX_BYTES and _KEY.fullmatch(key) is not None:
            return sent, key
    if not any(name in headers for name in (b"authorization", b"x-api-key", b"api-key")):
        raise InvalidKey("No API key: send `Authorization: Bearer tw-…`, or the key as x-api-key.")
    raise InvalidKey("This is no Tollway API key: one looks like tw-<12 characters>-<43 characters> and goes after `Bearer `.")


def _unknown() -> InvalidKey:
    return InvalidKey("This API key is unknown, blocked or revoked.")


def _away(why: str) -> NotReady:
    return NotReady(f"This API key cannot be checked now: {why}. Try again.", code="keys_unavailable", retry_after_s=1)


# ---- the secret that keys are digested under ---------------------------------------------------------------------------------------
def load_secrets(settings: Settings) -> tuple[bytes, ...]:
    """The secrets of `server.secret`, else of the state folder's file; the first signs, all are accepted. ConfigError says what to do."""
    if settings.server.secret:
        return tuple(_read_reference(reference) for reference in settings.server.secret)
    path = Path(settings.storage.state_dir) / SECRET_FILE
    if not path.exists():
        raise ConfigError(f"server.secret: none is set and there is no {path}: run `tollway serve` or `tollway keys add` once.")
    return (_checked(path.read_bytes(), str(path)),)


async def ensure_secret(settings: Settings, engine: AsyncEngine) -> tuple[bytes, ...]:
    """`load_secrets`, making the state folder's file (0600) when none is set and the database holds no key that a new one would void."""
    path = Path(settings.storage.state_dir) / SECRET_FILE
    if settings.server.secret or path.exists():
        return load_secrets(settings)
    async with reading(engine).connect() as connection:
        keys = (await connection.execute(select(func.count()).select_from(api_keys))).scalar_one()
    if keys:
        raise ConfigError(
            f"server.secret: the database holds {keys} API keys, but their secret is not here. Copy {SECRET_FILE} from the state folder "
            f"that made them to {path}, or name it: server.secret = ['env:TOLLWAY_SECRET']."
        )
    _write_new(path, secrets.token_urlsafe(48).encode())
    return load_secrets(settings)


def _write_new(path: Path, content: bytes) -> None:
    """Whole, 0600, and never over a file that another process made first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # 0600 by itself
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content + b"\n")
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink()


def _read_reference(reference: str) -> bytes:
    kind, _, name = reference.partition(":")
    if kind == "env":
        value = os.environ.get(name)
        if value is None:
            raise ConfigError(f"server.secret: the environment has no {name}.")
        return _checked(value.encode(), f"server.secret ({reference})")
    try:
        return _checked(Path(name).read_bytes(), f"server.secret ({reference})")
    except OSError as error:
        raise ConfigError(f"server.secret: {name} cannot be read ({error.strerror}).") from None


def _checked(content: bytes, where: str) -> bytes:
    content = content.strip()
    if not SECRET_MIN_BYTES <= len(content) <= SECRET_MAX_BYTES:
        raise ConfigError(f"{where}: a secret has {SECRET_MIN_BYTES} to {SECRET_MAX_BYTES} bytes; make one with `openssl rand -base64 48`.")
    return content
