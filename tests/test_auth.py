"""API keys: what is accepted, what is refused and how, what a worker remembers, and the secret they are digested under."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import auth, people
from gateway.access import COMMAND_LINE
from gateway.auth import Keyring, Principal, digest_of, ensure_secret, load_secrets, mint
from gateway.db.engine import make_engine
from gateway.db.tables import api_keys
from gateway.errors import InvalidKey, NotReady
from gateway.settings import ConfigError, Server, Settings, Storage
from tests.conftest import Database
from tests.fixtures.frozen import frozen_port

SECRET = b"s" * 32
OTHER = b"o" * 32
WHO = Principal(org_id=1, team_id=2, key_id=3)


def bearer(key: str | bytes) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + (key.encode() if isinstance(key, str) else key)}


@pytest.fixture
async def nowhere(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """A database without a table."""
    engine = make_engine(Storage(state_dir=str(tmp_path)))
    yield engine
    await engine.dispose()


async def made(database: Database, secret: bytes = SECRET, **more: object) -> tuple[str, people.Key]:
    teams = await people.list_teams(database.engine)
    if not teams:
        await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    return await people.add_key(database.engine, secret, people.NewKey(team="alpha", **more), actor=COMMAND_LINE)  # type: ignore[arg-type]


# ---- form --------------------------------------------------------------------------------------------------------------------------
def test_a_key_has_a_public_part_and_a_long_secret() -> None:
    key = mint(SECRET)
    prefix, public, rest = key.text.split("-")
    assert (prefix, public, len(public)) == ("tw", key.public, 12)
    assert len(rest) >= 32 and rest.isalnum()
    assert key.digest == hmac.new(SECRET, key.text.encode(), hashlib.sha256).digest()
    assert mint(SECRET).text != key.text


async def test_every_header_that_official_clients_use_is_read(nowhere: AsyncEngine) -> None:
    key = mint(SECRET)
    ring = Keyring((SECRET,), nowhere)
    ring.replace({key.digest: WHO})
    text = key.text.encode()
    for headers in (
        {b"authorization": b"Bearer " + text},
        {b"authorization": b"bearer  " + text + b" "},
        {b"x-api-key": text},
        {b"api-key": text},
        {b"authorization": b"Basic dXNlcjpwYXNz", b"x-api-key": text},
    ):
        assert ring.find(headers) is WHO
        assert ring.find(headers) is WHO  # and again, from memory


BAD = [
    {},
    {b"authorization": b""},
    {b"authorization": b"Bearer "},
    {b"authorization": b"Basic dXNlcjpwYXNz"},
    {b"x-api-key": b"sk-proj-abc"},
    bearer("tw-short"),
    bearer(mint(SECRET).text + "\n"),
    bearer(mint(SECRET).text + "-"),
    bearer(b"tw-" + b"A" * 12 + b"-" + b"\xff" * 43),
    bearer("x" * 65536),
    bearer("tw-" + "A" * 12 + "-" + "A" * 65536),
    {b"authorization": b"Bearer" + b" " * 65536 + mint(SECRET).text.encode()},
    bearer("' OR '1'='1"),
    bearer(b"\x00" * 60),
]


@pytest.mark.parametrize("headers", BAD, ids=range(len(BAD)))
async def test_g01_data_is_data(nowhere: AsyncEngine, headers: dict[bytes, bytes]) -> None:
    ring = Keyring((SECRET,), nowhere)
    with pytest.raises(InvalidKey) as told:
        ring.find(headers)
    assert told.value.status == 401 and told.value.code == "invalid_api_key"
    assert not any(value.split()[-1].decode("latin-1") in told.value.message for value in headers.values() if len(value) > 8)
    with pytest.raises(InvalidKey):
        await ring.find_slow(headers)
    assert ring.look_ups == 0


@given(st.dictionaries(st.sampled_from([b"authorization", b"x-api-key", b"api-key"]), st.binary(max_size=300)))
def test_any_bytes_are_refused_and_nothing_else_happens(headers: dict[bytes, bytes]) -> None:
    ring = Keyring((SECRET,), make_engine(Storage(state_dir="/nonexistent")))
    ring.replace({b"": WHO})
    with pytest.raises(InvalidKey):
        ring.find(headers)


async def test_a_key_of_another_secret_is_not_ours(nowhere: AsyncEngine) -> None:
    key = mint(OTHER)
    ring = Keyring((SECRET,), nowhere)
    ring.replace({key.digest: WHO})
    assert ring.find(bearer(key.text)) is None


async def test_both_secrets_are_accepted_while_they_are_changed(database: Database) -> None:
    old, _ = await made(database, OTHER)
    new, _ = await made(database, SECRET)
    ring = Keyring((SECRET, OTHER), database.engine)
    assert (await ring.find_slow(bearer(old))).team == (await ring.find_slow(bearer(new))).team == "alpha"
    found = [ring.find(bearer(key)) for key in (old, new)]
    assert [one.key_public for one in found if one is not None] == [old[3:15], new[3:15]]


async def test_expired_keys_end_by_themselves(nowhere: AsyncEngine) -> None:
    key = mint(SECRET)
    ring = Keyring((SECRET,), nowhere)
    soon = Principal(org_id=1, team_id=2, key_id=3, expires_at_us=time.time_ns() // 1000 + 150_000)
    ring.replace({key.digest: soon})
    assert ring.find(bearer(key.text)) is soon
    await asyncio.sleep(0.2)
    with pytest.raises(InvalidKey, match="expired"):
        ring.find(bearer(key.text))


# ---- looking up --------------------------------------------------------------------------------------------------------------------
async def test_a_key_made_a_moment_ago_works_at_once(database: Database) -> None:
    text, key = await made(database, models=("a", "b"), tag="nightly", scopes=("admin", "inference"))
    ring = Keyring((SECRET,), database.engine)
    assert ring.find(bearer(text)) is None
    who = await ring.find_slow(bearer(text))
    assert (who.team, who.org, who.key_id, who.key_public, who.tag) == ("alpha", "default", key.id, key.public, "nightly")
    assert (who.models, who.scopes) == (frozenset("ab"), frozenset(("admin", "inference")))
    assert len(who.salt) >= 16
    assert ring.find(bearer(text)) == who
    assert ring.look_ups == 1


async def test_an_unknown_key_is_asked_for_once_and_remembered(database: Database) -> None:
    ring = Keyring((SECRET,), database.engine)
    key = mint(SECRET).text
    assert ring.find(bearer(key)) is None
    with pytest.raises(InvalidKey):
        await ring.find_slow(bearer(key))
    for _ in range(100):
        with pytest.raises(InvalidKey):
            ring.find(bearer(key))
    assert ring.look_ups == 1


async def test_random_keys_do_not_load_the_database(database: Database) -> None:
    ring = Keyring((SECRET,), database.engine)
    keys = [mint(SECRET).text for _ in range(400)]
    answers = await asyncio.gather(*(ring.find_slow(bearer(key)) for key in keys + keys), return_exceptions=True)
    assert {type(answer) for answer in answers} == {InvalidKey}
    assert ring.look_ups <= 1 + len(keys) // auth.BATCH + 1


async def test_more_unknown_keys_than_may_wait_are_told_to_come_back(database: Database) -> None:
    ring = Keyring((SECRET,), database.engine)
    keys = [mint(SECRET).text for _ in range(auth.WAITING + 5)]
    answers = await asyncio.gather(*(ring.find_slow(bearer(key)) for key in keys), return_exceptions=True)
    told = [answer for answer in answers if isinstance(answer, NotReady) and "too many" in str(answer)]  # a slow machine tells others more
    assert len(told) == 5 and told[0].status == 503 and told[0].retry_after_s is not None


async def test_what_is_remembered_is_bounded(nowhere: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "RECENT", 8)
    keys = [mint(SECRET) for _ in range(50)]
    ring = Keyring((SECRET,), nowhere)
    ring.replace({key.digest: WHO for key in keys})
    for key in keys:
        assert ring.find(bearer(key.text)) is WHO
    assert len(ring._recent) <= 8
    assert len(ring) == 50


async def test_g20_a_revoked_key_ends_with_the_next_snapshot(database: Database) -> None:
    text, key = await made(database)
    ring = Keyring((SECRET,), database.engine)
    await ring.find_slow(bearer(text))
    assert ring.find(bearer(text)) is not None
    await people.revoke_key(database.engine, key.public, actor=COMMAND_LINE)
    ring.replace({})
    assert ring.find(bearer(text)) is None
    with pytest.raises(InvalidKey):
        await ring.find_slow(bearer(text))


async def test_a_look_up_that_a_snapshot_overtook_is_not_remembered(database: Database) -> None:
    text, _ = await made(database)
    ring = Keyring((SECRET,), database.engine)
    asked = asyncio.create_task(ring.find_slow(bearer(text)))
    while ring.look_ups == 0:  # noqa: ASYNC110 - it is the loop's own turns that are counted
        await asyncio.sleep(0)
    ring.replace({})  # this snapshot may be the one that revokes it
    assert (await asked).team == "alpha"
    assert ring.find(bearer(text)) is None


async def test_a_client_that_leaves_does_not_take_the_others_answer_away(database: Database) -> None:
    text, _ = await made(database)
    ring = Keyring((SECRET,), database.engine)
    first, second = (asyncio.create_task(ring.find_slow(bearer(text))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).team == "alpha"
    assert ring.look_ups == 1


async def test_keys_of_a_deleted_team_are_unknown(database: Database) -> None:
    text, _ = await made(database)
    await people.delete_team(database.engine, "alpha", actor=COMMAND_LINE)
    with pytest.raises(InvalidKey):
        await Keyring((SECRET,), database.engine).find_slow(bearer(text))


# ---- the database is away ----------------------------------------------------------------------------------------------------------
async def test_g13_without_a_database_an_unknown_key_is_503_and_a_known_one_works(nowhere: AsyncEngine) -> None:
    known = mint(SECRET)
    ring = Keyring((SECRET,), nowhere)
    ring.replace({known.digest: WHO})
    with pytest.raises(NotReady) as told:
        await ring.find_slow(bearer(mint(SECRET).text))
    assert told.value.status == 503 and told.value.retry_after_s is not None
    assert ring.find(bearer(known.text)) is WHO


async def test_g13_a_frozen_database_holds_nobody_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "LOOK_UP_S", 0.3)

    async with frozen_port() as port:
        engine = make_engine(Storage(state_dir=str(tmp_path), database_url=f"postgresql+asyncpg://u:p@127.0.0.1:{port}/d"))
        started = time.monotonic()
        with pytest.raises(NotReady):
            await Keyring((SECRET,), engine).find_slow(bearer(mint(SECRET).text))
        assert time.monotonic() - started < 20
        await engine.dispose()


# ---- the secret --------------------------------------------------------------------------------------------------------------------
def settings_of(database: Database, *secret: str) -> Settings:
    return Settings(server=Server(secret=secret), storage=database.storage)


async def test_the_first_start_makes_a_secret_that_only_the_owner_reads(database: Database) -> None:
    settings = settings_of(database)
    with pytest.raises(ConfigError, match=r"tollway\.secret"):
        load_secrets(settings)
    found = await ensure_secret(settings, database.engine)
    path = settings.state / "tollway.secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in settings.state.iterdir() if "secret" in entry.name] == ["tollway.secret"]
    assert found == load_secrets(settings) == await ensure_secret(settings, database.engine)
    assert len(found[0]) >= 32


async def test_a_lost_secret_is_not_replaced_while_there_are_keys(database: Database) -> None:
    settings = settings_of(database)
    (secret,) = await ensure_secret(settings, database.engine)
    await made(database, secret)
    (settings.state / "tollway.secret").unlink()
    with pytest.raises(ConfigError, match="1 API keys"):
        await ensure_secret(settings, database.engine)
    async with database.engine.begin() as connection:
        await connection.execute(delete(api_keys))
    assert await ensure_secret(settings, database.engine) != (secret,)


async def test_secrets_are_read_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEW_SECRET", "n" * 40)
    (tmp_path / "old").write_text("o" * 40 + "\n")
    settings = Settings(server=Server(secret=("env:NEW_SECRET", f"file:{tmp_path / 'old'}")))
    assert load_secrets(settings) == (b"n" * 40, b"o" * 40)


@pytest.mark.parametrize("reference", ["env:NO_SUCH_SECRET", "file:/no/such/file", "env:SHORT_SECRET"])
def test_a_secret_that_cannot_be_used_is_named(reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT_SECRET", "hunter2")
    with pytest.raises(ConfigError, match=r"server\.secret") as told:
        load_secrets(Settings(server=Server(secret=(reference,))))
    assert "hunter2" not in str(told.value)


async def test_a_row_that_cannot_be_read_leaves_nobody_waiting(database: Database) -> None:
    text, _ = await made(database)
    async with database.engine.begin() as connection:
        await connection.execute(update(api_keys).values(models="not json"))
    ring = Keyring((SECRET,), database.engine)
    with pytest.raises(NotReady):
        await asyncio.wait_for(ring.find_slow(bearer(text)), 3)
    assert digest_of(text.encode(), SECRET) not in ring._found
