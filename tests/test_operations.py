"""What operators change over the API, in SQL: the rule of names, the checks of the file, what may come from outside, the audit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import made, operations
from gateway.access import ADMIN, Actor
from gateway.db.tables import audit, catalog_version, price_book
from gateway.errors import InvalidRequest, NotFound
from gateway.made import Made
from gateway.settings import BackendSettings, RouteSettings, Server, Settings
from tests.conftest import Database

ANNA = Actor(name="anna", role=ADMIN)
FILE = Settings(
    backends=(BackendSettings(name="a", vendor="scripted", model="m"),),
    routes=(RouteSettings(name="r", backends=("a",)),),
)
SCRIPTED = {"vendor": "scripted", "model": "m"}


async def entries(engine: AsyncEngine) -> Made:
    async with engine.connect() as connection:
        return await made.read(connection)


async def log(engine: AsyncEngine) -> list[tuple[str, str, Any, Any]]:
    async with engine.connect() as connection:
        rows = (await connection.execute(select(audit).order_by(audit.c.id))).all()
    assert {row.actor for row in rows} <= {"anna"}
    return [(row.action, row.ident, *(text and msgspec.json.decode(text) for text in (row.before, row.after))) for row in rows]


async def version(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        return int((await connection.execute(select(catalog_version.c.version))).scalar_one())


async def test_backends_and_routes_are_made_changed_and_deleted_and_each_is_audited(database: Database) -> None:
    engine, before = database.engine, await version(database.engine)
    assert (await operations.put_backend(engine, ANNA, FILE, "b", SCRIPTED)).new
    assert not (await operations.put_backend(engine, ANNA, FILE, "b", {**SCRIPTED, "name": "b", "parallel": 4})).new
    assert (await operations.put_route(engine, ANNA, FILE, "s", {"backends": ["b", "a"], "ttft_ms": 800})).new
    found = await entries(engine)
    assert found.backends == (BackendSettings(name="b", vendor="scripted", model="m", parallel=4),)
    assert found.routes == (RouteSettings(name="s", backends=("b", "a"), ttft_ms=800.0),) and found.unreadable == {}
    with pytest.raises(InvalidRequest, match="the route s, made over the API") as caught:
        await operations.delete_backend(engine, ANNA, FILE, "b")
    assert caught.value.status == 409
    await operations.delete_route(engine, ANNA, FILE, "s")
    await operations.delete_backend(engine, ANNA, FILE, "b")
    assert await entries(engine) == Made() and await version(engine) >= before + 5, "workers see each change"
    one = {"name": "b", **SCRIPTED}
    assert await log(engine) == [
        ("backend.make", "b", None, one),
        ("backend.change", "b", one, {**one, "parallel": 4}),
        ("route.make", "s", None, {"name": "s", "backends": ["b", "a"], "ttft_ms": 800.0}),
        ("route.delete", "s", {"name": "s", "backends": ["b", "a"], "ttft_ms": 800.0}, None),
        ("backend.delete", "b", {**one, "parallel": 4}, None),
    ]


async def test_a_name_of_the_file_is_refused_and_both_are_named(database: Database) -> None:
    engine = database.engine
    for work in (
        operations.put_backend(engine, ANNA, FILE, "a", SCRIPTED),
        operations.delete_backend(engine, ANNA, FILE, "a"),
        operations.put_route(engine, ANNA, FILE, "r", {"backends": ["a"]}),
        operations.delete_route(engine, ANNA, FILE, "r"),
    ):
        with pytest.raises(InvalidRequest, match=r"(backends\.a|routes\.r) stands in tollway\.toml") as caught:
            await work
        assert (caught.value.status, caught.value.code) == (409, "in_the_file")
    for gone in (operations.delete_backend(engine, ANNA, FILE, "x"), operations.delete_route(engine, ANNA, FILE, "x")):
        with pytest.raises(NotFound):
            await gone
    assert await entries(engine) == Made() and await log(engine) == []


WRONG_BACKENDS: list[tuple[dict[str, Any], str]] = [
    ({"vendor": "opnai", "model": "m"}, 'backends.b.vendor: "opnai" is unknown. Did you mean "openai"?'),
    ({"vendor": "scripted"}, "backends.b.model: is required."),
    ({**SCRIPTED, "modle": "x"}, 'backends.b.modle: unknown setting. Did you mean "model"?'),
    ({**SCRIPTED, "parallel": 0}, "backends.b.parallel: expected int >= 1."),
    ({**SCRIPTED, "name": "c"}, "name: the path says another name"),
    ({"vendor": "openai", "model": "m"}, "backends.b.api_key: the vendor openai needs a key"),
    ({"vendor": "openai", "model": "m", "api_key": "sk-literal-secret"}, "never the secret itself"),
    ({"vendor": "openai", "model": "m", "api_key": "env:NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE"),
    ({"vendor": "openai", "model": "m", "api_key": "env:TOLLWAY_STORAGE__DATABASE_URL"}, "may not be named over the API"),
    ({"vendor": "openai", "model": "m", "api_key": "file:/etc/passwd"}, "may not be named over the API"),
    ({"vendor": "openai", "model": "m", "api_key": "file:/run/secrets/../../etc/passwd"}, "may not be named over the API"),
    ({"vendor": "openai-compatible", "model": "m", "base_url": "gopher://x"}, "backends.b.base_url: must begin with http"),
    ({**SCRIPTED, "script": "file:/etc/passwd"}, "backends.b.script"),
    ({"vendor": "local", "model": "smollm2-135m"}, "backends.b.vendor: engines are started for backends of tollway.toml alone"),
    ({**SCRIPTED, "price": {"input": 1, "output": "1"}}, 'Write money as a string of decimal digits: "0.15".'),
]


async def test_a_backend_is_checked_as_the_file_is_and_what_only_the_file_may_say_is_refused(database: Database) -> None:
    for body, says in WRONG_BACKENDS:
        with pytest.raises(InvalidRequest) as caught:
            await operations.put_backend(database.engine, ANNA, FILE, "b", body)
        assert says in caught.value.message and "sk-literal" not in caught.value.message and caught.value.status == 400
    assert await entries(database.engine) == Made()


async def test_references_that_the_operator_allows_are_taken(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONLY_THIS", "sk-0123456789")
    monkeypatch.setenv("NOT_THAT", "sk-9876543210")
    body = {"vendor": "openai", "model": "gpt-4o-mini", "api_key": "env:ONLY_THIS"}
    strict = msgspec.structs.replace(FILE, server=Server(api_references=("env:ONLY_*",)))
    assert (await operations.put_backend(database.engine, ANNA, strict, "b", body)).new
    with pytest.raises(InvalidRequest, match=r"server\.api_references: env:ONLY_\*"):
        await operations.put_backend(database.engine, ANNA, strict, "c", {**body, "api_key": "env:NOT_THAT"})
    async with database.engine.connect() as connection:
        priced = (await connection.execute(select(price_book.c.vendor, price_book.c.model))).all()
    assert [tuple(row) for row in priced] == [("openai", "gpt-4o-mini")], "its published price is known at once"


WRONG_ROUTES: list[tuple[dict[str, Any], str]] = [
    ({"backends": ["nobody"]}, 'routes.s.backends: "nobody" is not a backend.'),
    ({"backends": []}, "routes.s.backends: name at least one backend."),
    ({"backends": ["a"], "ttft": 3}, 'routes.s.ttft: unknown setting. Did you mean "ttft_ms"?'),
    ({"backends": ["a"], "quality": {"weak": ["a"], "floor": 0.9, "model": "/etc/passwd"}}, "routes.s.quality.model"),
]


async def test_a_route_is_checked_as_the_file_is(database: Database) -> None:
    for body, says in WRONG_ROUTES:
        with pytest.raises(InvalidRequest) as caught:
            await operations.put_route(database.engine, ANNA, FILE, "s", body)
        assert says in caught.value.message


async def test_a_drain_says_which_routes_it_would_leave_empty_and_is_kept(database: Database) -> None:
    engine = database.engine
    await operations.put_backend(engine, ANNA, FILE, "b", SCRIPTED)
    await operations.put_route(engine, ANNA, FILE, "s", {"backends": ["a", "b"]})
    assert await operations.drain(engine, ANNA, FILE, "b", "new kernel") == []
    order = (await entries(engine)).orders["b"]
    assert order.drained_at_us is not None and (order.drained_by, order.note) == ("anna", "new kernel")
    with pytest.raises(InvalidRequest, match="Without 'a' the routes r, s would have no backend") as caught:
        await operations.drain(engine, ANNA, FILE, "a")
    assert (caught.value.status, caught.value.code) == (409, "routes_emptied")
    assert await operations.drain(engine, ANNA, FILE, "a", empty_routes=True) == ["r", "s"]
    assert (await entries(engine)).drained == {"a", "b"}
    for name in ("a", "b", "b"):
        await operations.undrain(engine, ANNA, FILE, name)
    assert (await entries(engine)).drained == frozenset()
    with pytest.raises(NotFound):
        await operations.drain(engine, ANNA, FILE, "x")
    assert (await log(engine))[2:] == [
        ("backend.drain", "b", {"drained": False}, {"drained": True, "note": "new kernel"}),
        ("backend.drain", "a", {"drained": False}, {"drained": True, "note": "", "routes_without_backend": ["r", "s"]}),
        ("backend.undrain", "a", {"drained": True, "by": "anna", "note": ""}, {"drained": False}),
        ("backend.undrain", "b", {"drained": True, "by": "anna", "note": "new kernel"}, {"drained": False}),
    ]


async def test_each_order_to_probe_is_a_new_one_and_a_deleted_backend_leaves_none(database: Database) -> None:
    engine = database.engine
    await operations.put_backend(engine, ANNA, FILE, "b", SCRIPTED)
    await operations.probe(engine, ANNA, FILE, "b")
    first = (await entries(engine)).orders["b"].probe_at_us
    await operations.probe(engine, ANNA, FILE, "b")
    second = (await entries(engine)).orders["b"].probe_at_us
    assert first is not None and second is not None and second > first
    await operations.drain(engine, ANNA, FILE, "b")
    await operations.delete_backend(engine, ANNA, FILE, "b")
    await operations.put_backend(engine, ANNA, FILE, "b", SCRIPTED)
    assert (await entries(engine)).orders == {}, "another one of this name is not drained for what the first was"
