"""What is shown of settings holds no secret."""

from __future__ import annotations

import msgspec
import pytest

from gateway.settings import AlertSettings, BackendSettings, Settings, Storage
from gateway.views.configuration import address, tables
from providers.signers import conceal


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("", ""),
        ("https://api.example/v1", "https://api.example/v1"),
        ("postgresql+asyncpg://tollway:hunter2hunter2@db:5432/t", "postgresql+asyncpg://***@db:5432/t"),
        ("redis://:hunter2hunter2@cache:6379/0", "redis://***@cache:6379/0"),
        ("https://h/metrics?token=hunter2hunter2", "https://h/metrics?***"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert address(url) == shown


def test_no_secret_is_in_the_tables() -> None:
    conceal("sk-resolved-0123456789")
    backend = BackendSettings(
        name="a",
        vendor="openai",
        model="sk-resolved-0123456789",
        api_key="env:OPENAI_API_KEY",
        base_url="https://u:hunter2hunter2@h/v1",
        script="hunter2hunter2",
    )
    storage = Storage(database_url="postgresql+asyncpg://u:hunter2hunter2@h/d", redis_url="redis://:hunter2hunter2@h")
    alerts = AlertSettings(webhook_url="https://hooks.example/services/hunter2hunter2", webhook_secret="env:HOOK")
    told = tables(Settings(backends=(backend,), storage=storage, alerts=alerts))
    text = msgspec.json.encode(told).decode()
    assert "hunter2" not in text and "sk-resolved" not in text
    assert told["backends"][0]["api_key"] == "env:OPENAI_API_KEY", "where a secret lies is none"
    assert told["alerts"]["webhook_url"] == "https://hooks.example/***" and told["backends"][0]["script"] == "14 characters"
