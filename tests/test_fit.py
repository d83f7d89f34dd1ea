"""One backend by itself is looked at as all of a file are; its credential only where it will be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.fit import check, check_backend, check_form
from gateway.settings import AlertSettings, BackendSettings, ConfigError, Settings, Storage

MISSING = BackendSettings(name="a", vendor="openai", model="m", api_key="env:TOLLWAY_TEST_NOT_SET")


def test_a_credential_is_wanted_by_whoever_sends_it() -> None:
    check_form(MISSING)
    with pytest.raises(ConfigError, match="TOLLWAY_TEST_NOT_SET"):
        check_backend(MISSING)


@pytest.mark.parametrize(
    ("backend", "says"),
    [
        (BackendSettings(name="a", vendor="nobody", model="m"), "backends.a.vendor"),
        (BackendSettings(name="a", vendor="scripted", model="m", script="= ["), "script"),
        (BackendSettings(name="a", vendor="vllm", model="m", base_url="http://x/v1", dialect="klingon"), "backends.a.dialect"),
    ],
)
def test_what_cannot_work_is_named(backend: BackendSettings, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_form(backend)


def test_a_reference_of_the_alerts_must_have_a_value(tmp_path: Path) -> None:
    alerts = AlertSettings(webhook_url="https://x/y", webhook_secret="env:TOLLWAY_TEST_NOT_SET")
    with pytest.raises(ConfigError, match=r"alerts\.webhook_secret"):
        check(Settings(storage=Storage(state_dir=str(tmp_path)), alerts=alerts))
