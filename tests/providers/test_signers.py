"""Credentials: references only, headers by signer, and a set of values to mask."""

from __future__ import annotations

from pathlib import Path

import pytest

from providers.signers import CredentialError, conceal, conceal_url, headers, resolve, secrets


def test_environment_and_file_are_read_trimmed_and_masked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOME_KEY", " sk-from-environment\n")
    (tmp_path / "key").write_text("sk-from-a-file\n")
    assert resolve("env:SOME_KEY") == "sk-from-environment"
    assert resolve(f"file:{tmp_path / 'key'}") == "sk-from-a-file"
    assert {"sk-from-environment", "sk-from-a-file"} <= set(secrets())


@pytest.mark.parametrize("literal", ["sk-abcdef0123456789", "", "env:", "file:", "vault:x"])
def test_a_literal_is_refused_and_not_repeated(literal: str) -> None:
    with pytest.raises(CredentialError, match="backend 'mini'") as caught:
        resolve(literal, "mini")
    assert "env:NAME" in str(caught.value)
    assert len(literal) < 8 or literal not in str(caught.value)


def test_missing_sources_name_themselves_and_the_backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(CredentialError, match=r"backend 'mini'.*NOT_SET"):
        resolve("env:NOT_SET", "mini")
    with pytest.raises(CredentialError, match=r"backend 'mini'.*none"):
        resolve(f"file:{tmp_path / 'none'}", "mini")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(CredentialError, match="empty"):
        resolve(f"file:{tmp_path / 'empty'}", "mini")
    (tmp_path / "large").write_text("x" * 70_000)
    with pytest.raises(CredentialError, match="larger"):
        resolve(f"file:{tmp_path / 'large'}", "mini")


@pytest.mark.parametrize("value", ["two\nlines-of-secret", "sp ace-secret", "ünicode-secret"])
def test_a_value_that_could_break_a_header_is_refused_unseen(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ODD_KEY", value)
    with pytest.raises(CredentialError) as caught:
        resolve("env:ODD_KEY")
    assert "secret" not in str(caught.value)


def test_short_values_are_not_masked_and_long_ones_come_first() -> None:
    conceal("EMPTY")
    conceal("prefix-123456")
    conceal("prefix-123456-and-more")
    assert "EMPTY" not in secrets()
    known = secrets()
    assert known.index("prefix-123456-and-more") < known.index("prefix-123456")
    conceal("prefix-123456")
    assert secrets() == known


def test_headers_by_signer() -> None:
    assert headers("bearer", "k") == {"authorization": "Bearer k"}
    assert headers("header:X-Api-Key", "k") == {"x-api-key": "k"}
    assert headers("none", "k") == {}
    assert headers("bearer", "") == {}
    with pytest.raises(ValueError, match="sigv9"):
        headers("sigv9", "k")


def test_a_password_in_an_address_is_masked_as_it_stands_and_as_it_is_meant() -> None:
    conceal_url("https://tollway:p%40ss-in-an-address@host:8000/v1")
    assert {"p%40ss-in-an-address", "p@ss-in-an-address"} <= set(secrets())
    before = secrets()
    conceal_url("https://host/v1")
    conceal_url("")
    assert secrets() == before
