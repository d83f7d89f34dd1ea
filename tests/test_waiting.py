"""What a worker serves while its database cannot be used, and when it makes room."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from gateway import waiting
from gateway.auth import SECRET_FILE
from gateway.db.engine import make_engine
from gateway.prepare import prepare
from gateway.settings import ConfigError, Settings, Storage
from gateway.waiting import Waiting, problem


async def test_why_a_database_cannot_be_used(storage: Storage) -> None:
    settings = Settings(storage=storage)
    assert f"there is no {Path(storage.state_dir) / SECRET_FILE}" in await problem(settings)
    await prepare(settings)
    assert await problem(settings) == ""
    engine = make_engine(storage)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await engine.dispose()
    with pytest.raises(ConfigError, match="newer Tollway"):
        await problem(settings)


async def test_a_missing_schema_and_a_database_that_is_away(tmp_path: Path) -> None:
    assert "run `tollway migrate`" in await problem(Settings(storage=Storage(state_dir=str(tmp_path))))
    away = Storage(state_dir=str(tmp_path), database_url="postgresql+asyncpg://u:hunter2@127.0.0.1:9/x")
    found = await problem(Settings(storage=away))
    assert found.startswith("The database does not answer") and "hunter2" not in found


async def test_what_it_answers(tmp_path: Path) -> None:
    app = Waiting(Settings(storage=Storage(state_dir=str(tmp_path))), "Because.", lambda: None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app.asgi), base_url="http://gateway") as client:  # type: ignore[arg-type]
        live, ready, other = [await client.get(path) for path in ("/health/live", "/health/ready", "/v1/models")]
    assert (live.status_code, ready.status_code, other.status_code) == (200, 503, 503)
    assert ready.json() == {"ready": False, "reasons": ["Because."]}
    assert other.json()["error"] == {
        "message": "This gateway is not ready. Because.",
        "type": "service_unavailable",
        "code": "not_ready",
        "param": None,
    }
    assert ready.headers["retry-after"] == other.headers["retry-after"] == "5"


async def test_it_makes_room_when_the_database_is_there(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "ASK_S", 0.05)
    settings, over = Settings(storage=storage), asyncio.Event()
    app = Waiting(settings, await problem(settings), over.set)
    await app.start()
    await asyncio.sleep(0.2)
    assert not over.is_set()
    await prepare(settings)
    await asyncio.wait_for(over.wait(), 30)
    await app.finish()


async def test_a_reload_makes_room_and_finish_ends_the_asking(tmp_path: Path) -> None:
    over = asyncio.Event()
    app = Waiting(Settings(storage=Storage(state_dir=str(tmp_path))), "Because.", over.set)
    await app.start()
    await app.reload(app.settings)
    assert over.is_set()
    await app.finish()
    await app.finish()
